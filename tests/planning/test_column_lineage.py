"""Column lineage: what each output of a view is made of; an oracle that changes all other columns."""

from __future__ import annotations

import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pytest
import sqlglot

from rollview.algebra.relation import Table
from rollview.planning import ColumnLineage, column_lineage, parse_view

sys.path.insert(0, str(Path(__file__).parents[1] / "service"))

from shop import DEEP_VIEWS, MORE_VIEWS, SCHEMAS, VIEWS, frozen

TABLES = [
    Table(source, name, tuple(column.split()[0] for column in columns.split(", ")), (columns.split()[0],))
    for source, tables in SCHEMAS.items()
    for name, columns in tables.items()
]
OVER_VIEWS = [
    Table("", "sales_by_state", ("state", "n", "total", "mean"), own_log=True),
    Table("", "sold", ("sale_id", "state", "kind", "amount"), own_log=True),
]


def _lineage(sql: str, *more: Table) -> ColumnLineage:
    view = parse_view(sql, [*TABLES, *OVER_VIEWS, *more], "v")
    found = column_lineage(view.exact_sql, view.named_tables, view.root.output_columns)
    assert found is not None
    return found


def _shown(uses: Any) -> set[str]:
    return {f"{origin.table}.{origin.column} {use.how}" for origin, known in uses.items() for use in known}


CASES: dict[str, tuple[str, dict[str, set[str]], set[str]]] = {
    "join and aggregate": (
        VIEWS["sales_by_state"],
        {
            "state": {"crm.customer.state IDENTITY"},
            "n": set(),
            "total": {"shop.sales.amount AGGREGATION"},
            "mean": {"shop.sales.amount AGGREGATION"},
        },
        {"shop.sales.cust_id JOIN", "crm.customer.cust_id JOIN", "crm.customer.state GROUP_BY"},
    ),
    "union": (
        MORE_VIEWS["everything"],
        {
            "id": {"crm.customer.cust_id IDENTITY", "shop.product.product_id IDENTITY"},
            "label": {"crm.customer.segment IDENTITY", "shop.product.kind IDENTITY"},
        },
        set(),
    ),
    "a view over views": (
        MORE_VIEWS["kinds_in_big_states"],
        {"kind": {"sold.kind IDENTITY"}, "total": {"sales_by_state.total IDENTITY"}},
        {"sold.state JOIN", "sales_by_state.state JOIN"},
    ),
    "through a common table expression": (
        "WITH t AS (SELECT cust_id, sum(amount) AS total FROM shop.sales GROUP BY cust_id)"
        " SELECT upper(c.state) AS st, t.total * 2 AS d FROM t JOIN crm.customer c USING (cust_id)"
        " WHERE t.total > 5",
        {"st": {"crm.customer.state TRANSFORMATION"}, "d": {"shop.sales.amount AGGREGATION"}},
        {
            *("shop.sales.cust_id GROUP_BY", "shop.sales.cust_id JOIN"),
            *("crm.customer.cust_id JOIN", "shop.sales.amount FILTER"),
        },
    ),
    "a condition decides which value is taken": (
        "SELECT shop.sales.amount, CASE WHEN sales.cust_id > 3 THEN sale_id ELSE 0 END AS z FROM shop.sales",
        {
            "amount": {"shop.sales.amount IDENTITY"},
            "z": {"shop.sales.sale_id TRANSFORMATION", "shop.sales.cust_id CONDITIONAL"},
        },
        set(),
    ),
    "a window": (
        "SELECT sum(amount) OVER (PARTITION BY cust_id) AS s FROM shop.sales",
        {"s": {"shop.sales.amount AGGREGATION", "shop.sales.cust_id WINDOW"}},
        set(),
    ),
    "a subquery as a condition": (
        "SELECT sale_id FROM shop.sales"
        " WHERE cust_id IN (SELECT cust_id FROM crm.customer WHERE state = 'a')",
        {"sale_id": {"shop.sales.sale_id IDENTITY"}},
        {"shop.sales.cust_id FILTER", "crm.customer.cust_id FILTER", "crm.customer.state FILTER"},
    ),
    "a subquery as a value": (
        "SELECT (SELECT max(state) FROM crm.customer c WHERE c.cust_id = s.cust_id) AS st FROM shop.sales s",
        {"st": {"crm.customer.state AGGREGATION"}},
        {"shop.sales.cust_id FILTER", "crm.customer.cust_id FILTER"},
    ),
    "a difference": (
        "SELECT cust_id FROM crm.customer EXCEPT SELECT cust_id FROM shop.sales",
        {"cust_id": {"crm.customer.cust_id IDENTITY"}},
        {"shop.sales.cust_id FILTER"},
    ),
    "first rows by an output's name": (
        "SELECT sale_id, amount + 1 AS more FROM shop.sales ORDER BY more LIMIT 3",
        {"sale_id": {"shop.sales.sale_id IDENTITY"}, "more": {"shop.sales.amount TRANSFORMATION"}},
        {"shop.sales.amount SORT", "shop.sales.sale_id SORT"},
    ),
    "all columns, distinct": (
        "SELECT DISTINCT * FROM (SELECT state, segment FROM crm.customer) t",
        {"state": {"crm.customer.state IDENTITY"}, "segment": {"crm.customer.segment IDENTITY"}},
        {"crm.customer.state GROUP_BY", "crm.customer.segment GROUP_BY"},
    ),
    "other names": (
        "CREATE MATERIALIZED VIEW v (one, two) AS SELECT state, segment FROM crm.customer",
        {"one": {"crm.customer.state IDENTITY"}, "two": {"crm.customer.segment IDENTITY"}},
        set(),
    ),
    "a table function": (
        "SELECT x.w FROM shop.sales s LATERAL VIEW explode(array(s.amount, s.cust_id)) x AS w",
        {"w": {"shop.sales.amount TRANSFORMATION", "shop.sales.cust_id TRANSFORMATION"}},
        set(),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_outputs_are_made_of(name: str) -> None:
    sql, outputs, rows = CASES[name]
    found = _lineage(sql)
    assert {name: _shown(uses) for name, uses in found.outputs.items()} == outputs
    assert _shown(found.rows) == rows


def test_two_occurrences_of_a_table_are_one_table() -> None:
    found = _lineage(MORE_VIEWS["families"])
    assert _shown(found.outputs["parent"]) == {"shop.product.kind IDENTITY"}
    assert _shown(found.rows) == {"shop.product.parent_id JOIN", "shop.product.product_id JOIN"}


def test_names_of_three_parts_and_other_cases() -> None:
    table = Table("pg", "billing.Item", ("Id", "price"))
    found = _lineage(
        "SELECT i.ID, pg.billing.item.PRICE FROM pg.billing.item CROSS JOIN pg.billing.ITEM i", table
    )
    assert [_shown(uses) for uses in found.outputs.values()] == [
        {"pg.billing.Item.Id IDENTITY"},
        {"pg.billing.Item.price IDENTITY"},
    ]


# The oracle: a column that is not in the lineage of an output may hold anything.

OF_VIEWS = ("FROM sales_by_state", "FROM sold", "MATERIALIZED VIEW", "LATERAL VIEW")
ORACLE = {
    name: sql
    for name, sql in {
        **VIEWS,
        **MORE_VIEWS,
        **DEEP_VIEWS,
        **{name: case[0] for name, case in CASES.items()},
    }.items()
    if not any(each in sql for each in OF_VIEWS)
}


def _rows(chance: random.Random, table: Table) -> list[tuple[Any, ...]]:
    return [
        tuple(
            number
            if column == table.key[0]
            else chance.choice("abc")
            if column in ("state", "segment", "kind")
            else chance.randint(1, 6)
            for column in table.columns
        )
        for number in range(1, 13)
    ]


class _Oracle:
    """The tables in DuckDB, and a query over them."""

    def __init__(self, sql: str) -> None:
        self._query = sqlglot.transpile(sql, read="spark", write="duckdb")[0]
        self._database = duckdb.connect()
        for source, tables in SCHEMAS.items():
            self._database.execute(f"CREATE SCHEMA {source}")
            for table, columns in tables.items():
                plain = columns.replace(" PRIMARY KEY", "")
                self._database.execute(f"CREATE TABLE {source}.{table} ({plain})")

    def fill(self, table: str, rows: list[tuple[Any, ...]]) -> None:
        """Makes these the rows of a table."""
        self._database.execute(f"DELETE FROM {table}")
        self._database.execute(f"INSERT INTO {table} VALUES {', '.join(map(str, rows))}")

    def answer(self) -> dict[str, Counter[Any]]:
        """The values of each output, as a bag."""
        query = self._database.execute(self._query)
        names = [each[0] for each in query.description or ()]
        rows = query.fetchall()
        return {name: Counter(frozen(row[place]) for row in rows) for place, name in enumerate(names)}


@pytest.mark.parametrize("name", ORACLE)
def test_oracle_other_columns_have_no_influence(name: str) -> None:
    found, oracle = _lineage(ORACLE[name]), _Oracle(ORACLE[name])
    chance, changed = random.Random(0), 0
    for _ in range(2):
        rows = {table.qualified: _rows(chance, table) for table in TABLES}
        for table, own in rows.items():
            oracle.fill(table, own)
        before = oracle.answer()
        for table in TABLES:
            for place, column in enumerate(table.columns):
                own, origin = rows[table.qualified], (table.qualified, column)
                oracle.fill(
                    table.qualified, [(*row[:place], _other(row[place]), *row[place + 1 :]) for row in own]
                )
                for output, now in oracle.answer().items():
                    if now != before[output]:
                        changed += 1
                        assert origin in found.outputs[output] or origin in found.rows, (output, origin)
            oracle.fill(table.qualified, rows[table.qualified])
    assert changed, "no column has any influence"


def _other(value: int | str) -> int | str:
    return value + 100 if isinstance(value, int) else f"{value}!"
