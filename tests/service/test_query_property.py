"""Random views, lagging, recomputed, condensed or loaded late, and random queries over them and their tables.

Each answer is compared with DuckDB's at the csn that it names, taken from views where that is possible and
not; and what is said to be its valid time is a time at which it is the answer.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pytest
import sqlglot
from pyspark.sql import SparkSession
from shop import Shop, frozen, transact
from sqlglot import exp

from rollview.algebra.relation import Table
from rollview.answer.query_plan import Question
from rollview.answer.rewriting import parsed_query
from rollview.answer.routes import Estimates, Route, routes_of
from rollview.errors import PointError
from rollview.project.project import Project

sys.path.insert(0, str(Path(__file__).parents[1] / "planning"))

from random_selects import TEXT, WHOLE, Select, World

pytestmark = pytest.mark.slow

LINES = "shop.sales s JOIN crm.customer c ON s.cust_id = c.cust_id"
VIEWS = {
    "lines": f"SELECT s.sale_id, s.product_id, s.amount, c.state, c.segment FROM {LINES}",
    "sums": f"""SELECT c.state, s.product_id, count(*) AS n, sum(s.amount) AS total, count(s.amount) AS known
        FROM {LINES} GROUP BY c.state, s.product_id""",
    "high": f"SELECT c.state, c.segment, max(s.amount) AS high FROM {LINES} GROUP BY c.state, c.segment",
    "big": f"SELECT s.product_id, c.state, s.amount FROM {LINES} WHERE s.amount > 3",
    "recomputed": f"""CREATE MATERIALIZED VIEW recomputed TBLPROPERTIES ('rollview.policy' = 'snapshot')
        AS SELECT c.segment, sum(s.amount) AS total FROM {LINES} GROUP BY c.segment""",
    "parents": "SELECT p.kind, count(*) AS n, sum(p.parent_id) AS s FROM shop.product p GROUP BY p.kind",
}
LATE = {"late": f"SELECT c.state, sum(s.amount) AS total FROM {LINES} GROUP BY c.state"}
QUERIES = [
    "SELECT c.state, count(*) AS n, sum(s.amount) AS total FROM {lines} WHERE {about} GROUP BY c.state",
    "SELECT x.segment, min(y.amount) AS low FROM crm.customer x, shop.sales y "
    "WHERE y.cust_id = x.cust_id GROUP BY x.segment",
    "SELECT s.product_id AS p, avg(s.amount) AS mean FROM {lines} GROUP BY s.product_id ORDER BY p LIMIT 3",
    "SELECT count(*) AS n, sum(s.amount) FROM {lines} WHERE {about} AND s.amount > 3",
    "SELECT t.n, count(*) AS groups FROM (SELECT c.state, count(*) AS n FROM {lines} GROUP BY c.state) t "
    "GROUP BY t.n",
    "SELECT s.amount, c.state FROM {lines} WHERE {about} AND s.amount IN (1, 4, 7)",
    "SELECT count(*) AS n FROM shop.sales WHERE amount < 5",
    "SELECT a.state, a.total, b.high FROM sums a JOIN high b ON a.state = b.state",
    "SELECT sum(total) AS total FROM recomputed UNION ALL SELECT sum(total) FROM sums",
    "SELECT p.n, s.sale_id FROM parents p JOIN shop.sales s ON s.product_id = p.n WHERE s.amount >= 2",
    "SELECT p.kind, q.kind AS parent FROM shop.product p JOIN shop.product q ON p.parent_id = q.product_id",
    "SELECT DISTINCT c.state FROM {lines}",
    "SELECT l.total - s.total AS off FROM late l JOIN sums s ON l.state = s.state",
    "SELECT state, sum(n) AS n FROM SUMS WHERE product_id <> 2 GROUP BY state HAVING sum(n) > 1",
]
ABOUT = ["c.state = 'a'", "c.state IS NULL", "s.product_id < 3", "c.state <> 'b' AND 2 < s.product_id"]


def _expected(shop: Shop, project: Project, sql: str, csn: int) -> Counter[tuple[Any, ...]]:
    with duckdb.connect() as database:
        shop.fill(database, shop.states_at(project, csn))
        for name, text in shop.views.items():
            statement = sqlglot.parse_one(text, dialect="spark")
            query = statement.expression if isinstance(statement, exp.Create) else statement
            database.execute(f"CREATE VIEW {name} AS {query.sql(dialect='duckdb')}")
        text = sqlglot.transpile(sql, read="spark", write="duckdb")[0]
        return Counter(map(frozen, database.execute(text).fetchall()))


def _act(shop: Shop, project: Project, chance: Random) -> None:
    """Something that happens to views."""
    view = chance.choice(project.views)
    status = next(each for each in project.status().views if each.name == view)
    match chance.choice(["capture", "propagate", "apply", "refresh", "condense", "late", "run"]):
        case "capture":
            project.capture()
        case "propagate" if view != "recomputed":
            project.propagate(view)
        case "apply" if status.high_water > status.materialized:
            project.apply(view, to=chance.randint(status.materialized, status.high_water))
        case "refresh":
            project.refresh(*chance.sample(project.views, 2))
        case "condense" if view != "recomputed" and status.high_water - status.materialized > 2:
            project.condense(view, status.materialized, status.high_water)
        case "late" if "late" not in project.views:
            shop.views |= LATE
            shop.write_project()
            project.setup()
        case "run":
            project.run(once=True)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 14))])
def test_oracle_answers_are_of_one_state(tmp_path: Path, spark: SparkSession, seed: int) -> None:
    shop, chance = Shop(tmp_path / "shop", VIEWS), Random(seed)
    shop.random.seed(seed)
    transact(shop, 30)
    shop.begin()
    answered = derived = refused = 0
    with Project.open(shop.folder, spark) as project:
        project.setup()
        for _ in range(9):
            transact(shop, chance.randint(0, 4))
            try:
                _act(shop, project, chance)
            except PointError:
                # Such as rolling a view into a range that has been condensed.
                refused += 1
            sql = chance.choice(QUERIES).format(lines=LINES, about=chance.choice(ABOUT))
            as_of = chance.choice([None, None, chance.randint(0, project.status().last_csn)])
            if "late" in sql and "late" not in project.views:
                continue
            for rewrite in (True, False):
                question = Question(sql, as_of, may_rewrite=rewrite)
                try:
                    answer = project.query(sql, as_of=as_of, rewrite=rewrite)
                except PointError:
                    refused += 1
                    continue
                planner = project._drivers.query.planner
                plan = planner.plan(question)
                answered, derived = answered + 1, derived + (plan.rewritten is not None)
                rows = Counter(map(frozen, answer.rows.collect()))
                assert as_of in (None, answer.csn)
                if "LIMIT" in sql:
                    assert len(rows) <= 3
                    continue
                assert rows == _expected(shop, project, sql, answer.csn), (sql, answer.csn, plan)
                if plan.csn == answer.csn:
                    valid = planner.valid_time(plan)
                    last = project.status().last_csn if valid.end is None else valid.end - 1
                    for csn in {max(valid.start, 0), last}:
                        assert rows == _expected(shop, project, sql, csn), (sql, csn, valid)
    assert answered > 4 and derived


SHOP = World(
    {
        "crm.customer": Table("crm", "customer", ("cust_id", "state", "segment"), types=(WHOLE, TEXT, TEXT)),
        "shop.sales": Table(
            "shop", "sales", ("sale_id", "cust_id", "product_id", "amount"), types=(WHOLE,) * 4
        ),
        "shop.product": Table(
            "shop", "product", ("product_id", "kind", "parent_id"), types=(WHOLE, TEXT, WHOLE)
        ),
    },
    (
        ("shop.sales", "cust_id", "crm.customer", "cust_id"),
        ("shop.sales", "product_id", "shop.product", "product_id"),
        ("shop.product", "parent_id", "shop.product", "product_id"),
    ),
)
# All columns are captured, though no view of these has any rows of them.
COUNTED = {
    f"counted_{table.name}": f"SELECT {', '.join(f'count({each})' for each in table.columns)} FROM {name}"
    for name, table in SHOP.tables.items()
}


def _routes(project: Project, sql: str) -> list[Route]:
    """All that a query could be computed from, besides what it names."""
    planner = project._drivers.query.planner
    query = parsed_query(sql, planner._known(), planner._stored_states, planner.session)
    return (
        routes_of(query, planner._stored_states, Estimates(planner.valid.stored, planner.sites))
        if query
        else []
    )


@pytest.mark.parametrize("seed", [3, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(4, 12))])
def test_differential_whatever_is_read_the_answer_is_the_same(
    tmp_path: Path, spark: SparkSession, seed: int
) -> None:
    """Random queries over random views that contain parts of them, while some of the views lag."""
    chance = Random(seed)
    selects = [Select(chance, SHOP) for _ in range(5)]
    contained = [select.weaker().sql(0.9, 0.4) for select in selects for _ in range(2)]
    views = COUNTED | {f"v{number}": sql for number, sql in enumerate(contained)}
    shop, routed, answered = Shop(tmp_path / "shop", views), Counter[int](), Counter[bool]()
    shop.random.seed(seed)
    transact(shop, 30)
    shop.begin()
    with Project.open(shop.folder, spark) as project:
        project.setup()
        transact(shop, 4)
        project.run(once=True)
        transact(shop, 2)
        project.capture()
        for view in chance.sample(project.views, 4):
            project.propagate(view)
        driver, last = project._drivers.query, project.status().last_csn
        for sql in [select.sql(0.3, 0.6) for select in selects]:
            routes = _routes(project, sql)
            for csn in (last - 3, last - 1, last):
                rows = _expected(shop, project, sql, csn)
                for rewrite in (True, False):
                    try:
                        answer = project.query(sql, as_of=csn, rewrite=rewrite)
                    except PointError:
                        # What the tables were before is not kept, as all views are past it.
                        continue
                    answered[rewrite] += 1
                    assert Counter(map(frozen, answer.rows.collect())) == rows, (sql, csn, rewrite)
            for route in chance.sample(routes, min(3, len(routes))):
                try:
                    plan = driver.planner._as_of_one_csn(Question(sql), route)
                except PointError:
                    continue
                answer = driver._answered(plan)
                routed[len(route.views)] += 1
                assert Counter(map(frozen, answer.rows.collect())) == _expected(
                    shop, project, sql, plan.csn
                ), (
                    sql,
                    views,
                    route,
                )
    assert routed.total() > 4 and min(answered[True], answered[False]) > 4, (routed, answered)
