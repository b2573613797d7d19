"""A state that follows from what is stored of another one is the state that its own relations give."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from rollview.algebra.derivation import derive
from rollview.algebra.relation import Table
from rollview.algebra.view import View
from rollview.lab.memory.bag import MemoryBag
from rollview.planning import parse_view
from rollview.views.content import block_contents

TABLES = (Table("s", "t", ("k", "x", "y")), Table("s", "u", ("k", "z")))
JOIN = "SELECT t.k, t.x + 1 AS more, t.y, u.z FROM s.t JOIN s.u ON t.k = u.k"
GROUPS = "SELECT k, count(*) AS n, sum(x) AS total, avg(y) AS mean FROM s.t GROUP BY k"
VALUES = "SELECT k, max(x) AS high, min(y) AS low FROM s.t GROUP BY k"
WINDOW = "SELECT k, x, y, sum(x) OVER (PARTITION BY k) AS total FROM s.t"

FOLLOWS = {
    "a column is left out": (JOIN, "SELECT t.k, u.z FROM s.t JOIN s.u ON t.k = u.k"),
    "another name": (JOIN, "SELECT t.k AS key, t.y, u.z AS zed FROM s.t JOIN s.u ON t.k = u.k"),
    "a condition on a column": (JOIN, f"{JOIN} WHERE t.y > 1"),
    "a condition on what is computed": (JOIN, f"{JOIN} WHERE t.x + 1 < 3 AND u.z IS NOT NULL"),
    "a column of stored ones": (JOIN, "SELECT t.y * u.z AS p, t.k FROM s.t JOIN s.u ON t.k = u.k"),
    "an output of sums": (GROUPS, "SELECT k, sum(x) / count(*) AS q FROM s.t GROUP BY k"),
    "groups by a key": (GROUPS, "SELECT k, sum(x) AS total FROM s.t WHERE k > 0 GROUP BY k"),
    "a function of values": (VALUES, "SELECT k, min(x) AS low, count(DISTINCT y) AS d FROM s.t GROUP BY k"),
    "values that meet a condition": (VALUES, "SELECT k, max(x) AS high FROM s.t WHERE y = 1 GROUP BY k"),
    "another window": (WINDOW, "SELECT k, max(y) OVER (PARTITION BY k) AS high FROM s.t"),
    "fewer keys": (
        "SELECT k, y, sum(x) AS s FROM s.t GROUP BY k, y",
        "SELECT k, sum(x) AS s, count(*) AS n FROM s.t WHERE y > 0 GROUP BY k",
    ),
    "a function of keys": (GROUPS, "SELECT k % 2 AS odd, avg(y) AS mean FROM s.t GROUP BY k % 2"),
    "no keys": (GROUPS, "SELECT sum(x) AS total, count(*) AS n FROM s.t"),
    "no keys of nothing": (GROUPS, "SELECT sum(x) AS total, count(*) AS n FROM s.t WHERE k > 99"),
    "sums of rows": ("SELECT k, x FROM s.t", "SELECT k, sum(x) AS s, count(*) AS n FROM s.t GROUP BY k"),
    "one sum of rows": (JOIN, "SELECT sum(u.z) AS s FROM s.t JOIN s.u ON t.k = u.k WHERE t.y > 1"),
    "other names and another order": (
        JOIN,
        "SELECT b.k, a.z FROM s.u a JOIN s.t b ON a.k = b.k WHERE 1 < b.y",
    ),
    "the same relation twice": (
        "SELECT a.x, b.y FROM s.t a JOIN s.t b ON a.k = b.k AND a.x < b.x",
        "SELECT two.x, one.y FROM s.t one JOIN s.t two ON one.k = two.k WHERE one.x > two.x",
    ),
    "values of fewer keys": (
        "SELECT k, y, max(x) AS high FROM s.t GROUP BY k, y",
        "SELECT k, min(x) AS low FROM s.t GROUP BY k",
    ),
    "a window of rows": ("SELECT k, x, y FROM s.t", WINDOW),
}
DOES_NOT = {
    "a column that is not stored": (JOIN, "SELECT t.x, u.z FROM s.t JOIN s.u ON t.k = u.k"),
    "a condition less": (f"{JOIN} WHERE t.y > 1", JOIN),
    "another join": (JOIN, "SELECT t.k, t.y FROM s.t JOIN s.u ON t.y = u.k"),
    "one relation less": (JOIN, "SELECT t.k, t.y FROM s.t"),
    "a sum that is not kept": (GROUPS, "SELECT k, sum(x * x) AS s FROM s.t GROUP BY k"),
    "a condition below sums": (GROUPS, "SELECT k, sum(x) AS total FROM s.t WHERE x > 0 GROUP BY k"),
    "the same relation the other way": (
        "SELECT a.x, b.y FROM s.t a JOIN s.t b ON a.k = b.k AND a.x < b.x",
        "SELECT one.x, two.y FROM s.t one JOIN s.t two ON one.k = two.k WHERE one.x > two.x",
    ),
    "rows of groups": (GROUPS, "SELECT k FROM s.t"),
    "rows of sums": (GROUPS, "SELECT k, x FROM s.t"),
    "a key that is not stored": (GROUPS, "SELECT y, sum(x) AS total FROM s.t GROUP BY y"),
    "aliases with dots, the other way round": (
        "SELECT `.a`.k AS c FROM s.t `.a` CROSS JOIN s.u `.b`",
        "SELECT `.a`.k AS c FROM s.u `.a` CROSS JOIN s.t `.b`",
    ),
    "one group of values": ("SELECT max(x) AS a FROM s.t", "SELECT min(x) AS a FROM s.t"),
}


def _contents(view: View, random: Random) -> Iterator[MemoryBag]:
    def value() -> int | None:
        return random.choice([None, 0, 1, 2, 3])

    tables = {
        table.qualified: MemoryBag.of(
            table.columns, [tuple(value() for _ in table.columns) for _ in range(12)]
        )
        for table in TABLES
    }
    return iter(list(block_contents(view.root, tables)))


@pytest.mark.parametrize(("old", "new"), FOLLOWS.values(), ids=FOLLOWS)
def test_oracle_it_is_the_state_of_the_relations(old: str, new: str) -> None:
    before, after = (parse_view(sql, TABLES, "v") for sql in (old, new))
    derivation = derive(after.root.form, before.root.form)
    assert derivation is not None
    for seed in range(20):
        stored = before.root.state_of(_contents(before, Random(seed)))
        expected = after.root.state_of(_contents(after, Random(seed)))
        found = derivation.run(stored)
        assert (found.columns, found.counts) == (expected.columns, expected.counts)


@pytest.mark.parametrize(("old", "new"), DOES_NOT.values(), ids=DOES_NOT)
def test_what_does_not_follow(old: str, new: str) -> None:
    before, after = (parse_view(sql, TABLES, "v") for sql in (old, new))
    assert derive(after.root.form, before.root.form) is None
