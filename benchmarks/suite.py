"""Queries that somebody else wrote, as views: any folder of them, over random rows and random transactions.

    python benchmarks/suite.py --schema tables.sql --queries FOLDER --views 8

The schema is a text of CREATE TABLE statements; a PRIMARY KEY is one for rollview, too. A file of the folder
has one query or several, each ended by a semicolon. The tables are spread over two databases of a PostgreSQL
server. Their values come from the constants that the queries compare columns with, so that conditions are met
now and then; `--relax` leaves most conditions on constants out, so that queries of many conditions have rows,
too. Every view is compared at every transaction with what Spark makes of the query's own text and of
the tables as they were.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import sqlglot
from pyspark.sql import SparkSession
from sqlglot import exp
from tpch_all import different_rows

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from rollview import Project
from rollview.errors import RollviewError
from rollview.spark.session import open_session
from servers.jvm import start_quickly
from servers.postgres import PostgresServer

SOURCES = ("north", "south")
WORDS = ("a", "b", "c", "d")
Rows = list[tuple[Any, ...]]


@dataclass(frozen=True)
class SuiteTable:
    """A table of the schema."""

    name: str
    source: str
    types: dict[str, str]
    key: tuple[str, ...]

    @property
    def for_postgres(self) -> str:
        """The statement that creates it there."""
        types = {"string": "text", "double": "double precision"}
        columns = [f'"{name}" {types.get(each, each)}' for name, each in self.types.items()]
        key = [f"PRIMARY KEY ({', '.join(self.key)})"] if self.key else []
        return f'CREATE TABLE "{self.name}" ({", ".join([*columns, *key])})'

    @property
    def for_spark(self) -> str:
        """Its columns as Spark writes them."""
        return ", ".join(f"`{name}` {each}" for name, each in self.types.items())


def tables_of(schema: str) -> dict[str, SuiteTable]:
    """The tables of a text of CREATE TABLE statements, in turn in one source and the other."""
    found: dict[str, SuiteTable] = {}
    for statement in sqlglot.parse(schema, dialect="spark"):
        if not isinstance(statement, exp.Create):
            continue
        types, key = (
            {},
            [each.name for each in statement.find_all(exp.PrimaryKey) for each in each.expressions],
        )
        for column in statement.find_all(exp.ColumnDef):
            kind = column.args["kind"]
            is_text = kind.this in (exp.DataType.Type.CHAR, exp.DataType.Type.VARCHAR, exp.DataType.Type.TEXT)
            types[column.name.lower()] = "string" if is_text else kind.sql("spark").lower()
        name = statement.this.this.name.lower()
        found[name] = SuiteTable(name, SOURCES[len(found) % 2], types, tuple(map(str.lower, key)))
    return found


@dataclass(frozen=True)
class SuiteQuery:
    """A query, as it was written, and as a view over the sources."""

    name: str
    text: str
    tables: dict[str, SuiteTable] = field(repr=False)

    @property
    def view(self) -> str:
        """The text with the source before the name of each table."""
        text = self.text
        tree = sqlglot.parse_one(text, dialect="spark")
        hidden = {each.alias.lower() for each in tree.find_all(exp.CTE)}
        places = []
        for table in tree.find_all(exp.Table):
            name = table.name.lower()
            if name in self.tables and name not in hidden and not table.db:
                places.append((table.this.meta["start"], self.tables[name].source))
        for start, source in sorted(places, reverse=True):
            text = f"{text[:start]}{source}.{text[start:]}"
        return text

    @property
    def oracle(self) -> str:
        """What Spark is asked: rows that the order takes for equal come by their outputs."""
        tree = sqlglot.parse_one(self.text, dialect="spark")
        order = tree.args.get("order")
        if order is None or tree.args.get("limit") is None:
            return self.text
        for place in range(1, len(tree.selects) + 1):
            order.append("expressions", exp.Ordered(this=exp.Literal.number(place), nulls_first=True))
        return tree.sql("spark")


def queries_in(folder: Path, tables: dict[str, SuiteTable]) -> Iterator[SuiteQuery]:
    """The queries of a folder, called after their files."""
    for file in sorted(folder.rglob("*.sql")):
        texts = [each.strip() for each in file.read_text("utf-8").split(";")]
        texts = [each for each in texts if each]
        for number, text in enumerate(texts, 1):
            stem = file.stem.replace("-", "_")
            yield SuiteQuery(stem if len(texts) == 1 else f"{stem}_{number}", text, tables)


def relaxed(query: SuiteQuery, chance: random.Random, share: float) -> SuiteQuery:
    """The query without a share of its conditions on constants; joins and subqueries stay."""
    tree = sqlglot.parse_one(query.text, dialect="spark")
    for clause in list(tree.find_all(exp.Where, exp.Having)):
        conditions = list(clause.this.flatten()) if isinstance(clause.this, exp.And) else [clause.this]
        left = [
            each
            for each in conditions
            if each.find(exp.Query) or not each.find(exp.Literal) or chance.random() >= share
        ]
        if left:
            clause.set("this", exp.and_(*(each.copy() for each in left)))
        else:
            clause.pop()
    return SuiteQuery(query.name, tree.sql("spark"), query.tables)


class Values:
    """Random values for columns; those that queries ask for are likely."""

    def __init__(self, chance: random.Random, queries: list[SuiteQuery]) -> None:
        self.chance = chance
        self.asked: dict[str, list[str]] = defaultdict(list)
        for query in queries:
            tree = sqlglot.parse_one(query.text, dialect="spark")
            for test in tree.find_all(exp.EQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NEQ, exp.In, exp.Between):
                for column in test.find_all(exp.Column):
                    self.asked[column.name.lower()] += [each.name for each in test.find_all(exp.Literal)]

    def row(self, table: SuiteTable, size: int) -> tuple[Any, ...]:
        """A row of a table that has about so many."""
        return tuple(self.value(table, name, size) for name in table.types)

    def value(self, table: SuiteTable, name: str, size: int) -> Any:
        """A value of a column."""
        kind = table.types[name]
        if name not in table.key and self.chance.random() < 0.08:
            return None
        wanted = self.chance.choice(self.asked[name]) if self.asked[name] else None
        with suppress(ArithmeticError, ValueError):
            if kind == "string":
                free = name in table.key or (table.key and name.endswith("_id"))
                return wanted if wanted is not None and not free else self._word(size if free else 4)
            if kind == "date":
                start = date.fromisoformat(wanted) if wanted else date(2000, 1, 1)
                return start + timedelta(days=self.chance.randint(0, 40))
            if kind in ("int", "bigint", "smallint"):
                usual = self.chance.randint(1, size if name in table.key or name.endswith("_sk") else 12)
                return int(wanted) if wanted and not name.endswith("_sk") else usual
            if kind.startswith("decimal"):
                usual_decimal = Decimal(self.chance.randint(0, 10_000)) / 100
                return Decimal(wanted) if wanted and self.chance.random() < 0.5 else usual_decimal
            return float(wanted) if wanted else self.chance.randint(0, 100) / 4
        return {"string": "a", "date": date(2000, 1, 1)}.get(kind, 1)

    def _word(self, size: int) -> str:
        return self.chance.choice(WORDS) if size <= len(WORDS) else f"id{self.chance.randint(1, size)}"


class Databases:
    """The tables in two databases, and what happens to them."""

    def __init__(self, tables: dict[str, SuiteTable], values: Values, size: int) -> None:
        self.tables, self.values, self.size = tables, values, size
        self.server = PostgresServer()
        self.server.start()
        self.dsns = {source: self.server.create_database(source) for source in SOURCES}
        for source in SOURCES:
            mine = [each for each in tables.values() if each.source == source]
            with psycopg.connect(self.dsns[source]) as connection:
                for table in mine:
                    connection.execute(table.for_postgres)
                    for _ in range(self._size(table)):
                        self._insert(connection, table)

    def transact(self) -> None:
        """Rows come, go and change in one to three tables of one database."""
        chance = self.values.chance
        source = chance.choice(SOURCES)
        mine = [each for each in self.tables.values() if each.source == source]
        with psycopg.connect(self.dsns[source]) as connection:
            for table in chance.choices(mine, k=min(len(mine), 4)):
                for _ in range(chance.randint(1, 3)):
                    self._insert(connection, table)
                where = f'ctid IN (SELECT ctid FROM "{table.name}" ORDER BY random() LIMIT 2)'
                connection.execute(f'DELETE FROM "{table.name}" WHERE {where}')
                changed = [name for name in table.types if name not in table.key]
                if changed:
                    name = chance.choice(changed)
                    value = self.values.value(table, name, self.size)
                    connection.execute(f'UPDATE "{table.name}" SET "{name}" = %s WHERE {where}', (value,))

    def rows(self) -> dict[str, Rows]:
        """All tables as they are now."""
        found = {}
        for source in SOURCES:
            with psycopg.connect(self.dsns[source]) as connection:
                for table in self.tables.values():
                    if table.source == source:
                        found[table.name] = connection.execute(f'SELECT * FROM "{table.name}"').fetchall()
        return found

    def close(self) -> None:
        """Ends the server."""
        self.server.remove()

    def _size(self, table: SuiteTable) -> int:
        return self.size if table.key else 2 * self.size

    def _insert(self, connection: psycopg.Connection[Any], table: SuiteTable) -> None:
        row = self.values.row(table, self.size)
        places = ", ".join(["%s"] * len(row))
        connection.execute(f'INSERT INTO "{table.name}" VALUES ({places}) ON CONFLICT DO NOTHING', row)


class Suite:
    """Some of the queries as the views of one project."""

    def __init__(self, folder: Path, databases: Databases, spark: SparkSession) -> None:
        self.folder, self.databases, self.spark = folder, databases, spark
        self.found_rows: Counter[str] = Counter()
        """In how many states a query had any row: one that never has proves little."""

    def check(self, queries: list[SuiteQuery], transactions: int) -> dict[str, str]:
        """What is wrong, by query; what is right has no text."""
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.folder / "views").mkdir(parents=True)
        lines = ["name: suite", "sources:"]
        lines += [f"  {each}: {{type: postgres, dsn: '{dsn}'}}" for each, dsn in self.databases.dsns.items()]
        (self.folder / "rollview.yml").write_text("\n".join([*lines, "views: ['views/*.sql']", ""]))
        verdicts: dict[str, str] = {}
        with Project.open(self.folder, self.spark.newSession()) as project:
            left = [each for each in queries if not self._refused(project, each, verdicts)]
            if not left:
                return verdicts
            try:
                project.setup()
            except RollviewError as error:
                if len(left) == 1:
                    return verdicts | {left[0].name: f"setup: {error}"}
                for query in left:
                    verdicts |= self.check([query], transactions)
                return verdicts
            states = {project.status().last_csn: self.databases.rows()}
            for _ in range(transactions):
                self.databases.transact()
                project.capture()
                states[project.status().last_csn] = self.databases.rows()
            verdicts |= self._compare(project, left, states)
            project.remove()
            return verdicts

    def _refused(self, project: Project, query: SuiteQuery, verdicts: dict[str, str]) -> bool:
        """Whether a query is no view; otherwise it becomes one."""
        file = self.folder / "views" / f"{query.name}.sql"
        file.write_text(f"CREATE MATERIALIZED VIEW {query.name} AS\n{query.view}\n")
        try:
            project.explain_sql(file)
        except RollviewError as error:
            verdicts[query.name] = f"refused: {error}"
            file.unlink()
            return True
        return False

    def _compare(
        self, project: Project, queries: list[SuiteQuery], states: dict[int, dict[str, Rows]]
    ) -> dict[str, str]:
        verdicts = {}
        oracle = self.spark.newSession()
        shown: dict[str, dict[int, Rows]] = {}
        for query in list(queries):
            try:
                project.refresh(query.name)
                shown[query.name] = states_of(project, query.name)
            except Exception as error:
                verdicts[query.name] = f"refresh: {type(error).__name__}: {str(error)[:2000]}"
        verdicts |= dict.fromkeys(shown, "")
        for csn, tables in states.items():
            for name, rows in tables.items():
                table = self.databases.tables[name]
                oracle.createDataFrame(rows, table.for_spark).createOrReplaceTempView(name)
            for query in queries:
                if verdicts.get(query.name):
                    continue
                expected = [tuple(row) for row in oracle.sql(query.oracle).collect()]
                difference = different_rows(shown[query.name][csn], expected)
                if difference:
                    verdicts[query.name] = f"at csn {csn}: {difference}"
                elif expected:
                    self.found_rows[query.name] += 1
        return verdicts


def states_of(project: Project, view: str) -> dict[int, Rows]:
    """A view at every csn: its oldest state, and what its deltas make of it."""
    (found,) = [each for each in project.status().views if each.name == view]
    state = Counter(tuple(row) for row in project.read(view, found.oldest).collect())
    changes: dict[int, list[Any]] = defaultdict(list)
    for change in project.deltas(view).collect():
        changes[change["_csn"]].append(change)
    states = {}
    for csn in range(found.oldest, found.high_water + 1):
        for change in changes[csn]:
            state[tuple(change)[:-2]] += change["_count"]
        states[csn] = list(state.elements())
    return states


def main() -> int:
    """Batch after batch; 1 if a view is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--schema", type=Path, required=True, help="CREATE TABLE statements")
    parser.add_argument("--queries", type=Path, required=True, help="a folder of .sql files")
    parser.add_argument("--only", action="append", help="names of queries; may be repeated")
    parser.add_argument("--views", type=int, default=8, help="views per project")
    parser.add_argument("--transactions", type=int, default=6)
    parser.add_argument(
        "--rows", type=int, default=20, help="of a table with a key; others have twice as many"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--relax", type=float, default=0.0, help="share of the conditions on constants to leave out"
    )
    parser.add_argument("--folder", type=Path, default=Path("benchmarks/data/suite"), help="for the project")
    arguments = parser.parse_args()
    tables = tables_of(arguments.schema.read_text("utf-8"))
    queries = list(queries_in(arguments.queries, tables))
    queries = [each for each in queries if not arguments.only or each.name in arguments.only]
    if arguments.relax:
        chance = random.Random(arguments.seed)
        queries = [relaxed(each, chance, arguments.relax) for each in queries]
    values = Values(random.Random(arguments.seed), queries)
    start_quickly()
    spark = open_session("suite", {"master": "local[2]", "spark.driver.memory": "6g"})
    databases = Databases(tables, values, arguments.rows)
    suite = Suite(arguments.folder.absolute(), databases, spark)
    verdicts: dict[str, str] = {}
    try:
        for start in range(0, len(queries), arguments.views):
            begun = time.perf_counter()
            batch = queries[start : start + arguments.views]
            found = suite.check(batch, arguments.transactions)
            verdicts |= found
            for name, verdict in found.items():
                rows = f"right, with rows in {suite.found_rows[name]} states"
                print(f"{name}: {verdict or rows}", flush=True)
            print(
                f"  {len(batch)} queries in {time.perf_counter() - begun:.0f} s", file=sys.stderr, flush=True
            )
    finally:
        databases.close()
        spark.stop()
    kinds = Counter((verdict or "right").split(" ")[0].rstrip(":") for verdict in verdicts.values())
    print(", ".join(f"{number} {kind}" for kind, number in kinds.most_common()))
    return 0 if set(kinds) <= {"right", "refused"} else 1


if __name__ == "__main__":
    sys.exit(main())
