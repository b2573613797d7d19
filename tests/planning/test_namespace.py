"""Names that a pipeline writes with its catalog and database, or without them, as a project has them."""

from __future__ import annotations

import pytest

from rollview.errors import ViewError
from rollview.planning import Namespace, in_namespace, view_name, without_own_qualifier

NAMESPACE = Namespace("Main", "Shop", frozenset({"shop", "crm"}))
VIEWS = {"counted", "clean"}


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT * FROM counted, crm.visit", "SELECT * FROM counted, crm.visit"),
        # A view of the pipeline, with the whole name of a column.
        ("SELECT shop.counted.n FROM shop.counted c", "SELECT      counted.n FROM      counted c"),
        (
            "SELECT main.SHOP.`counted`.n, c.x\n  FROM MAIN.Shop.`counted` JOIN main.shop.clean c",
            "SELECT           `counted`.n, c.x\n  FROM           `counted` JOIN           clean c",
        ),
        # A table of the database, and one of another source.
        ("SELECT sales.x FROM sales", "SELECT sales.x FROM Shop.sales"),
        ("SELECT * FROM shop.sales, main.crm.t", "SELECT * FROM shop.sales,      crm.t"),
        ("SELECT crm.t.x FROM main.crm.t", "SELECT crm.t.x FROM      crm.t"),
        # Neither.
        ("SELECT * FROM other.counted, main.other.t", "SELECT * FROM other.counted, main.other.t"),
        ("WITH sales AS (SELECT 1 a) SELECT * FROM sales", "WITH sales AS (SELECT 1 a) SELECT * FROM sales"),
        ("SELECT * FROM a WHERE x IN (SELECT y FROM shop.clean)", None),
    ],
)
def test_names_are_those_of_the_project(sql: str, expected: str | None) -> None:
    if expected is None:
        expected = "SELECT * FROM Shop.a WHERE x IN (SELECT y FROM      clean)"
    assert in_namespace(sql, NAMESPACE, VIEWS) == expected
    created = f"CREATE MATERIALIZED VIEW v COMMENT 'FROM sales' AS {sql}"
    assert in_namespace(created, NAMESPACE, VIEWS) == created.replace(sql, expected)
    assert in_namespace(sql, Namespace("", "", frozenset({"shop"})), VIEWS) == sql


def test_a_catalog_that_is_also_a_source_is_the_source() -> None:
    namespace = Namespace("crm", "shop", frozenset({"shop", "crm"}))
    assert in_namespace("SELECT * FROM crm.shop.t", namespace, VIEWS) == "SELECT * FROM crm.shop.t"
    assert (
        in_namespace("SELECT * FROM t", Namespace("", "none", frozenset({"shop"})), VIEWS)
        == "SELECT * FROM t"
    )


@pytest.mark.parametrize("name", ["v", "shop.v", "`SHOP` . v", "Main.Shop.v"])
def test_a_view_is_created_under_one_word(name: str) -> None:
    sql = f"CREATE MATERIALIZED VIEW {name} AS SELECT 1 AS a"
    written = without_own_qualifier(sql, NAMESPACE)
    assert view_name(written) == "v" and len(written) == len(sql)


@pytest.mark.parametrize("name", ["other.v", "main.v", "other.shop.v", "main.other.v"])
def test_other_qualifiers_are_refused(name: str) -> None:
    sql = f"CREATE MATERIALIZED VIEW {name} AS SELECT 1 AS a"
    assert without_own_qualifier(sql, NAMESPACE) == sql
    with pytest.raises(ViewError, match=r"has a qualifier \(line 1, column 26\)"):
        view_name(sql)
    assert without_own_qualifier("CREATE MATERIALIZED VIEW shop.v AS SELECT 1", Namespace()).count("shop")
