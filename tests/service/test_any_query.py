"""Queries of any shape as views: maintained incrementally on Spark, and exact at every csn.

Each project has several views, so that they share sessions, captures and rounds. DuckDB is the judge.
"""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from shop import Shop, check_every_csn, transact

from rollview.algebra import change_points
from rollview.project.project import Project

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def duckdb_alone_judges_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    """It judges the first csn as every other; `setup` compares each text with Spark over random rows."""
    monkeypatch.setattr("rollview.maintain.load.check_meaning", lambda *_: None)


@pytest.fixture(autouse=True)
def all_keys_are_hot(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that operators look at as little as they can."""
    monkeypatch.setattr(change_points, "FEW_PAIRS", -1)


JOINS = {
    "bought": """SELECT c.cust_id, c.state, s.amount FROM crm.customer c
        LEFT JOIN shop.sales s ON c.cust_id = s.cust_id""",
    "either": """SELECT c.state, p.kind, p.product_id FROM crm.customer c
        FULL JOIN shop.product p ON c.cust_id = p.product_id""",
    "large_sales": """SELECT s.sale_id, p.kind FROM shop.sales s
        RIGHT JOIN shop.product p ON s.product_id = p.product_id AND s.amount > 3""",
    "buyers": """SELECT cust_id, state FROM crm.customer c
        WHERE EXISTS (SELECT 1 FROM shop.sales s WHERE s.cust_id = c.cust_id AND s.amount > 2)""",
    "no_others": """SELECT cust_id FROM crm.customer c WHERE NOT EXISTS (
        SELECT 1 FROM shop.sales s WHERE s.cust_id = c.cust_id AND s.product_id <> c.cust_id)""",
    "no_parent": """SELECT product_id FROM shop.product
        WHERE parent_id NOT IN (SELECT cust_id FROM shop.sales)""",
    "a_or_buyer": """SELECT cust_id FROM crm.customer c
        WHERE state = 'a' OR EXISTS (SELECT 1 FROM shop.sales s WHERE s.cust_id = c.cust_id)""",
    "counted": """SELECT c.cust_id, (SELECT count(*) FROM shop.sales s WHERE s.cust_id = c.cust_id) AS n
        FROM crm.customer c""",
    "by_state": """SELECT c.state, count(s.sale_id) AS n, sum(s.amount) AS total
        FROM crm.customer c LEFT JOIN shop.sales s ON c.cust_id = s.cust_id GROUP BY c.state""",
}
GROUPS = {
    "ranges": """SELECT c.state, min(s.amount) AS lo, max(s.amount) AS hi,
            count(DISTINCT s.product_id) AS kinds FROM shop.sales s
        JOIN crm.customer c ON s.cust_id = c.cust_id GROUP BY c.state""",
    "whole": """SELECT max(amount) AS hi, count(*) AS n, sum(amount) AS total,
        count(DISTINCT cust_id) AS buyers FROM shop.sales""",
    "several": "SELECT cust_id, sum(amount) AS total FROM shop.sales GROUP BY cust_id HAVING count(*) > 1",
    "left_over": "SELECT cust_id AS id FROM shop.sales EXCEPT ALL SELECT product_id FROM shop.product",
    "ranked": """SELECT sale_id, cust_id,
            row_number() OVER (PARTITION BY cust_id ORDER BY amount DESC, sale_id) AS place,
            sum(amount) OVER (PARTITION BY cust_id) AS total,
            first(amount) IGNORE NULLS OVER (PARTITION BY cust_id ORDER BY sale_id) AS before
        FROM shop.sales""",
    "largest": """SELECT sale_id, cust_id, amount FROM shop.sales
        QUALIFY row_number() OVER (PARTITION BY cust_id ORDER BY amount DESC, sale_id) = 1""",
    "second": """SELECT cust_id FROM crm.customer c WHERE EXISTS (
        SELECT 1 FROM shop.sales s WHERE s.cust_id = c.cust_id LIMIT 1 OFFSET 1)""",
    "by_large": """SELECT c.state, sum(CASE WHEN EXISTS (SELECT 1 FROM shop.sales s
            WHERE s.cust_id = c.cust_id AND s.amount > 3) THEN 1 ELSE 0 END) AS n
        FROM crm.customer c GROUP BY c.state
        HAVING EXISTS (SELECT 1 FROM shop.product p WHERE p.product_id < max(c.cust_id))""",
    "places": "SELECT place, count(*) AS n FROM ranked GROUP BY place",
    "top": "SELECT sale_id, amount FROM shop.sales ORDER BY amount DESC, sale_id LIMIT 5",
    "newest": """SELECT c.cust_id, c.state, s.sale_id FROM crm.customer c JOIN (SELECT sale_id, cust_id,
            row_number() OVER (PARTITION BY cust_id ORDER BY sale_id DESC) AS place FROM shop.sales) s
        ON s.cust_id = c.cust_id WHERE s.place <= 2""",
    "leaders": """SELECT state, n, place
        FROM (SELECT state, count(*) AS n, rank() OVER (ORDER BY count(*) DESC) AS place
            FROM crm.customer GROUP BY state) WHERE place <= 2""",
    "best": """WITH t AS (SELECT cust_id, sum(amount) AS total FROM shop.sales GROUP BY cust_id),
            m AS (SELECT max(total) AS best FROM t)
        SELECT t.cust_id, t.total FROM t JOIN m ON t.total = m.best""",
    "levels": """SELECT c.state, c.segment, count(*) AS n, sum(s.amount) AS total,
            rank() OVER (PARTITION BY grouping(c.state) + grouping(c.segment),
                CASE WHEN grouping(c.segment) = 0 THEN c.state END ORDER BY sum(s.amount) DESC) AS place
        FROM shop.sales s JOIN crm.customer c ON s.cust_id = c.cust_id
        GROUP BY ROLLUP (c.state, c.segment)""",
    "ids": """SELECT kind, e.id FROM shop.product
        LATERAL VIEW explode(array(product_id, parent_id)) e AS id WHERE e.id > 1""",
    "id_counts": """SELECT e.id, count(*) AS n, sum(product_id) AS s FROM shop.product
        LATERAL VIEW explode(array(product_id, parent_id)) e AS id GROUP BY e.id""",
    "quarters": """SELECT cust_id, max(cast(amount AS double) / 4) AS hi,
            sum(cast(amount AS double) / 4) AS total FROM shop.sales GROUP BY cust_id""",
}

DEPENDENT = {
    "first_sale": """SELECT c.cust_id, (SELECT s.amount FROM shop.sales s WHERE s.cust_id = c.cust_id
        ORDER BY s.sale_id LIMIT 1) AS amount FROM crm.customer c""",
    "two_best": """SELECT c.cust_id, l.sale_id, l.amount FROM crm.customer c, LATERAL (
        SELECT s.sale_id, s.amount FROM shop.sales s WHERE s.cust_id = c.cust_id
        ORDER BY s.amount DESC, s.sale_id LIMIT 2) l""",
    "placed": """SELECT c.cust_id, l.sale_id, l.place FROM crm.customer c LEFT JOIN LATERAL (
        SELECT s.sale_id, row_number() OVER (ORDER BY s.amount, s.sale_id) AS place
        FROM shop.sales s WHERE s.cust_id < c.cust_id) l ON l.place < 3""",
    "cheaper": """SELECT p.product_id, l.n, l.hi FROM shop.product p, LATERAL (
        SELECT count(*) AS n, max(s.amount) AS hi FROM shop.sales s WHERE s.amount < p.product_id) l""",
    "wanted": """SELECT v.kind, p.product_id FROM (VALUES ('a', 1), ('b', 2), ('z', 3)) v(kind, n)
        LEFT JOIN shop.product p ON p.kind = v.kind""",
    "and_total": """SELECT kind, count(*) AS n FROM shop.product GROUP BY kind
        UNION ALL SELECT 'none', 0""",
    "same_state": """SELECT a.cust_id, b.cust_id AS other FROM crm.customer a
        JOIN crm.customer b ON a.state IS NOT DISTINCT FROM b.state AND a.cust_id < b.cust_id""",
    "and_none": """SELECT state, count(*) AS n FROM crm.customer GROUP BY state
        UNION ALL SELECT NULL, count(*) FROM crm.customer""",
    "noted": """SELECT coalesce(t.note, p.kind) AS note, t.n FROM (
        SELECT NULL AS note, state, count(*) AS n FROM crm.customer GROUP BY state) t
        JOIN shop.product p ON p.kind = t.state""",
    "values_of_all": """SELECT (SELECT count(*) FROM shop.sales) AS n,
        (SELECT max(state) FROM crm.customer) AS last""",
}


TIES = {
    "placed": (
        "SELECT sale_id, row_number() OVER (PARTITION BY cust_id ORDER BY amount) AS n FROM shop.sales",
        """SELECT sale_id, row_number() OVER (PARTITION BY cust_id ORDER BY amount, sale_id) AS n
            FROM shop.sales""",
    ),
    "five": (
        "SELECT cust_id, product_id FROM shop.sales ORDER BY amount DESC LIMIT 5",
        "SELECT cust_id, product_id FROM shop.sales ORDER BY amount DESC, cust_id, product_id LIMIT 5",
    ),
    "cheapest": (
        """SELECT c.cust_id, (SELECT s.product_id FROM shop.sales s WHERE s.cust_id = c.cust_id
            ORDER BY s.amount LIMIT 1) AS product_id FROM crm.customer c""",
        """SELECT c.cust_id, (SELECT s.product_id FROM shop.sales s WHERE s.cust_id = c.cust_id
            ORDER BY s.amount, s.product_id LIMIT 1) AS product_id FROM crm.customer c""",
    ),
    "states": (
        """SELECT state, row_number() OVER (ORDER BY count(*) DESC) AS place FROM crm.customer
            GROUP BY state""",
        """SELECT state, row_number() OVER (ORDER BY count(*) DESC, state) AS place FROM crm.customer
            GROUP BY state""",
    ),
    "chosen": (
        """SELECT cust_id, max_by(product_id, amount) AS dear, mode(product_id) AS often,
            sort_array(collect_set(product_id)) AS ids FROM shop.sales GROUP BY cust_id""",
        """WITH counts AS (SELECT cust_id, product_id, count(*) AS n FROM shop.sales GROUP BY ALL),
            often AS (SELECT cust_id, min(product_id) AS product_id FROM (SELECT cust_id, product_id,
                rank() OVER (PARTITION BY cust_id ORDER BY n DESC) AS place FROM counts)
            WHERE place = 1 GROUP BY cust_id)
        SELECT s.cust_id, max(s.product_id) FILTER (WHERE s.amount = (SELECT max(amount) FROM shop.sales o
                WHERE o.cust_id = s.cust_id)) AS dear,
            min(often.product_id) AS often, sort_array(collect_set(s.product_id)) AS ids
        FROM shop.sales s JOIN often ON often.cust_id = s.cust_id GROUP BY s.cust_id""",
    ),
    "seconds": (
        """SELECT product_id, sale_id, nth_value(sale_id, 2) OVER w AS n, last_value(sale_id) OVER w AS hi,
            first_value(nullif(sale_id, 3)) IGNORE NULLS OVER w AS lo FROM shop.sales
            WINDOW w AS (PARTITION BY cust_id ORDER BY amount
                RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)""",
        """SELECT product_id, sale_id, nth_value(sale_id, 2) OVER w AS n, last_value(sale_id) OVER w AS hi,
            first_value(nullif(sale_id, 3)) IGNORE NULLS OVER w AS lo FROM shop.sales
            WINDOW w AS (PARTITION BY cust_id ORDER BY amount, product_id, sale_id
                ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)""",
    ),
    "texts": (
        """SELECT /*+ BROADCAST(s) */ cust_id, listagg(CAST(product_id AS STRING), ';') WITHIN GROUP
            (ORDER BY amount) AS products FROM shop.sales s GROUP BY cust_id SORT BY cust_id""",
        """SELECT cust_id, listagg(CAST(product_id AS STRING), ';') WITHIN GROUP
            (ORDER BY amount, CAST(product_id AS STRING)) AS products FROM shop.sales GROUP BY cust_id""",
    ),
    "middle": (
        "SELECT cust_id, product_id FROM shop.sales LIMIT 6 OFFSET 2",
        "SELECT cust_id, product_id FROM shop.sales ORDER BY cust_id, product_id LIMIT 6 OFFSET 2",
    ),
    "nested": (
        """SELECT struct(kind, parent_id) AS which, count(*) AS n, max(array(product_id, parent_id)) AS m
            FROM shop.product GROUP BY struct(kind, parent_id)""",
        """SELECT struct(kind, parent_id) AS which, count(*) AS n, max(array(product_id, parent_id)) AS m
            FROM shop.product GROUP BY kind, parent_id""",
    ),
    "single": (
        "SELECT n.which, e.id FROM nested n LATERAL VIEW explode(n.m) e AS id",
        "SELECT which, unnest(m) AS id FROM nested",
    ),
}
"""What SQL leaves open, and the same with what rollview promises about it."""

TIME_WINDOWS = {
    "tens": (
        """SELECT unix_seconds(window.start) AS began, unix_seconds(window.end) AS ended, cust_id,
                count(*) AS n FROM shop.sales
            GROUP BY window(timestamp_seconds(sale_id * 100), '10 minutes'), cust_id""",
        """SELECT sale_id * 100 DIV 600 * 600 AS began, sale_id * 100 DIV 600 * 600 + 600 AS ended, cust_id,
            count(*) AS n FROM shop.sales GROUP BY ALL""",
    ),
    "sliding": (
        """SELECT unix_seconds(w.start) AS began, n, total FROM (
            SELECT window(timestamp_seconds(sale_id * 100), '10 minutes', '4 minutes', '1 minute') AS w,
                count(*) AS n, sum(amount) AS total FROM shop.sales GROUP BY w HAVING count(*) > 1)""",
        """SELECT (sale_id * 100 - 60) DIV 240 * 240 + 60 - i * 240 AS began, count(*) AS n,
                sum(amount) AS total FROM shop.sales, (VALUES (0), (1), (2)) steps(i)
            WHERE (sale_id * 100 - 60) % 240 + i * 240 < 600 GROUP BY 1 HAVING count(*) > 1""",
    ),
    "sessions": (
        """SELECT cust_id, unix_seconds(session_window.start) AS began,
                unix_seconds(session_window.end) AS ended, count(*) AS n, max(amount) AS hi
            FROM shop.sales s WHERE amount <> 3
            GROUP BY session_window(timestamp_seconds(sale_id * 100), '5 minutes'), cust_id""",
        """SELECT cust_id, min(sale_id) * 100 AS began, max(sale_id) * 100 + 300 AS ended, count(*) AS n,
                max(amount) AS hi
            FROM (SELECT *, sum(CASE WHEN sale_id > before + 3 THEN 1 ELSE 0 END) OVER (PARTITION BY cust_id
                    ORDER BY sale_id) AS session
                FROM (SELECT *, lag(sale_id) OVER (PARTITION BY cust_id ORDER BY sale_id) AS before
                    FROM shop.sales WHERE amount <> 3))
            GROUP BY cust_id, session""",
    ),
    "written": (
        """SELECT s.cust_id, c.cust_id, 'it''s' AS word, r.id FROM shop.sales s
            JOIN crm.customer c ON s.cust_id = c.cust_id JOIN range(1, 4) r ON r.id = s.product_id
            LIMIT ALL""",
        """SELECT s.cust_id, c.cust_id AS cust_id_2, 'it' || chr(39) || 's' AS word, s.product_id AS id
            FROM shop.sales s JOIN crm.customer c ON s.cust_id = c.cust_id WHERE s.product_id IN (1, 2, 3)""",
    ),
    "numbers_kept": (
        "SELECT cust_id, sum(amount) AS total FROM shop.sales GROUP BY cust_id HAVING sum(amount) - 3",
        "SELECT cust_id, sum(amount) AS total FROM shop.sales GROUP BY cust_id HAVING sum(amount) - 3 <> 0",
    ),
    "numbers_asked": (
        """SELECT cust_id, max(amount) AS hi FROM shop.sales GROUP BY cust_id
            HAVING max(amount) - (SELECT min(product_id) FROM shop.product)""",
        """SELECT cust_id, max(amount) AS hi FROM shop.sales GROUP BY cust_id
            HAVING max(amount) - (SELECT min(product_id) FROM shop.product) <> 0""",
    ),
}
"""Spark's windows of time, and the same by numbers; texts that others read differently, or not at all."""

RECOMPUTED = {
    "below": """WITH RECURSIVE r(id, top, depth) AS (
            SELECT product_id, product_id, 0 FROM shop.product
            UNION ALL SELECT p.product_id, r.top, r.depth + 1 FROM shop.product p
                JOIN r ON p.parent_id = r.id WHERE r.depth < 2)
        SELECT top, id, depth FROM r""",
    "sold_below": """WITH RECURSIVE r AS (
            SELECT product_id AS id, product_id AS top, 0 AS depth FROM shop.product
            UNION ALL SELECT p.product_id, r.top, r.depth + 1 FROM shop.product p
                JOIN r ON p.parent_id = r.id WHERE r.depth < 2),
        sold AS (SELECT product_id, sum(amount) AS total FROM shop.sales GROUP BY product_id)
        SELECT r.top, sum(sold.total) AS total, count(*) AS n FROM r
        JOIN sold ON sold.product_id = r.id GROUP BY r.top""",
    "asked": """SELECT c.cust_id, s.sale_id, p.product_id FROM crm.customer c
        LEFT JOIN shop.sales s ON s.cust_id = c.cust_id
        RIGHT JOIN shop.product p ON p.product_id = c.cust_id
            AND s.product_id IN (SELECT parent_id FROM shop.product)""",
}


def _halves(name: str, views: dict[str, str]) -> list[object]:
    """Every other view, and the others, which are tried at length: a view takes seconds to set up."""
    some, others = (dict(list(views.items())[first::2]) for first in (0, 1))
    return [
        pytest.param(some, id=name),
        pytest.param(others, id=f"{name}, the others", marks=pytest.mark.soak),
    ]


@pytest.mark.parametrize(
    "views",
    [
        *_halves("joins", JOINS),
        *_halves("groups", GROUPS),
        *_halves("dependent", DEPENDENT),
        *_halves("recomputed", RECOMPUTED),
    ],
)
def test_oracle_every_csn(shop: Shop, spark: SparkSession, views: dict[str, str]) -> None:
    shop.views = views
    _check(shop, spark, views)


@pytest.mark.parametrize("views", [TIES, TIME_WINDOWS], ids=["ties", "time_windows"])
def test_oracle_of_what_is_meant(shop: Shop, spark: SparkSession, views: dict[str, tuple[str, str]]) -> None:
    shop.views = {name: sql for name, (sql, _) in views.items()}
    _check(shop, spark, {name: meant for name, (_, meant) in views.items()})


def _check(shop: Shop, spark: SparkSession, meaning: dict[str, str]) -> None:
    """The views at every csn against what DuckDB makes of their meaning."""
    shop.write_project()
    transact(shop, 20)
    shop.begin()
    with Project.open(shop.folder, spark) as project:
        project.setup()
        for steps in (3, 13):
            transact(shop, steps)
            project.run(once=True)
        shop.views = meaning
        check_every_csn(shop, project)
