"""The text that Spark gets: other names for relations, and nothing of a WITH that nothing uses."""

from __future__ import annotations

import pytest

from rollview.sql.text.splice import query_with

UNUSED = {
    "WITH a AS (SELECT * FROM s.t) SELECT k FROM v": "SELECT k FROM R_v AS v",
    "WITH a AS (DELETE FROM v) SELECT 1": "SELECT 1",
    "WITH a AS (SELECT 1 x), b(y) AS (SELECT * FROM a) SELECT * FROM v": "SELECT * FROM R_v AS v",
    "WITH a AS (SELECT 1), b AS (SELECT * FROM s.t), c AS (SELECT 2) SELECT * FROM a": (
        "WITH a AS (SELECT 1) SELECT * FROM a"
    ),
    "WITH a AS (SELECT 1), b AS (SELECT 2), c AS (SELECT 3) SELECT * FROM b": (
        "WITH b AS (SELECT 2) SELECT * FROM b"
    ),
    "WITH a AS (SELECT 1), b AS (SELECT * FROM a) (SELECT * FROM b, s.t)": (
        "WITH a AS (SELECT 1), b AS (SELECT * FROM a) (SELECT * FROM b, R_s_t AS t)"
    ),
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n FROM r), q AS (SELECT * FROM v) SELECT n FROM r": (
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n FROM r) SELECT n FROM r"
    ),
    "WITH RECURSIVE r AS (SELECT 1 n UNION ALL SELECT n + 1 FROM r) SELECT 1": "SELECT 1",
    "SELECT x.* FROM (WITH a AS (WITH z AS (SELECT 1) SELECT * FROM z, v) SELECT 1) x, v": (
        "SELECT x.* FROM ( SELECT 1) x, R_v AS v"
    ),
    "WITH `a b` AS (SELECT ')', (1) FROM s.t) SELECT 5 FROM s.t": "SELECT 5 FROM R_s_t AS t",
    "CREATE MATERIALIZED VIEW m AS WITH a AS (SELECT * FROM s.t) SELECT k FROM v": "SELECT k FROM R_v AS v",
}


@pytest.mark.parametrize(("sql", "text"), UNUSED.items())
def test_what_a_with_names_and_nothing_uses_is_left_out(sql: str, text: str) -> None:
    assert query_with(sql, lambda name: f"R_{name.replace('.', '_')}").strip() == text
