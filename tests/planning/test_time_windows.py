"""Windows of time are accepted where Spark accepts them, and refused with a reason elsewhere.

What they mean is judged at every csn in `tests/service/test_any_query.py`.
"""

from __future__ import annotations

import pytest

from rollview.algebra.relation import Table
from rollview.algebra.view import View
from rollview.errors import UnsupportedError, ViewError
from rollview.planning import parse_view

TABLES = (Table("s", "t", ("k", "at", "x"), ("k",)), Table("s", "u", ("k", "y"), ("k",)))


def _view(sql: str) -> View:
    return parse_view(sql, TABLES, "v")


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("SELECT window, count(*) AS n FROM s.t GROUP BY window(at, '1 hour')", ("window", "n")),
        ("SELECT window(at, '1 hour'), sum(x) AS n FROM s.t GROUP BY 1", ("window", "n")),
        ("SELECT window.end, t.k FROM s.t GROUP BY t.k, window(t.at, '90 seconds')", ("end", "k")),
        ("SELECT window(at, '1 day').start AS day, x FROM s.t", ("day", "x")),
        (
            """SELECT window.start, max(u.y) AS y FROM s.t JOIN s.u ON t.k = u.k
            GROUP BY window(at, '10 minutes', '3 minutes', '30 seconds') HAVING window.end > '2026-01-01'
            ORDER BY window LIMIT 3""",
            ("start", "y"),
        ),
        (
            "SELECT window_time(w) AS last FROM (SELECT window(at, '2 hours') AS w FROM s.t GROUP BY w)",
            ("last",),
        ),
        (
            "SELECT session_window, k FROM s.t GROUP BY k, session_window(at, '1 week')",
            ("session_window", "k"),
        ),
        ("SELECT sum(x) OVER window AS total FROM s.t WINDOW window AS (PARTITION BY k)", ("total",)),
    ],
)
def test_windows_are_accepted(sql: str, names: tuple[str, ...]) -> None:
    assert _view(sql).root.output_columns == names


def test_overlapping_windows_make_a_row_for_each() -> None:
    tumbling = _view("SELECT window.start, count(*) AS n FROM s.t GROUP BY window(at, '6 minutes')")
    sliding = _view(
        "SELECT window.start, count(*) AS n FROM s.t GROUP BY window(at, '6 minutes', '2 minutes')"
    )
    assert "EXPLODE(SEQUENCE(0, 2))" not in str(tumbling)
    assert "EXPLODE(SEQUENCE(0, 2))" in str(sliding)


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT window.start FROM s.t GROUP BY window(at, '1 month')", "'1 month' is no duration"),
        ("SELECT window.start FROM s.t GROUP BY window(at, x)", "x is no duration"),
        ("SELECT window.start FROM s.t GROUP BY window(at, '1 hour', '2 hours')", "at least as often"),
        ("SELECT window.start FROM s.t GROUP BY window(at)", "a moment and a duration"),
        (
            "SELECT window(at, '1 hour') AS a, window(at, '2 hours') AS b FROM s.t",
            "a second window of time",
        ),
    ],
)
def test_what_is_refused(sql: str, reason: str) -> None:
    with pytest.raises((ViewError, UnsupportedError), match=reason):
        _view(sql)


def test_sessions_over_a_join_are_recomputed() -> None:
    view = _view(
        "SELECT session_window.end FROM s.t JOIN s.u ON t.k = u.k GROUP BY session_window(at, '1 hour')"
    )
    assert view.root.method == "full"


def test_functions_of_keys_that_only_spark_knows() -> None:
    view = _view("SELECT initcap(reverse(t.x)) AS a, count(*) AS n FROM s.t GROUP BY reverse(x)")
    assert view.root.output_columns == ("a", "n")
    with pytest.raises(ViewError, match="neither grouped nor aggregated"):
        _view("SELECT initcap(reverse(t.at)) AS a, count(*) AS n FROM s.t GROUP BY reverse(x)")
