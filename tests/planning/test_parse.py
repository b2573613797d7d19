"""SQL to normal form, by example: every case of `fixtures/*.sql` is SQL and what must come of it.

A case starts with `-- case: title`. Lines `--> …` are the rendered view; lines `--! …` are an error: its
class, then parts of its text, one per line. The tables are those of `TABLES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest
from sqlglot import exp

from rollview import errors
from rollview.algebra.relation import ForeignKey, Table
from rollview.operators.aggregate import Aggregate
from rollview.operators.recomputed import Recomputed
from rollview.planning import parse_view, referenced_names, starred_names, view_name
from rollview.planning.render import render
from rollview.sql import errors as sql_errors

TABLES = (
    Table(
        "shop",
        "sales",
        ("sale_id", "cust_id", "product", "amount"),
        ("sale_id",),
        (ForeignKey(("cust_id",), "crm.customer"),),
    ),
    Table("shop", "returns", ("sale_id", "amount", "reason")),
    Table("crm", "customer", ("cust_id", "name", "State"), ("cust_id",)),
    Table("crm", "visit", ("cust_id", "day")),
    Table("shop", "price", ("item", "net", "rate"), types=("string", "decimal(15,2)", "double")),
    Table("", "daily", ("day", "n"), ("day",), own_log=True),
    Table("crm", "billing.invoice", ("id", "cust_id", "total"), ("id",)),
)


@dataclass(frozen=True)
class Case:
    title: str
    sql: str
    view: str
    error: tuple[str, ...]


def cases_of(path: Path) -> Iterator[Case]:
    for text in path.read_text(encoding="utf-8").split("-- case: ")[1:]:
        title, *lines = text.splitlines()
        sql = "\n".join(line for line in lines if not line.startswith(("-->", "--!")))
        view = "".join(line[4:] + "\n" for line in lines if line.startswith("-->"))
        error = tuple(line[4:] for line in lines if line.startswith("--!"))
        yield Case(title, sql, view, error)


CASES = [
    pytest.param(case, id=f"{path.stem}: {case.title}")
    for path in sorted((Path(__file__).parent / "fixtures").glob("*.sql"))
    for case in cases_of(path)
]


@pytest.mark.parametrize("case", CASES)
def test_fixture(case: Case) -> None:
    assert bool(case.view) != bool(case.error), "a case expects a view or an error"
    if case.view:
        assert render(parse_view(case.sql, TABLES)) == case.view
        return
    kind, *parts = case.error
    with pytest.raises(errors.ViewError) as raised:
        parse_view(case.sql, TABLES)
    assert type(raised.value).__name__ == kind
    for part in parts:
        assert part in str(raised.value)


def test_a_select_takes_the_given_name_and_a_create_keeps_its_own() -> None:
    assert parse_view("SELECT day FROM crm.visit", TABLES, name="days").name == "days"
    created = parse_view("CREATE MATERIALIZED VIEW v AS SELECT day FROM crm.visit", TABLES, name="days")
    assert created.name == "v"


def test_properties_and_text_are_kept() -> None:
    sql = """CREATE OR REPLACE MATERIALIZED VIEW v
        TBLPROPERTIES ('rollview.policy' = 'ipda', 'rollview.interval.visit' = '50', owner = 'sales')
        AS SELECT day FROM crm.visit;
    """
    view = parse_view(sql, TABLES)
    assert view.properties == {
        "rollview.policy": "ipda",
        "rollview.interval.visit": "50",
        "owner": "sales",
    }
    assert view.sql == sql.strip()


def test_a_long_chain_of_conditions_is_no_deep_tree() -> None:
    sql = "SELECT day FROM crm.visit WHERE " + " OR ".join(f"cust_id = {i}" for i in range(3000))
    (condition,) = parse_view(sql, TABLES).blocks[0].local[0]
    assert len(condition.arguments) == 3000
    union = " UNION ALL ".join(["SELECT day FROM crm.visit"] * 300)
    assert len(parse_view(union, TABLES).blocks) == 300


def test_places_are_counted_from_the_start_of_the_text() -> None:
    with pytest.raises(errors.ViewError, match=r"unknown column `dy` \(line 3, column 11\)"):
        parse_view("-- a comment\r\nSELECT day,\r\n  cust_id+dy AS x FROM crm.visit", TABLES)


def test_columns_that_differ_in_case_alone_need_their_exact_spelling() -> None:
    tables = [Table("s", "t", ("a", "A", "b"))]
    assert "`t.A`" not in render(parse_view("SELECT a FROM s.t", tables))
    assert "A = t.A" in render(parse_view("SELECT t.A FROM s.t", tables))
    with pytest.raises(errors.ViewError, match="ambiguous"):
        parse_view("SELECT b FROM s.T JOIN s.t u USING (b) WHERE t.a = U.B AND u.a > u.B AND A > 1", tables)


def test_names_are_found_without_looking_them_up() -> None:
    sql = """CREATE MATERIALIZED VIEW top AS
        SELECT a.x FROM base a JOIN (Shop.Sales s JOIN other USING (k)) ON TRUE JOIN base b ON a.x = b.x
        UNION ALL SELECT y FROM (SELECT y FROM `odd name` WHERE y > 1) q"""
    assert referenced_names(sql) == ("base", "Shop.Sales", "other", "odd name")
    assert view_name(sql) == "top"
    assert view_name("SELECT day FROM crm.visit") is None


@pytest.mark.parametrize("function", [referenced_names, view_name])
def test_finding_names_reports_mistakes_with_their_place(function: Callable[[str], object]) -> None:
    with pytest.raises(errors.ViewError, match=r"something is missing here: `WHERE` \(line 2, column 11\)"):
        function("SELECT x\nFROM base WHERE")
    with pytest.raises(errors.ViewError, match="this is not a view definition"):
        function("DROP TABLE base")
    with pytest.raises(errors.ViewError, match="there are 2 statements"):
        function("SELECT x FROM a; SELECT x FROM b")


def test_names_of_a_text_that_is_not_supported_are_not_guessed() -> None:
    with pytest.raises(errors.UnsupportedError, match=r"TABLESAMPLE"):
        referenced_names("SELECT x FROM base TABLESAMPLE (10 PERCENT)")
    assert referenced_names("WITH q AS (SELECT x FROM base) SELECT x FROM q") == ("base",)


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("SELECT * FROM shop.sales", ["shop.sales"]),
        ("CREATE MATERIALIZED VIEW v AS SELECT * FROM Shop.Sales s JOIN daily", ["Shop.Sales", "daily"]),
        ("SELECT v.*, s.amount FROM shop.sales s JOIN crm.visit V ON true", ["crm.visit"]),
        (
            "SELECT * FROM (crm.visit JOIN daily USING (day)), shop.price",
            ["crm.visit", "daily", "shop.price"],
        ),
        ("SELECT * FROM (SELECT * FROM crm.visit) t", ["crm.visit"]),
        ("SELECT day FROM (SELECT * FROM crm.visit) t", []),
        ("SELECT * FROM (SELECT day FROM crm.visit) t", []),
        ("SELECT * FROM (SELECT day, count(*) AS n FROM crm.visit GROUP BY day) t", []),
        ("SELECT count(*) AS n FROM crm.visit", []),
        ("SELECT * FROM crm.visit UNION ALL SELECT * FROM daily", ["crm.visit", "daily"]),
        ("SELECT DISTINCT * FROM crm.visit v LEFT JOIN daily USING (day)", ["crm.visit", "daily"]),
        ("SELECT * FROM crm.visit v LEFT SEMI JOIN daily d ON v.day = d.day", ["crm.visit"]),
        ("SELECT * FROM crm.visit WHERE EXISTS (SELECT * FROM daily)", ["crm.visit"]),
        ("WITH v AS (SELECT * FROM crm.visit) SELECT * FROM v", ["crm.visit"]),
        ("WITH v AS (SELECT * FROM crm.visit) SELECT day FROM v", []),
    ],
)
def test_tables_of_which_all_columns_are_shown(sql: str, names: list[str]) -> None:
    assert sorted(starred_names(sql)) == sorted(names)


def test_an_order_that_has_no_effect_is_in_no_stage() -> None:
    sql = """SELECT product, sum(amount) AS s, sum(sum(amount)) OVER (PARTITION BY product) AS share
        FROM shop.sales GROUP BY product ORDER BY share"""
    view = parse_view(sql, TABLES, "v")
    assert view.stages
    assert [stage.sql for stage in view.stages if "ORDER BY" in stage.sql] == []


@pytest.mark.parametrize(
    ("sql", "stages"),
    [
        ("SELECT first(amount) IGNORE NULLS OVER (ORDER BY amount) AS a FROM shop.sales", 0),
        ("SELECT sum(amount) FILTER (WHERE amount > 1) OVER (PARTITION BY product) AS a FROM shop.sales", 0),
        (
            """SELECT product, first(sum(amount)) IGNORE NULLS OVER (PARTITION BY count(*)
            ORDER BY sum(amount)) AS a FROM shop.sales GROUP BY product""",
            1,
        ),
    ],
    ids=["nulls ignored", "filtered", "over groups"],
)
def test_a_function_over_a_window_is_no_aggregate(sql: str, stages: int) -> None:
    assert len(parse_view(sql, TABLES, "v").stages) == stages


def test_where_the_translation_fails_the_query_is_left_to_spark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sql = "SELECT cust_id, count(*) AS n FROM shop.sales GROUP BY cust_id"

    def translate(query: exp.Expr, translation: object) -> NoReturn:
        raise AttributeError(f"{query} {translation}")

    monkeypatch.setattr(Aggregate, "translate", translate)
    with pytest.raises(AttributeError):
        parse_view(sql, TABLES, "v")
    monkeypatch.setattr(sql_errors, "OWN_MISTAKES", (AttributeError,))
    root = parse_view(sql, TABLES, "v").root
    assert isinstance(root, Recomputed) and "AttributeError" in root.reason
