"""Worlds of a suite: what its scripts create, the rows that it gives, its queries, and a random history.

Spark itself says what a statement gives: rows that are inserted, and what a view without tables holds. Names
and types come from the statements; other dialects are translated first. A statement that is neither (SET,
EXPLAIN, DROP of an index) is passed over.
"""

from __future__ import annotations

import logging
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any

import pyarrow as pa
import sqlglot
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from sqlglot import Token, TokenType, exp
from suite_readers import Script, without_comments

from rollview.errors import UnsupportedError
from rollview.rows import arrow_type
from rollview.sql.dialect import DIALECT

Row = tuple[Any, ...]
MOST_ROWS = 24
"""So many of the rows that a suite gives a table begin in it."""
COMMITS = 8
"""About so many transactions a world has; every table has at least two."""
NULLS = 0.1
_CREATE = re.compile(
    r"create\s+(?:or\s+replace\s+)?(?:(?:global\s+)?temp(?:orary)?\s+|local\s+|materialized\s+|recursive\s+)*"
    r"(view|table)\s+(?:if\s+not\s+exists\s+)?([\w.`\"-]+)\s*",
    re.I,
)
_INSERT = re.compile(
    r"insert\s+into\s+(?:table\s+)?([\w.`\"-]+)\s*(\((?!\s*(?:select|values|with)\b)[^()]*\))?\s*", re.I
)
_DROP = re.compile(r"drop\s+(?:materialized\s+)?(?:view|table)\s+(?:if\s+exists\s+)?([\w.`\"-]+)", re.I)
_QUERY = re.compile(r"\(*\s*(select|with|values|from|table)\b", re.I)

for _name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "sqlglot"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)


@dataclass
class SuiteTable:
    """A table: Spark's types of its columns, its key, and the rows that the suite gives."""

    name: str
    types: dict[str, str]
    key: tuple[str, ...] = ()
    rows: list[Row] = field(default_factory=list)

    @property
    def is_lifted(self) -> bool:
        """Whether it was made of the constants of one query."""
        return self.name.startswith("given_")

    @property
    def schema(self) -> pa.Schema:
        """The same as Arrow says it."""
        return pa.schema([pa.field(name, arrow_type(kind)) for name, kind in self.types.items()])

    def arrow(self, rows: list[Row]) -> pa.Table:
        """Rows of this table."""
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(self.types)
        arrays = [pa.array(each, one.type) for each, one in zip(columns, self.schema, strict=True)]
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def frame(self, spark: SparkSession, rows: list[Row]) -> DataFrame:
        """The same in Spark."""
        # Arrow does not say which of Spark's two kinds of times it means.
        columns = ", ".join(f"`{name}` {kind}" for name, kind in self.types.items())
        return spark.createDataFrame(self.arrow(rows), columns)


@dataclass(frozen=True)
class SuiteQuery:
    """A query in Spark SQL; `shown_as` is the name by which others of the world read it, if they may."""

    name: str
    text: str
    shown_as: str = ""


@dataclass
class World:
    """Tables and views as they are for a while, and the queries that are asked meanwhile."""

    name: str
    tables: dict[str, SuiteTable] = field(default_factory=dict)
    views: dict[str, SuiteQuery] = field(default_factory=dict)
    """By the names that queries read them by."""
    queries: list[SuiteQuery] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    """All queries that are asked of it, whether they are tried or not: their constants become values."""

    def reads(self, query: SuiteQuery) -> set[str]:
        """Its tables, also those behind views."""
        names = {
            name for each in (*self.needs(query), query) for name in relations_in(each.text, self.tables)
        }
        return {name for _, name, _ in names}

    def needs(self, query: SuiteQuery) -> list[SuiteQuery]:
        """The views that it reads, those that they read first."""
        found: list[SuiteQuery] = []
        for _, name, _ in relations_in(query.text, self.views):
            view = self.views[name]
            if view is not query:
                found += [each for each in (*self.needs(view), view) if each not in found]
        return found

    def without(self, name: str, gone: str) -> World:
        """The world that follows when a table or view is dropped, and with it the views that read it."""
        tables = {
            each.name: SuiteTable(each.name, each.types, each.key, list(each.rows))
            for each in self.tables.values()
            if each.name != gone
        }
        left: dict[str, SuiteQuery] = {}
        for shown_as, view in self.views.items():
            known = {*self.tables, *self.views}
            read = {name for _, name, _ in relations_in(view.text, known)}
            if shown_as != gone and read <= {*tables, *left}:
                left[shown_as] = view
        return World(name, tables, left)


def relations_in(text: str, names: Iterable[str]) -> list[tuple[tuple[int, int], str, bool]]:
    """Where a query names one of these behind FROM: place, name, and whether it has an alias."""
    names = {name.lower() for name in names}
    try:
        tree = sqlglot.parse_one(text, dialect=DIALECT)
        tables = [each for each in tree.find_all(exp.Table) if not each.db and "start" in each.this.meta]
        return [
            ((each.this.meta["start"], each.this.meta["end"] + 1), each.name.lower(), bool(each.alias))
            for each in tables
            if each.name.lower() in names and each.name.lower() not in _ctes_seen_by(each)
        ]
    except Exception:  # The library does not read all that Spark does.
        pattern = r"(?:\bfrom|\bjoin|,|\()\s+(?:lateral\s+)?`?(\w+)`?(?!\s*[.(])(?=\s+(?:as\s+)?(\w*))?"
        return [
            ((match.start(1), match.end(1)), match[1].lower(), False)
            for match in re.finditer(pattern, text, re.I)
            if match[1].lower() in names
        ]


def _ctes_seen_by(table: exp.Expr) -> set[str]:
    """Names of common table expressions that hide tables from this place."""
    seen: set[str] = set()
    inside: exp.Expr = table
    while (above := inside.parent) is not None:
        clause = above.args.get("with_")
        if clause is not None and inside is not clause:
            seen |= {each.alias.lower() for each in clause.expressions}
        if isinstance(above, exp.With):
            own = [each.alias.lower() for each in above.expressions]
            place = next(n for n, each in enumerate(above.expressions) if each is inside)
            seen |= set(own[: place + 1 if above.args.get("recursive") else place])
        inside = above
    return seen


class Reader:
    """Makes worlds of scripts, and counts why a statement is in none."""

    def __init__(self, spark: SparkSession) -> None:
        self.session = spark.newSession()
        self._pending: dict[str, list[tuple[list[str], str]]] = {}
        """Rows of INSERT statements that Spark was not asked for yet, by table."""
        self._shown: set[str] = set()
        self.passed: Counter[str] = Counter()
        self.reasons: dict[str, str] = {}
        """Why a query that was tried is in no world."""
        self._seen: set[tuple[str, str]] = set()

    def worlds(self, script: Script) -> Iterator[World]:
        """A world ends where a table or view is dropped or made again."""
        session = self.session
        for name in self._shown:
            session.catalog.dropTempView(name)
        self._shown.clear()
        self._pending.clear()
        world, number = World(script.name), 1
        for statement in script.statements:
            bare = without_comments(statement.text)
            match = _DROP.match(bare) or _CREATE.match(bare)
            name = _plain(match[match.lastindex or 0]) if match else ""
            if name in world.tables or name in world.views:
                self._flush(session, world)
                if world.queries:
                    yield world
                    number += 1
                world = world.without(f"{script.name}_w{number}", name)
                session.catalog.dropTempView(name)
            self._read(session, world, script.dialect, statement.name, bare)
        self._flush(session, world)
        if world.queries:
            yield world

    def _read(self, session: SparkSession, world: World, dialect: str, name: str, bare: str) -> None:
        try:
            if match := _CREATE.match(bare):
                self._create(session, world, dialect, name, bare, match)
            elif match := _INSERT.match(bare):
                self._insert(session, world, dialect, bare, match)
            elif _QUERY.match(bare):
                self._query(session, world, dialect, name, bare)
            else:
                self.passed[" ".join(bare.split()[:2]).lower()[:30]] += 1
        except Exception as error:  # One statement does not end a campaign.
            self.passed[f"not read: {_why(error)}"] += 1

    def _create(
        self, session: SparkSession, world: World, dialect: str, name: str, bare: str, match: re.Match[str]
    ) -> None:
        called = _plain(match[2])
        text = self._in_spark(bare, dialect)
        if (made := _CREATE.match(text)) is None:
            raise _Unusable("not a statement of Spark")
        columns, query = _columns_and_query(text[made.end() :], match[1].lower())
        if match[1].lower() == "table" and query is None:
            self._define(session, world, called, bare, dialect)
            return
        if query is None:
            raise _Unusable("a view without a query")
        if columns:
            query = f"SELECT * FROM (\n{query}\n) AS given_{len(world.queries)}({columns})"
        self._flush(session, world)
        reads = relations_in(query, {*world.tables, *world.views})
        if match[1].lower() == "view" and reads:
            self._query(session, world, "spark", name, query, called)
            return
        if re.search(r"\bvalues\b", query, re.I) or match[1].lower() == "table":
            frame = session.sql(query)
            kinds = {each.name.lower(): each.dataType.simpleString() for each in frame.schema.fields}
            table = self._table(called, kinds)
            kept = frame.toDF(*kinds).select(*table.types) if len(kinds) == len(frame.columns) else frame
            rows = kept.limit(MOST_ROWS).toArrow().to_pylist()
            table.rows = [tuple(row[each] for each in table.types) for row in rows]
            self._register(session, world, table)
        else:
            self._query(session, world, "spark", name, query, called)

    def _define(self, session: SparkSession, world: World, called: str, bare: str, dialect: str) -> None:
        tree = sqlglot.parse_one(bare, dialect=dialect)
        kinds: dict[str, str] = {}
        key = [each.name.lower() for found in tree.find_all(exp.PrimaryKey) for each in found.expressions]
        for column in tree.find_all(exp.ColumnDef):
            if not isinstance(column.parent, exp.Schema) or column.args.get("kind") is None:
                continue
            kinds[column.name.lower()] = _spark_type(column.args["kind"])
            if any(isinstance(each.kind, exp.PrimaryKeyColumnConstraint) for each in column.constraints):
                key.append(column.name.lower())
        table = self._table(called, kinds)
        table.key = tuple(key) if set(key) <= set(table.types) else ()
        self._register(session, world, table)

    def _table(self, called: str, kinds: dict[str, str]) -> SuiteTable:
        """Without columns that a lake cannot hold."""
        fitting: dict[str, str] = {}
        for name, kind in kinds.items():
            with suppress(UnsupportedError):
                if kind != "void":
                    arrow_type(kind)
                    fitting[name] = kind
        self.passed["column of a type that is not supported"] += len(kinds) - len(fitting)
        if not fitting:
            raise _Unusable("a table without columns that are supported")
        return SuiteTable(called, fitting)

    def _register(self, session: SparkSession, world: World, table: SuiteTable) -> None:
        world.tables[table.name] = table
        self._show(session, table)

    def _show(self, session: SparkSession, table: SuiteTable) -> None:
        table.frame(session, table.rows).createOrReplaceTempView(table.name)
        self._shown.add(table.name)

    def _insert(
        self, session: SparkSession, world: World, dialect: str, bare: str, match: re.Match[str]
    ) -> None:
        table = world.tables.get(_plain(match[1]))
        if table is None:
            raise _Unusable("INSERT into what is no table")
        names = [_plain(each) for each in match[2][1:-1].split(",")] if match[2] else list(table.types)
        query = self._in_spark(bare[match.end() :], dialect)
        values = re.match(r"values\b(?!.*\bselect\b)", query, re.I | re.S)
        if values is None:
            self._flush(session, world)
            self._take(session, table, names, query)
            self._show(session, table)
        else:
            self._pending.setdefault(table.name, []).append((names, query[values.end() :]))

    def _flush(self, session: SparkSession, world: World) -> None:
        """Inserts what waits, the rows of several statements by one question."""
        for name, waiting in self._pending.items():
            table = world.tables.get(name)
            if table is None:
                continue
            together: dict[tuple[str, ...], list[str]] = defaultdict(list)
            for names, values in waiting:
                together[tuple(names)].append(values)
            for names, texts in together.items():
                try:
                    self._take(session, table, list(names), f"VALUES {', '.join(texts)}")
                except (PySparkException, _Unusable):
                    for text in texts:
                        with suppress(PySparkException, _Unusable):
                            self._take(session, table, list(names), f"VALUES {text}")
            self._show(session, table)
        self._pending.clear()

    def _take(self, session: SparkSession, table: SuiteTable, names: list[str], query: str) -> None:
        if len(table.rows) >= MOST_ROWS:
            return
        frame = session.sql(query)
        if len(frame.columns) != len(names):
            raise _Unusable("INSERT of another number of columns")
        frame = frame.toDF(*names)
        kept = [each for each in names if each in table.types]
        frame = frame.selectExpr(*(f"try_cast(`{each}` AS {table.types[each]}) AS `{each}`" for each in kept))
        for row in frame.limit(MOST_ROWS - len(table.rows)).toArrow().to_pylist():
            new = tuple(row.get(each) for each in table.types)
            if not table.key or _key(table, new) not in {_key(table, each) for each in table.rows}:
                table.rows.append(new)

    def _query(
        self, session: SparkSession, world: World, dialect: str, name: str, bare: str, shown_as: str = ""
    ) -> None:
        try:
            text = self._in_spark(bare, dialect)
        except Exception as error:
            self.reasons[name] = _why(error)
            return
        world.texts.append(text)
        query = SuiteQuery(name, text, shown_as)
        if shown_as:
            accepted = self.accepted(world, query)
            if accepted is None:
                return
            session.sql(accepted.text).createOrReplaceTempView(shown_as)
            self._shown.add(shown_as)
            query = world.views[shown_as] = accepted
        world.queries.append(query)

    def accepted(self, world: World, query: SuiteQuery) -> SuiteQuery | None:
        """The query if Spark takes it, with names for its columns; to be asked while the world is read."""
        text = query.text
        try:
            frame = self.session.sql(text)
            if not relations_in(text, {*world.tables, *world.views}):
                text = self._lifted(world, query.name, text)
                frame = self.session.sql(text)
            if len({name.lower() for name in frame.columns}) < len(frame.columns):
                # A view cannot have two columns of one name.
                names = ", ".join(f"c{place}" for place in range(len(frame.columns)))
                text = f"SELECT * FROM (\n{text}\n) AS named({names})"
                self.session.sql(text)
        except Exception as error:
            self.reasons[query.name] = _why(error)
            return None
        kinds = "; ".join(
            f"{each} {world.tables[each].types}"
            for each in sorted({place[1] for place in relations_in(text, world.tables)})
        )
        same = (" ".join(text.split()), kinds)
        if same in self._seen and not query.shown_as:
            self.reasons[query.name] = "the same query over the same tables as before"
            return None
        self._seen.add(same)
        return SuiteQuery(query.name, text, query.shown_as)

    def _lifted(self, world: World, called: str, text: str) -> str:
        """A query of constants alone over a table that has them, where Spark takes columns instead."""
        if re.search(r"\bfrom\b", text, re.I):
            raise _Unusable("it reads no table")
        name = f"given_{called}"
        for kinds in ((TokenType.STRING, TokenType.NUMBER), (TokenType.STRING,), (TokenType.NUMBER,)):
            constants: list[tuple[str, Any]] = []
            written = text
            for token in reversed(_constants(text, kinds)):
                constants.append(_typed(token.text, token.token_type))
                written = f"{written[: token.start]}k{len(constants)}{written[token.end + 1 :]}"
            if not constants:
                continue
            table = SuiteTable(name, {f"k{place}": kind for place, (kind, _) in enumerate(constants, 1)})
            table.rows = [tuple(value for _, value in constants)]
            self._show(self.session, table)
            with suppress(PySparkException):
                written = f"{written}\nFROM {name}"
                self.session.sql(written)
                world.tables[name] = table
                return written
        raise _Unusable("it reads no table")

    def _in_spark(self, bare: str, dialect: str) -> str:
        bare = bare.rstrip().rstrip(";")
        if dialect == "spark":
            return bare
        translated = sqlglot.transpile(bare, read=dialect, write="spark")
        if len(translated) != 1:
            raise _Unusable("several statements in one")
        return translated[0]


def _constants(text: str, kinds: tuple[TokenType, ...]) -> list[Token]:
    """Tokens that may be columns as well: no part of a type, of an interval or of a typed constant."""
    tokens = sqlglot.tokenize(text, dialect=DIALECT)
    found = []
    for place, token in enumerate(tokens):
        before = [each.text.lower() for each in tokens[max(0, place - 4) : place]]
        is_typed = bool(before) and before[-1] in ("date", "timestamp", "interval", "x", "timestamp_ntz")
        in_type = any(each in ("decimal", "numeric", "dec", "char", "varchar", "limit") for each in before)
        if token.token_type in kinds and not is_typed and not in_type:
            found.append(token)
    return found


def _typed(text: str, kind: TokenType) -> tuple[str, Any]:
    """The type that Spark gives a constant, and its value."""
    if kind == TokenType.STRING:
        return "string", text
    if text.isdigit():
        return ("int", int(text)) if int(text) < 2**31 else ("bigint", int(text))
    if re.fullmatch(r"\d*\.\d*", text):
        digits, scale = len(text.replace(".", "")), len(text.partition(".")[2])
        return f"decimal({digits},{scale})", Decimal(text)
    return "double", float(text)


class _Unusable(Exception):
    """A statement that no table or query can be made of."""


def _why(error: Exception) -> str:
    if isinstance(error, PySparkException):
        condition = error.getCondition() or ""
        return f"not Spark SQL: {condition.split('.')[0] or type(error).__name__}"
    if isinstance(error, _Unusable):
        return str(error)
    is_parser = isinstance(error, sqlglot.errors.SqlglotError)
    return "not to be translated into Spark SQL" if is_parser else f"{type(error).__name__}: {error}"


def _plain(name: str) -> str:
    return re.sub(r"[`\"\s]", "", name).rpartition(".")[2].lower()


def _key(table: SuiteTable, row: Row) -> Row:
    names = list(table.types)
    return tuple(row[names.index(each)] for each in table.key)


def _spark_type(kind: exp.DataType) -> str:
    """Spark's name for a type; texts of any length are texts."""
    texts = (exp.DataType.Type.CHAR, exp.DataType.Type.VARCHAR, exp.DataType.Type.TEXT)
    name = "string" if kind.this in texts else kind.sql("spark").lower()
    name = {
        "decimal": "decimal(38,18)",
        "integer": "int",
        "long": "bigint",
        "timestamp_ltz": "timestamp",
    }.get(name, name)
    return (
        re.sub(r"\s+", "", name)
        if name.startswith("decimal")
        else re.sub(r":\s+", ":", name).replace(", ", ",")
    )


def _columns_and_query(rest: str, kind: str) -> tuple[str, str | None]:
    """What stands behind the name: a list of columns, and the query behind AS."""
    columns = ""
    if rest.startswith("("):
        depth = 0
        for place, character in enumerate(rest):
            depth += (character == "(") - (character == ")")
            if not depth:
                columns, rest = rest[1:place], rest[place + 1 :].lstrip()
                break
    match = re.search(r"\bas\s+(?=\(*\s*(?:select|with|values|from|table)\b)", rest, re.I)
    if match is None:
        return columns, None
    if kind == "table" and columns:
        columns = ""
    return columns, rest[match.end() :]


@lru_cache(maxsize=16)
def _compared_with(texts: tuple[str, ...]) -> dict[str, list[str]]:
    """The constants that texts compare columns with, by the columns' names."""
    asked: dict[str, list[str]] = defaultdict(list)
    for text in texts:
        with suppress(Exception):
            tree = sqlglot.parse_one(text, dialect=DIALECT)
            for test in tree.find_all(exp.EQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NEQ, exp.In, exp.Between):
                for column in test.find_all(exp.Column):
                    asked[column.name.lower()] += [each.name for each in test.find_all(exp.Literal)]
    return asked


class Values:
    """Random values for columns: of the suite's own rows, those that queries compare with, and others."""

    def __init__(self, world: World) -> None:
        self.chance = random.Random(0)
        self.pools: dict[str, list[Any]] = defaultdict(list)
        """By type."""
        self.own: dict[tuple[str, str], list[Any]] = {}
        self.asked = _compared_with(tuple(world.texts))
        for table in world.tables.values():
            for place, (name, kind) in enumerate(table.types.items()):
                found = [row[place] for row in table.rows if row[place] is not None]
                self.own[table.name, name] = found
                if not table.is_lifted:
                    self.pools[kind] += found

    def row(self, table: SuiteTable) -> Row:
        """A new row."""
        return tuple(self.value(table, name) for name in table.types)

    def value(self, table: SuiteTable, name: str) -> Any:
        """A value of a column."""
        kind, chance = table.types[name], self.chance
        if name not in table.key and chance.random() < NULLS:
            return None
        own, pool, asked = self.own[table.name, name], self.pools[kind], self.asked[name]
        pick = chance.random()
        if asked and pick < 0.3:
            with suppress(ArithmeticError, ValueError):
                return _of_type(chance.choice(asked), kind)
        if own and pick < 0.8:
            return chance.choice(own)
        if pool and pick < 0.9 and kind != "string":
            return chance.choice(pool)
        if own and kind in ("string", "binary"):
            # A text that is no number where all are numbers would be an error of the query.
            return chance.choice(own)
        return self._usual(kind, name)

    def _usual(self, kind: str, name: str) -> Any:
        chance = self.chance
        if kind in ("tinyint", "smallint", "int", "bigint"):
            return chance.randint(0, 3 if name.endswith(("w_id", "d_id")) else 12)
        if kind.startswith("decimal"):
            whole, scale = map(int, re.findall(r"\d+", kind))
            most = min(10 ** min(whole, 9) - 1, 100 * 10**scale)
            return Decimal(chance.randint(-most // 10, most)).scaleb(-scale)
        if kind in ("float", "double"):
            return chance.randint(-20, 100) / 4
        if kind == "boolean":
            return chance.random() < 0.5
        if kind == "date":
            return date(2020, 1, 1) + timedelta(days=chance.randint(0, 60))
        if kind.startswith("timestamp"):
            zone = UTC if kind == "timestamp" else None
            return datetime(2020, 1, 1, tzinfo=zone) + timedelta(minutes=chance.randint(0, 5000))
        if kind == "string":
            return chance.choice("abcd")
        if kind == "binary":
            return chance.choice((b"a", b"b", b""))
        if kind.startswith("array<"):
            return [self._usual(kind[6:-1], name) for _ in range(chance.randint(0, 3))]
        return None


def _of_type(text: str, kind: str) -> Any:
    if kind == "string":
        return text
    if kind in ("tinyint", "smallint", "int", "bigint"):
        bits = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}[kind]
        if abs(int(text)) >= 2**bits:
            raise ValueError
        return int(text)
    if kind.startswith("decimal"):
        whole, scale = map(int, re.findall(r"\d+", kind))
        number = round(Decimal(text), scale)
        if abs(number) >= 10 ** (whole - scale):
            raise ValueError
        return number
    if kind in ("float", "double"):
        return float(text)
    if kind == "date":
        return date.fromisoformat(text[:10])
    if kind.startswith("timestamp"):
        return datetime.fromisoformat(text).replace(tzinfo=UTC if kind == "timestamp" else None)
    raise ValueError


@dataclass(frozen=True)
class Commit:
    """A transaction: a table, and its rows from then on."""

    table: str
    rows: list[Row]


class History:
    """How a world begins, and what happens to it.

    For the same seed a table has the same history, whatever other tables are looked at.
    """

    def __init__(self, world: World, seed: int) -> None:
        self.values = Values(world)
        self.first: dict[str, list[Row]] = {}
        written = [each for each in world.tables.values() if not each.is_lifted]
        turns = max(2, -(-COMMITS // max(1, len(written))))
        timed: list[tuple[float, Commit]] = []
        for table in world.tables.values():
            self.chance = self.values.chance = random.Random(f"{seed} {world.name} {table.name}")
            now = self.first[table.name] = self._first(table)
            for turn in range(COMMITS // 2 if table.is_lifted else turns):
                rows = self._changed(table, list(now))
                if Counter(map(repr, rows)) != Counter(map(repr, now)):
                    timed.append((turn + self.chance.random(), Commit(table.name, rows)))
                    now = rows
        self.commits = [commit for _, commit in sorted(timed, key=lambda each: each[0])]

    def _first(self, table: SuiteTable) -> list[Row]:
        rows = list(table.rows[:MOST_ROWS])
        for _ in range(0 if rows else 12):
            self._insert(table, rows)
        return rows

    def _changed(self, table: SuiteTable, rows: list[Row]) -> list[Row]:
        chance = self.chance
        if rows and chance.random() < 0.05:
            rows.clear()
        for _ in range(chance.randint(0, 2)):
            if rows:
                rows.pop(chance.randrange(len(rows)))
        changed = [place for place, name in enumerate(table.types) if name not in table.key]
        for _ in range(chance.randint(0, 2) if changed else 0):
            if rows:
                at, place = chance.randrange(len(rows)), chance.choice(changed)
                value = self.values.value(table, list(table.types)[place])
                rows[at] = (*rows[at][:place], value, *rows[at][place + 1 :])
        for _ in range(chance.randint(1, 3)):
            if rows and not table.key and chance.random() < 0.2:
                rows.append(chance.choice(rows))
            else:
                self._insert(table, rows)
        return rows

    def _insert(self, table: SuiteTable, rows: list[Row]) -> None:
        new = self.values.row(table)
        if not table.key or _key(table, new) not in {_key(table, each) for each in rows}:
            rows.append(new)
