"""A view's SELECT taken apart into its input rows and the rest; refusals; conditions that are none."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from random import Random

import duckdb
import pytest
import sqlglot

from rollview.algebra.relation import Table
from rollview.errors import UnsupportedError, ViewError
from rollview.planning.input_rows import InputRows, condition_of, input_rows
from rollview.sql.dialect import DIALECT

sys.path.insert(0, str(Path(__file__).parents[1] / "service"))

from shop import SCHEMAS, VIEWS

TABLES = [
    Table(source, name, tuple(column.split()[0] for column in columns.split(", ")), (columns.split()[0],))
    for source, tables in SCHEMAS.items()
    for name, columns in tables.items()
]
BY_STATE = VIEWS["sales_by_state"]


def taken_apart(sql: str, outputs: str, condition: str = "true") -> InputRows:
    return input_rows("v", sql, TABLES, outputs.split(), condition)


def test_columns_are_those_that_the_view_names_and_the_keys_of_its_tables() -> None:
    found = taken_apart(BY_STATE, "state n total mean")
    assert [each.label for each in found.columns] == [
        *("s.sale_id", "s.cust_id", "s.amount", "c.cust_id", "c.state"),
    ]
    assert {each.table for each in found.columns} == {"shop.sales", "crm.customer"}
    assert all(each.is_of_source for each in found.columns)


@pytest.mark.parametrize(
    ("condition", "pushed", "left"),
    [
        ("state = 'a' AND n > 1", "(c.state) = 'a'", "n >"),
        ("V.State <=> NULL", "(c.state) IS NOT DISTINCT FROM NULL", ""),
        ("(state = 'a' AND n = 1) OR (state = 'a' AND n = 2)", "(c.state) = 'a'", "n ="),
        ("state = 'a' OR n > 1", "", "WHERE"),
        ("true -- and nothing else", "", ""),
    ],
)
def test_what_a_condition_says_of_groups_is_asked_from_the_sources(
    condition: str, pushed: str, left: str
) -> None:
    found = taken_apart(BY_STATE, "state n total mean", condition)
    assert pushed in found.rows_sql
    assert not left or left not in found.rows_sql
    assert f"({condition}\n)" in found.outputs_sql and f"({condition}\n)" in found.chosen_sql


def test_a_group_of_everything_takes_nothing_away_from_its_rows() -> None:
    """With a condition pushed down there would be a row, of no rows, that the view does not show."""
    found = taken_apart("SELECT 'x' AS word, count(*) AS n FROM shop.sales", "word n", "word = 'y'")
    assert "'y'" not in found.rows_sql


def test_names_of_a_view_with_a_column_list_and_of_its_own_columns_that_look_like_ours() -> None:
    created = "CREATE MATERIALIZED VIEW v (_in1, b) AS SELECT state, count(*) FROM crm.customer GROUP BY 1"
    found = taken_apart(created, "_in1 b", "_in1 = 'a'")
    assert "_in1" not in found.inside and "WHERE ((state) = 'a')" in found.rows_sql


@pytest.mark.parametrize(
    ("sql", "outputs", "reason"),
    [
        ("SELECT state FROM crm.customer UNION ALL SELECT kind FROM shop.product", "state", "UNION combines"),
        ("SELECT state FROM crm.customer EXCEPT SELECT kind FROM shop.product", "state", "EXCEPT combines"),
        ("SELECT sale_id FROM shop.sales ORDER BY amount, sale_id LIMIT 3", "sale_id", "LIMIT keeps some"),
        ("SELECT sum(amount) OVER (PARTITION BY cust_id) AS x FROM shop.sales", "x", "a window function"),
        (
            "SELECT sale_id FROM shop.sales QUALIFY row_number() OVER (ORDER BY sale_id) = 1",
            "sale_id",
            "QUALIFY keeps",
        ),
        ("SELECT kind, count(*) AS n FROM shop.product GROUP BY ROLLUP (kind)", "kind n", "ROLLUP, CUBE"),
        ("SELECT (SELECT count(*) FROM shop.sales) AS n FROM crm.customer", "n", "a subquery computes"),
        ("SELECT explode(array(sale_id)) AS n FROM shop.sales", "n", "a generator such as explode"),
        (
            "SELECT state FROM crm.customer c FULL JOIN shop.sales s USING (cust_id)",
            "state",
            "FULL JOIN with USING",
        ),
        ("SELECT 1 AS one", "one", "it reads no table"),
    ],
)
def test_what_has_no_input_rows_of_its_own_is_refused(sql: str, outputs: str, reason: str) -> None:
    with pytest.raises(UnsupportedError, match="the rows that make up a row of v cannot be listed") as caught:
        taken_apart(sql, outputs)
    assert reason in caught.value.message and "rollview query" in caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "-- nothing", "true) OR (true", "true)-- (", "(true", "true; DROP TABLE x", "true;"),
        *("state, n", "state = 'a' GROUP BY n", "state = 'a", "state = `a", "/* open", "*", "true LIMIT 1"),
        *("(SELECT true)", "state IN (SELECT state FROM crm.customer)", "EXISTS (FROM crm.customer)"),
        *("rand() > 0.5", "current_date() > d", "uuid() = state", "IDENTIFIER('n') > 1", "${n} > 1"),
        *("reflect('java.lang.System', 'exit', 1) = ''", "default.f(n)", "n > ?", "struct(*) = 1"),
        "(" * 5_000 + "true" + ")" * 5_000,
    ],
)
def test_hostile_conditions_are_refused(text: str) -> None:
    with pytest.raises(ViewError):
        condition_of(text)


@pytest.mark.parametrize(
    "text", ["true", "state = ')'", "state = '--' -- a remark", "n /* ( */ > 1", "state LIKE '%;%'"]
)
def test_conditions_that_only_look_hostile(text: str) -> None:
    assert condition_of(text).sql()


def _duckdb(sql: str) -> str:
    return sqlglot.parse_one(sql, dialect=DIALECT).sql(dialect="duckdb")


AGAIN = {
    BY_STATE: "state n total mean",
    VIEWS["sold"]: "sale_id state kind amount",
    """SELECT DISTINCT c.state, s.amount % 2 AS odd
        FROM crm.customer c LEFT JOIN shop.sales s USING (cust_id)""": "state odd",
    "SELECT DISTINCT count(*) AS n FROM shop.sales GROUP BY cust_id, product_id HAVING count(*) > 1": "n",
    """SELECT max(amount) - min(amount) AS span FROM shop.sales
        WHERE cust_id IN (SELECT cust_id FROM crm.customer)""": "span",
    """SELECT t.n AS n, count(*) AS times, max(c.state) AS last
        FROM (SELECT cust_id, count(*) AS n FROM shop.sales GROUP BY cust_id) t
        JOIN crm.customer c ON c.cust_id = t.cust_id GROUP BY ALL""": "n times last",
}
CONDITIONS = ("true", "{0} IS NOT NULL", "{0} > 1 OR {0} <=> NULL", "length(string({0})) = 1 AND {0} = {0}")


@pytest.mark.parametrize("sql", AGAIN)
@pytest.mark.parametrize("condition", CONDITIONS)
def test_oracle_input_rows_give_the_rows_of_the_view_again(sql: str, condition: str) -> None:
    """DuckDB runs the texts: over all input rows, and over those that were chosen alone."""
    outputs = AGAIN[sql]
    condition = condition.format(outputs.split()[0]).replace("string(", "concat('', ")
    if "> 1" in condition and outputs.startswith("state"):
        condition = condition.replace("> 1", "> 'a'")
    found, chance = taken_apart(sql, outputs, condition), Random(1)
    with duckdb.connect(config={"threads": 1}) as database:
        for source, tables in SCHEMAS.items():
            database.execute(f"CREATE SCHEMA {source}")
            for name, columns in tables.items():
                database.execute(f"CREATE TABLE {source}.{name} ({columns.replace(' PRIMARY KEY', '')})")
        for number in range(40):
            values = [number % 7, chance.randint(1, 6), chance.randint(1, 5), chance.choice([None, 2, 3, 9])]
            database.execute("INSERT INTO shop.sales VALUES (?, ?, ?, ?)", [number, *values[1:]])
        for number in range(1, 7):
            database.execute(
                "INSERT INTO crm.customer VALUES (?, ?, 'x')", [number, chance.choice(["a", "b", None])]
            )
            database.execute("INSERT INTO shop.product VALUES (?, 'k', NULL)", [number])
        wanted = Counter(
            database.execute(
                _duckdb(
                    f"SELECT * FROM ({sql.replace(' GROUP BY ALL', ' GROUP BY t.n')}) AS v WHERE {condition}"
                )
            ).fetchall()
        )
        database.execute(f"CREATE TABLE input_rows AS {_duckdb(found.rows_sql)}")
        assert Counter(database.execute(_duckdb(found.outputs_sql)).fetchall()) == wanted
        database.execute(f"CREATE TABLE chosen AS {_duckdb(found.chosen_sql)}")
        database.execute("DROP TABLE input_rows")
        database.execute("ALTER TABLE chosen RENAME TO input_rows")
        assert Counter(database.execute(_duckdb(found.outputs_sql)).fetchall()) == wanted
        assert wanted or condition != "true"
