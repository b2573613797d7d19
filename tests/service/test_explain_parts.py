"""What `explain` says of typical views: how each part is maintained, and what costs more than the change."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rollview.algebra import costs
from rollview.algebra.relation import Table
from rollview.errors import InputError
from rollview.planning import parse_view
from rollview.planning.parse import UNTYPED
from rollview.service.definitions import ViewText, notices, parse_text
from rollview.service.explain import explain
from rollview.service.explain_parts import Size

TABLES = (
    Table("shop", "sales", ("sale_id", "cust_id", "product", "amount"), ("sale_id",)),
    Table("crm", "customer", ("cust_id", "state"), ("cust_id",)),
    Table("crm", "visit", ("cust_id", "day")),
    Table("shop", "returns", ("sale_id",)),
)
JOIN = "shop.sales s JOIN crm.customer c ON s.cust_id = c.cust_id"
TYPICAL = {
    "a join": (f"SELECT s.sale_id, c.state FROM {JOIN}", [("linear", [])]),
    "sums of a join": (f"SELECT c.state, sum(s.amount) AS t FROM {JOIN} GROUP BY c.state", [("counts", [])]),
    "the largest": ("SELECT cust_id, max(amount) AS m FROM shop.sales GROUP BY cust_id", [("by key", [])]),
    "the largest of all": ("SELECT max(amount) AS m FROM shop.sales", [("by key", ["ONE_GROUP"])]),
    "places by customer": (
        "SELECT sale_id, rank() OVER (PARTITION BY cust_id ORDER BY amount) AS r FROM shop.sales",
        [("by key", [])],
    ),
    "places among all": (
        "SELECT sale_id, rank() OVER (ORDER BY amount) AS r FROM shop.sales",
        [("by key", ["ONE_PARTITION"])],
    ),
    "every pair": (
        "SELECT s.sale_id, v.day FROM shop.sales s, crm.visit v WHERE s.amount > v.cust_id",
        [("linear", ["PRODUCT"])],
    ),
    "more than the mean": (
        "SELECT sale_id FROM shop.sales WHERE amount > (SELECT avg(amount) FROM shop.sales)",
        [("linear", ["ONE_VALUE"]), ("counts", [])],
    ),
    "visitors": (
        """SELECT state FROM crm.customer c
            WHERE EXISTS (SELECT 1 FROM crm.visit v WHERE v.cust_id = c.cust_id)""",
        [("linear", []), ("counts", [])],
    ),
    "a hierarchy": (
        """WITH RECURSIVE chain AS (SELECT sale_id AS id FROM shop.returns UNION ALL
                SELECT s.sale_id FROM shop.sales s JOIN chain c ON s.cust_id = c.id)
            SELECT c.id, v.day FROM chain c JOIN crm.visit v ON v.cust_id = c.id""",
        [("linear", []), ("full", ["FULL_PART"])],
    ),
    "different rows": ("SELECT DISTINCT product FROM shop.sales", [("counts", [])]),
    "many outer joins": (
        """SELECT s.sale_id, a.day AS a, b.day AS b, c.day AS c FROM shop.sales s
            LEFT JOIN crm.visit a ON a.cust_id = s.cust_id LEFT JOIN crm.visit b ON b.cust_id = s.sale_id
            LEFT JOIN crm.visit c ON c.cust_id = s.amount""",
        [("linear", []), ("counts", []), ("linear", ["STORED_JOIN"]), ("counts", []), ("counts", [])],
    ),
}


@pytest.mark.parametrize(("sql", "expected"), TYPICAL.values(), ids=TYPICAL)
def test_how_typical_views_are_maintained(sql: str, expected: list[tuple[str, list[str]]]) -> None:
    view = parse_view(sql, TABLES, "v")
    parts = explain(view).parts
    assert [(part.method, [cost.code for cost in part.costs]) for part in parts] == expected
    assert parts[0].name == "v" and {part.name for part in parts[1:]} == {
        f"v${n + 1}" for n in range(len(parts) - 1)
    }
    assert all(cost.sentence and cost.suggestion for part in parts for cost in part.costs)


def test_every_code_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "views.md").read_text("utf-8")
    codes = {value for name, value in vars(costs).items() if name.isupper()}
    assert codes == set(re.findall(r"^\| `([A-Z_]+)` \|", page, re.MULTILINE))


def test_a_part_that_is_recomputed_is_announced_and_can_be_forbidden() -> None:
    text = TYPICAL["a hierarchy"][0]
    (notice,) = notices(parse_view(text, TABLES, "v"))
    assert "WITH RECURSIVE" in notice and "recomputed" in notice
    said = "CREATE MATERIALIZED VIEW v TBLPROPERTIES ('rollview.refresh' = 'incremental') AS "
    tables = {table.qualified: table for table in TABLES}
    parse_text(ViewText(Path("v.sql"), "v", said + TYPICAL["visitors"][0], ()), tables, UNTYPED)
    with pytest.raises(InputError, match="WITH RECURSIVE: "):
        parse_text(ViewText(Path("v.sql"), "v", said + text, ()), tables, UNTYPED)


def test_who_is_read_and_asked() -> None:
    (top, stage) = explain(parse_view(TYPICAL["visitors"][0], TABLES, "v")).parts
    assert (top.reads, top.asks) == (("crm.customer", "v$1"), ("crm",))
    assert (stage.reads, stage.asks) == (("crm.visit",), ())


def test_sizes_are_those_of_the_parts() -> None:
    view = parse_view(TYPICAL["visitors"][0], TABLES, "v")
    sizes = {part.name: Size(rows, 10 * rows) for rows, part in enumerate(view.parts, start=1)}
    assert [part.stored for part in explain(view, sizes).parts] == [Size(2, 20), Size(1, 10)]


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [("refresh", "full", "FULL_BY_CHOICE"), ("policy", "snapshot", "FULL_BY_POLICY")],
)
def test_what_is_recomputed_says_why(key: str, value: str, code: str) -> None:
    sql = (
        f"CREATE MATERIALIZED VIEW v TBLPROPERTIES ('rollview.{key}' = '{value}') AS {TYPICAL['visitors'][0]}"
    )
    found = explain(parse_view(sql, TABLES))
    assert found.full_code == code
    assert [part.method for part in found.parts] == ["full"] * len(found.parts)
    assert not any(part.costs or part.asks for part in found.parts)
