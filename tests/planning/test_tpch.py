"""TPC-H texts: what we make of them, computed in memory and by DuckDB, equals DuckDB on the text itself.

`as_sql` writes a view's normal form as one SQL query, so that DuckDB judges the translation alone; `evaluate`
then computes the same in memory. Data is small and random, with dates and codes that the conditions hit.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pytest
import sqlglot

from rollview.algebra.expression import Column, to_sql
from rollview.algebra.node import Block, Node
from rollview.algebra.relation import Table
from rollview.algebra.view import View
from rollview.lab.memory.evaluate import evaluate
from rollview.operators.aggregate import Aggregate
from rollview.planning import parse_view, referenced_names

COLUMNS = {
    "lineitem": "l_orderkey int, l_suppkey int, l_quantity decimal(15,2), l_extendedprice decimal(15,2), "
    "l_discount decimal(15,2), l_tax decimal(15,2), l_returnflag varchar, l_linestatus varchar, "
    "l_shipdate date, l_commitdate date, l_receiptdate date, l_shipmode varchar",
    "orders": "o_orderkey int, o_custkey int, o_orderdate date, o_orderpriority varchar, o_shippriority int",
    "customer": "c_custkey int, c_name varchar, c_nationkey int, c_mktsegment varchar",
    "supplier": "s_suppkey int, s_nationkey int",
    "nation": "n_nationkey int, n_name varchar, n_regionkey int",
    "region": "r_regionkey int, r_name varchar",
}
FIELDS = {
    name: [tuple(field.split(" ", 1)) for field in re.split(r", (?=\w)", fields)]
    for name, fields in COLUMNS.items()
}
TABLES = [Table("tpch", name, tuple(field for field, _ in fields)) for name, fields in FIELDS.items()]
SIZES = {"lineitem": 60, "orders": 8, "customer": 6, "supplier": 4, "nation": 4, "region": 2}
TEXT = (Path(__file__).parent / "fixtures" / "tpch.sql").read_text("utf-8")
QUERIES = dict(part.split("\n", 1) for part in TEXT.split("-- query: ")[1:])
WORDS = {
    "l_returnflag": "AR",
    "l_linestatus": "FO",
    "l_shipmode": ("MAIL", "SHIP", "AIR"),
    "o_orderpriority": ("1-URGENT", "2-HIGH", "3-MEDIUM"),
    "c_mktsegment": ("BUILDING", "MACHINERY"),
    "r_name": ("ASIA", "EUROPE"),
}


def value(random: Random, name: str, kind: str, row: int) -> Any:
    """Keys are the rows' numbers; what refers to one stays within a few."""
    if name.removeprefix(name[:2]) == {"o": "orderkey", "c": "custkey", "s": "suppkey"}.get(name[0]):
        return row
    if name in ("n_nationkey", "r_regionkey"):
        return row
    if random.random() < 0.03:
        return None
    if kind == "int":
        return random.randint(0, 1 if name == "n_regionkey" else 7 if name == "l_orderkey" else 3)
    if kind == "date":
        return date(1993, 9, 25) + timedelta(
            days=random.choice((random.randint(0, 110), random.randint(0, 650)))
        )
    if kind.startswith("decimal"):
        top = 900_000 if name == "l_extendedprice" else 5000 if name == "l_quantity" else 10
        return Decimal(random.randint(0, top)).scaleb(-2)
    return random.choice(WORDS[name]) if name in WORDS else f"{name}{row % 3}"


def rows(seed: int) -> dict[str, list[tuple[Any, ...]]]:
    random = Random(seed)
    return {
        name: [tuple(value(random, *field, row) for field in FIELDS[name]) for row in range(size)]
        for name, size in SIZES.items()
    }


def as_sql(root: Node) -> str:
    """The normal form as a Spark SQL query."""
    if isinstance(root, Block):
        relations = ", ".join(
            f"(SELECT {_renamed(relation)} FROM {relation.table.qualified})" for relation in root.relations
        )
        conditions = [to_sql(condition) for local in (*root.local, root.residual) for condition in local]
        conditions += [f"`{edge.left_column}` = `{edge.right_column}`" for edge in root.edges]
        outputs = ", ".join(f"{to_sql(expression)} AS `{name}`" for name, expression in root.projection)
        return f"SELECT {outputs or '1'} FROM {relations} WHERE {' AND '.join(conditions) or 'TRUE'}"
    assert isinstance(root, Aggregate)
    measures = [f"coalesce(sum({to_sql(measure)}), 0) AS `{name}`" for name, measure in root.measures]
    sums = ", ".join([*(to_sql(Column(key)) for key in root.keys), *measures])
    groups = f" GROUP BY {', '.join(to_sql(Column(key)) for key in root.keys)}" if root.keys else ""
    outputs = ", ".join(f"{to_sql(expression)} AS `{name}`" for name, expression in root.output)
    return f"SELECT {outputs} FROM (SELECT {sums} FROM ({as_sql(root.input)}){groups})"


def _renamed(relation: Any) -> str:
    names = zip(relation.table.columns, relation.columns, strict=True)
    return ", ".join(f"`{own}` AS `{inside}`" for own, inside in names)


@pytest.fixture
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect()
    connection.execute("CREATE SCHEMA tpch")
    for name, fields in COLUMNS.items():
        connection.execute(f"CREATE TABLE tpch.{name} ({fields})")
    yield connection
    connection.close()


def load(duck: duckdb.DuckDBPyConnection, data: dict[str, list[tuple[Any, ...]]]) -> None:
    for name, lines in data.items():
        duck.execute(f"DELETE FROM tpch.{name}")
        marks = f"({', '.join('?' * len(lines[0]))})"
        values = [item for line in lines for item in line]
        duck.execute(f"INSERT INTO tpch.{name} VALUES {', '.join([marks] * len(lines))}", values)


def comparable(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Averages are doubles in DuckDB and decimals here; equal by value is what counts."""
    return tuple(round(float(item), 6) if isinstance(item, float | Decimal) else item for item in row)


def bag(lines: list[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    return Counter(map(comparable, lines))


@pytest.mark.parametrize("name", QUERIES)
def test_oracle_tpch(duck: duckdb.DuckDBPyConnection, name: str) -> None:
    view: View = parse_view(QUERIES[name], TABLES)
    again = sqlglot.transpile(as_sql(view.root), read="spark", write="duckdb")[0]
    filled = 0
    for seed in range(12):
        data = rows(seed)
        load(duck, data)
        expected = bag(duck.execute(QUERIES[name]).fetchall())
        assert bag(duck.execute(again).fetchall()) == expected, again
        state = {f"tpch.{table}": Counter(lines) for table, lines in data.items()}
        found = evaluate(view.root, state)
        assert bag([row for row, count in found.counts.items() for _ in range(count)]) == expected
        filled += any(item is not None for row in expected for item in row[-1:])
    assert filled >= 3, "the data hardly ever matches"


@pytest.mark.parametrize("name", QUERIES)
def test_tpch_is_joined_along_edges(name: str) -> None:
    """Every equality between relations is an edge, and each relation is reached: no product is left."""
    (block,) = parse_view(QUERIES[name], TABLES).blocks
    reached = {0}
    for _ in block.relations:
        reached |= {edge.right for edge in block.edges if edge.left in reached}
        reached |= {edge.left for edge in block.edges if edge.right in reached}
    assert reached == set(range(len(block.relations)))
    assert block.residual == ()
    assert {f"tpch.{table.name}" for table in TABLES} >= set(referenced_names(QUERIES[name]))
