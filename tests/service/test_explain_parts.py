"""What `explain` says of typical views: how each part is maintained, and what costs more than the change."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from shop import Shop, transact

from rollview.algebra import costs
from rollview.algebra.relation import Table
from rollview.catalog import CostLine, Lookups
from rollview.cli.main import main
from rollview.errors import InputError
from rollview.observe.copies import Copy, priced
from rollview.observe.explain import explain
from rollview.observe.explain_parts import Size
from rollview.planning import parse_view
from rollview.planning.parse import UNTYPED
from rollview.project.project import Project
from rollview.views.properties import notices, parse_text
from rollview.views.view_files import ViewText

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


def test_copies_that_make_views_self_maintaining() -> None:
    def copies(sql: str) -> list[tuple[str, tuple[str, ...], str]]:
        found = explain(parse_view(sql, TABLES, "v")).copies
        assert found is None or (found.together is None and found.cheapest is None)
        return [] if found is None else [(each.table, each.columns, each.condition) for each in found.copies]

    assert copies(f"SELECT s.sale_id, c.state FROM {JOIN} WHERE s.amount > 2") == [
        ("shop.sales", ("sale_id", "cust_id"), "(`s.amount` > 2)"),
        ("crm.customer", ("cust_id", "state"), ""),
    ]
    # One copy for both, of all rows, because one of them needs all.
    assert copies(
        "SELECT a.day FROM crm.visit a JOIN crm.visit b ON a.cust_id = b.cust_id WHERE a.day < 3"
    ) == [("crm.visit", ("cust_id", "day"), "")]
    # A view of one table asks nobody; one that is recomputed keeps nothing; a stage is kept as it is.
    assert copies("SELECT cust_id, max(amount) AS m FROM shop.sales GROUP BY cust_id") == []
    said = "CREATE MATERIALIZED VIEW v TBLPROPERTIES ('rollview.policy' = 'snapshot') AS "
    assert copies(f"{said} SELECT s.sale_id, c.state FROM {JOIN}") == []
    assert [table for table, _, _ in copies(TYPICAL["visitors"][0])] == ["crm.customer"]


def test_copies_are_chosen_by_what_was_measured() -> None:
    sales, customer = (
        Copy("shop.sales", ("cust_id",), rows=1000, bytes=8000, changes=5000),
        Copy("crm.customer", ("cust_id",), rows=10, bytes=80, changes=2),
    )
    lookups = [
        Lookups(("crm.customer",), 40, 40, 40, 320, 2.0),
        Lookups(("shop.sales",), 1, 1, 100, 800, 0.1),
        Lookups(("crm.customer", "shop.sales"), 2, 2, 50, 800, 0.2),
    ]

    def applying(fixed: float, per_row: float) -> CostLine:
        cost = CostLine()
        for rows in (1, 10, 100):
            cost = cost.with_sample(rows, fixed + per_row * rows)
        return cost

    def chosen(fixed: float, per_row: float) -> tuple[str, ...]:
        found = priced((sales, customer), lookups, applying(fixed, per_row), steps=40)
        assert found.together is not None and found.cheapest is not None and found.measured == 43
        assert (found.together.lookups, found.together.rows) == (43, 233)
        assert found.together.seconds == pytest.approx(2.3)
        return found.cheapest.tables

    # The rows that change the most are dear to keep; what is asked for most is dear to ask.
    assert chosen(0.001, 0.001) == ("crm.customer",)
    assert set(chosen(0.0, 0.000001)) == {"crm.customer", "shop.sales"}
    assert chosen(2.0, 0.001) == ()
    assert priced((sales, customer), [], applying(1.0, 1.0), 40).cheapest is None


@pytest.mark.slow
def test_copies_of_a_project_at_work(tmp_path: Path, spark: SparkSession) -> None:
    """Every sub-query that was sent is counted, and all of them ask for nothing but the proposed copies."""
    shop = Shop(tmp_path / "shop")
    transact(shop, 20)
    with Project.open(shop.folder, spark) as project:
        project.setup()
        before = project.explain("sold").copies
        assert before is not None and before.together is None
        assert {each.table: each.columns for each in before.copies} == {
            "shop.sales": ("sale_id", "cust_id", "product_id", "amount"),
            "crm.customer": ("cust_id", "state"),
            "shop.product": ("product_id", "kind"),
        }
        for _ in range(6):
            transact(shop, 4)
            project.run(once=True)
        found = project.explain("sold")
        advice, lookups = found.copies, project._warehouse.catalog.works.lookups("sold")
        assert advice is not None and advice.together is not None and advice.cheapest is not None
        assert advice.measured == advice.together.lookups == found.work.lookups > 0
        assert sum(each.rows_found for each in lookups) == found.work.rows_found
        assert {name for each in lookups for name in each.tables} <= {each.table for each in advice.copies}
        assert advice.together.seconds > 0.0 and all(each.rows and each.bytes for each in advice.copies)
        assert sum(each.changes for each in advice.copies) > 0
        assert advice.cheapest.net_seconds >= max(0.0, advice.together.net_seconds)
        printed = CliRunner().invoke(main, ["explain", "sold", "--project", str(shop.folder)], obj=spark)
        assert f"all of them would have saved {advice.measured} look-up" in printed.output, printed.output
        assert "by these measurements" in printed.output
        project.setup(reload=("sold",))
        assert project._warehouse.catalog.works.lookups("sold") == []
