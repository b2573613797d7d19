"""What SQL leaves open about rows that are ordered alike, a view's exact text decides."""

from __future__ import annotations

import pytest

from rollview.algebra.relation import Table
from rollview.errors import ViewError
from rollview.planning import parse_view

TABLES = (Table("s", "t", ("k", "day", "x", "word"), ("k",)),)

COMPLETED = [
    ("SELECT k FROM s.t ORDER BY x DESC -- largest\nLIMIT 2", "ORDER BY x DESC -- largest\n, 1 LIMIT 2"),
    ("SELECT * FROM s.t ORDER BY x OFFSET 2", "ORDER BY x , 1, 2, 3, 4 OFFSET 2"),
    ("SELECT k, x FROM s.t LIMIT 3 OFFSET 2", "FROM s.t ORDER BY 1, 2 LIMIT 3 OFFSET 2"),
    ("SELECT k, (SELECT word FROM s.t LIMIT 1) AS w FROM s.t", "FROM s.t ORDER BY 1 LIMIT 1) AS w"),
    ("SELECT k FROM s.t UNION ALL SELECT x FROM s.t ORDER BY k LIMIT 2", "ORDER BY k , 1 LIMIT 2"),
    ("WITH a AS (SELECT * FROM s.t) SELECT * FROM a ORDER BY x LIMIT 2", "ORDER BY x , 1, 2, 3, 4 LIMIT 2"),
    ("SELECT k, lag(x) OVER (ORDER BY day) AS l FROM s.t", "ORDER BY day, k, x, day )"),
    ("SELECT *, ntile(2) OVER (ORDER BY day) AS n FROM s.t", "ORDER BY day, struct(*), day )"),
    ("SELECT k, first_value(x) OVER (ORDER BY day) AS f FROM s.t", "ORDER BY day, k, x, day )"),
    (
        "SELECT k, sum(x) OVER (ORDER BY day ROWS 2 PRECEDING) AS f FROM s.t",
        "day , k, x, day ROWS 2 PRECEDING)",
    ),
    ("SELECT k, row_number() OVER w AS r FROM s.t WINDOW w AS (ORDER BY day)", "AS (ORDER BY day, k )"),
    ("SELECT x FROM s.t QUALIFY row_number() OVER (PARTITION BY word ORDER BY day) = 1", "BY day, x ) = 1"),
    ("SELECT word AS w, row_number() OVER (ORDER BY sum(x)) AS r FROM s.t GROUP BY w", "BY sum(x), word )"),
    (
        "SELECT row_number() OVER (ORDER BY sum(x)) AS r FROM s.t GROUP BY CUBE (k)",
        "sum(x), k, grouping_id() )",
    ),
    (
        "SELECT max_by(k, x + 1) AS m FROM s.t",
        "max_by(k, CASE WHEN (x + 1) IS NOT NULL THEN struct(x + 1, k) END)",
    ),
    ("SELECT min_by(DISTINCT k, x) AS m FROM s.t", "THEN struct(x, k) END"),
    ("SELECT mode(x) AS m FROM s.t", "SELECT mode(x, true) AS m"),
]
LEFT_ALONE = [
    "SELECT k FROM s.t ORDER BY ALL LIMIT 2",
    "SELECT k FROM s.t ORDER BY x",
    "SELECT k, rank() OVER (ORDER BY day) AS r FROM s.t",
    "SELECT k, last_value(x) OVER (ORDER BY day) AS l FROM s.t",
    "SELECT k, first_value(x) OVER (ORDER BY day RANGE CURRENT ROW) AS f FROM s.t",
    "SELECT k, first_value(x) IGNORE NULLS OVER (ORDER BY day) AS f FROM s.t",
    "SELECT k, row_number() OVER w AS r, rank() OVER w AS p FROM s.t WINDOW w AS (ORDER BY day)",
    "SELECT mode(x, true) AS m FROM s.t",
    "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY x) AS m FROM s.t",
]


@pytest.mark.parametrize(("sql", "exact"), COMPLETED)
def test_orders_are_completed_where_it_matters(sql: str, exact: str) -> None:
    view = parse_view(sql, TABLES, "v")
    assert view.sql == sql
    assert exact in view.exact_sql


@pytest.mark.parametrize("sql", LEFT_ALONE)
def test_other_texts_stay_as_they_are(sql: str) -> None:
    assert parse_view(sql, TABLES, "v").exact_sql == sql


@pytest.mark.parametrize(("sql", "_"), COMPLETED)
def test_a_stage_is_found_again_by_its_own_text(sql: str, _: str) -> None:
    view = parse_view(sql, TABLES, "v")
    for stage in view.parts[:-1]:
        again = parse_view(stage.sql, TABLES, stage.name)
        assert [part.name for part in again.parts] == [part.name for part in stage.parts]


def test_a_mistake_is_reported_at_its_place() -> None:
    with pytest.raises(ViewError, match=r"unknown column `no` \(line 1, column 73\)"):
        parse_view(
            "SELECT max_by(k, x) AS m FROM s.t UNION ALL (SELECT k FROM s.t ORDER BY no LIMIT 1)", TABLES
        )
