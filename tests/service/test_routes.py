"""What a query is read from, as `query --explain` says it: the fewest rows, and why not the other views."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from shop import Shop, transact

from rollview.answer.query import AnswerPlan
from rollview.cli import main
from rollview.project.project import Project

pytestmark = pytest.mark.slow

LINES = "shop.sales s JOIN crm.customer c ON s.cust_id = c.cust_id"
EXACT = "CAST(s.amount AS DECIMAL(12, 2))"
VIEWS = {
    "lines": f"SELECT s.sale_id, s.product_id, s.amount, c.state FROM {LINES}",
    "big": f"SELECT s.product_id, s.amount, c.state FROM {LINES} WHERE s.amount > 2",
    "sums": f"SELECT c.state, count(*) AS n, sum(s.amount) AS total FROM {LINES} GROUP BY c.state",
    "query": "SELECT product_id, kind FROM shop.product WHERE kind IS NOT NULL",
    "exact": f"SELECT s.product_id, c.state, sum({EXACT}) AS total, count(*) AS n, avg(s.amount) AS mean "
    f"FROM {LINES} GROUP BY s.product_id, c.state",
    "one": f"SELECT s.amount FROM {LINES} WHERE c.segment = 'x' AND c.cust_id = 1",
    "padded": "SELECT s.sale_id, c.state FROM shop.sales s LEFT JOIN crm.customer c ON s.cust_id = c.cust_id",
}


def _plan(project: Project, sql: str) -> tuple[dict[str, str], dict[str, tuple[bool, str]], AnswerPlan]:
    plan = project.explain_query(sql)
    inputs = {each.name: each.how for each in plan.inputs}
    return inputs, {each.view: (each.is_taken, each.why) for each in plan.candidates}, plan


def test_the_fewest_rows_are_read_and_the_others_say_why_not(tmp_path: Path, spark: SparkSession) -> None:
    shop = Shop(tmp_path / "shop", VIEWS)
    transact(shop, 40)
    shop.begin()
    with Project.open(shop.folder, spark) as project:
        project.setup()

        inputs, views, plan = _plan(project, f"SELECT c.state FROM {LINES} WHERE s.amount > 5")
        assert list(inputs) == ["big"] and "stands for shop.sales and crm.customer" in inputs["big"]
        assert views["big"] == (True, "it stands for shop.sales and crm.customer")
        # Each row that `big` has `lines` has as well.
        stored = {each.name: each.materialized for each in project.status().views}
        assert not views["lines"][0] and "the one that is taken" in views["lines"][1], (views, stored)
        assert views["sums"] == (False, "it has sums of groups, and rows are needed")
        assert [each.rows for each in plan.inputs] == [project.read("big").count()]

        inputs, views, _ = _plan(project, f"SELECT c.state, sum(s.amount) AS t FROM {LINES} GROUP BY c.state")
        assert list(inputs) == ["sums"]
        assert "s.amount > 2" in views["big"][1] and "others are needed" in views["big"][1]

        # Two views, and the rest of a join from its source.
        joined = f"SELECT p.kind, s.sale_id FROM {LINES} JOIN shop.product p ON p.product_id = s.product_id"
        inputs, _, _ = _plan(project, f"{joined} WHERE p.kind = 'a' AND s.amount > 0")
        assert set(inputs) == {"lines", "query"}

        # One row by its key is less than any view.
        inputs, views, plan = _plan(project, "SELECT amount FROM shop.sales WHERE sale_id = 7")
        assert list(inputs) == ["shop.sales"] and plan.inputs[0].rows == 1
        assert views["padded"][1].startswith("it joins") or "amount" in views["padded"][1]

        inputs, _, _ = _plan(
            project,
            "SELECT a.sale_id FROM shop.sales a LEFT JOIN crm.customer b ON a.cust_id = b.cust_id "
            "WHERE a.sale_id > 3 AND b.state IS NULL",
        )
        assert list(inputs) == ["padded"]

        # The types are those that Spark gives to the query as it is written.
        for sql in (
            f"SELECT c.state, sum({EXACT}) AS t, avg({EXACT}) AS m FROM {LINES} GROUP BY c.state",
            f"SELECT sum({EXACT}) / count(*) AS q, avg(s.amount) AS m FROM {LINES}",
            f"SELECT s.amount, c.segment FROM {LINES} WHERE c.segment = 'x' AND s.cust_id = 1",
            f"SELECT p.kind, sum({EXACT}) AS t, sum(p.product_id) AS s FROM {LINES}, shop.product p "
            "WHERE p.product_id = s.product_id GROUP BY p.kind",
            f"SELECT q.kind, t.n FROM query q JOIN (SELECT s.product_id, count(*) AS n FROM {LINES} "
            "GROUP BY s.product_id) t ON t.product_id = q.product_id",
        ):
            _, views, _ = _plan(project, sql)
            assert any(is_taken for is_taken, _ in views.values()), (sql, views)
            routed, as_written = project.query(sql).rows, project.query(sql, rewrite=False).rows
            assert routed.dtypes == as_written.dtypes, sql
            assert Counter(routed.collect()) == Counter(as_written.collect()), sql

        asked = ["query", f"SELECT c.state FROM {LINES} WHERE s.amount > 5", "--explain"]
        asked += ["--project", str(shop.folder)]
        shown = CliRunner().invoke(main, asked, obj=spark, catch_exceptions=False)
        assert "not taken: it has sums of groups" in shown.output and "rows: " in shown.output
        found = json.loads(
            CliRunner().invoke(main, [*asked, "--json"], obj=spark, catch_exceptions=False).output
        )
        assert [each["name"] for each in found["inputs"]] == ["big"]
        assert {each["view"]: each["is_taken"] for each in found["candidates"]}["big"] is True
