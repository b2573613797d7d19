"""Whatever stored states a query is computed from, its answer is DuckDB's over the tables themselves.

Random queries, and random views that have more or less of what they need: fewer relations, weaker or other
conditions, other columns, groups that are finer, coarser or just different. Tables have no keys, many
duplicates and NULLs. Every way that is found is computed on bags in memory.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rollview.algebra.node import Node
from rollview.algebra.relation import Table
from rollview.algebra.view import View
from rollview.answer.rewriting import ParsedQuery, StoredState, Way, obstacle, state_name, ways_of_parts
from rollview.lab.memory.bag import MemoryBag
from rollview.planning import parse_view
from rollview.views.content import block_contents
from rollview.views.lookup import used_tables

sys.path.insert(0, str(Path(__file__).parents[1] / "service"))

from oracle import Oracle, frozen
from random_selects import TEXT, WHOLE, Select, World

TABLES = {
    "m.r": Table("m", "r", ("k", "g", "x", "t"), types=(WHOLE, WHOLE, WHOLE, TEXT)),
    "m.s": Table("m", "s", ("k", "h", "y"), types=(WHOLE, WHOLE, WHOLE)),
    "m.u": Table("m", "u", ("h", "z", "t"), types=(WHOLE, WHOLE, TEXT)),
}
DUCK = {
    name: ", ".join(
        f"{column} {'BIGINT' if kind == WHOLE else 'VARCHAR'}"
        for column, kind in zip(table.columns, table.types, strict=True)
    )
    for name, table in TABLES.items()
}
JOINS = (
    ("m.r", "k", "m.s", "k"),
    ("m.s", "h", "m.u", "h"),
    ("m.r", "t", "m.u", "t"),
    ("m.r", "g", "m.r", "k"),
)
WORLD = World(TABLES, JOINS)
Rows = tuple[tuple[Any, ...], ...]


def _rows(chance: Random) -> dict[str, Rows]:
    def value(kind: str) -> Any:
        return chance.choice([None, 0, 1, 2, 3] if kind == WHOLE else [None, "a", "b"])

    return {
        name: tuple(tuple(map(value, table.types)) for _ in range(chance.randint(0, 9)))
        for name, table in TABLES.items()
    }


def _parsed(sql: str, name: str) -> View:
    """A view over no more columns than it uses, as it is set up, or a query."""
    view = parse_view(sql, TABLES.values(), name)
    return parse_view(sql, used_tables(view, TABLES.values()).values(), name)


def _stored(views: list[str]) -> list[StoredState]:
    parsed = [_parsed(sql, f"v{place}") for place, sql in enumerate(views)]
    parts = [part for view in parsed for part in view.stored_parts]
    # Types of sums and stages do not matter here, where all numbers are whole ones.
    return [
        StoredState(part, tuple((name, _type(part, name)) for name in part.root.state_columns), _shown(part))
        for part in parts
    ]


def _shown(part: View) -> tuple[tuple[str, str], ...]:
    return tuple((name, "") for name in part.root.output_columns)


@dataclass(frozen=True)
class _Layout:
    columns: tuple[tuple[str, str], ...]


def _type(part: View, name: str) -> str:
    """The type of a stored column, as far as it is a column of a table."""
    form = part.root.form
    known = form and form.types.get(getattr(form.columns.get(name), "name", ""))
    return known or (WHOLE if form and form.keys is not None else "")


def _filled(stored: list[StoredState], bags: dict[str, MemoryBag]) -> dict[str, MemoryBag]:
    """All tables, stages and states by the names that blocks call them."""
    known = dict(bags)
    for state in stored:
        root = state.view.root
        bag = root.state_of(block_contents(root, known))
        known |= {state.name: root.present(bag), state_name(state.name): bag}
    return known


def _answers(
    query: View, stored: list[StoredState], known: dict[str, MemoryBag]
) -> list[tuple[Way, MemoryBag]]:
    """The rows of each way to compute the last part of a query, from the first way for all other parts."""
    layouts: Any = {part.name: _Layout(_shown(part)) for part in query.parts}
    found: list[tuple[Way, MemoryBag]] = []
    for name, ways in ways_of_parts(ParsedQuery(query, layouts, (), ""), stored).items():
        found = [(way, way.root.rows_of(block_contents(way.root, known))) for way in ways]
        known = {**known, name: found[0][1]}
    return found


def _counted(bag: MemoryBag) -> Counter[Any]:
    return Counter({frozen(row): count for row, count in bag.net_effect().counts.items()})


@pytest.mark.parametrize("seed", range(3))
def test_oracle_every_way_gives_the_answer(seed: int) -> None:
    chance, seen = Random(seed), Counter[str]()
    for _ in range(40):
        select = Select(chance, WORLD)
        sql = select.sql(0.3, 0.6)
        views = [select.weaker().sql(0.9, 0.4) for _ in range(3)]
        stored, query = _stored(views), _parsed(sql, "query")
        oracle = Oracle(DUCK, {"query": sql})
        for _ in range(2):
            rows = _rows(chance)
            bags = {name: MemoryBag.of(TABLES[name].columns, each) for name, each in rows.items()}
            expected = oracle.answers(["query"], rows)["query"]
            for way, answer in _answers(query, stored, _filled(stored, bags)):
                uses = [use.stored for use in way.uses]
                assert _counted(answer) == expected, (sql, views, uses, rows)
                seen[f"{len(uses)} states"] += 1
                if uses and any(each.source for block in way.root.blocks for each in _read(block)):
                    seen["states and tables"] += 1
                if any(_is_grouped(stored, each) for each in uses):
                    seen["groups"] += 1
                if any(len(_stored_root(stored, each).terms) > 1 for each in uses):
                    seen["outer joins"] += 1
        oracle.close()
    # Nothing is proved by queries for which nothing is found.
    assert all(seen[each] > 4 for each in ("1 states", "2 states", "states and tables", "groups")), seen


def _read(block: Any) -> list[Table]:
    return [relation.table for relation in block.relations]


def _is_grouped(stored: list[StoredState], name: str) -> bool:
    form = _stored_root(stored, name).form
    return form is not None and form.keys is not None


def _stored_root(stored: list[StoredState], name: str) -> Node:
    return next(each.view.root for each in stored if each.name == name)


LINES = "SELECT r.k, r.g, r.x, s.h, s.y FROM m.r r LEFT JOIN m.s s ON r.k = s.k"
COVERED = {
    "an outer join with less of it": (
        [LINES],
        "SELECT a.x + 1 AS more, b.y FROM m.r a LEFT JOIN m.s b ON b.k = a.k WHERE a.g > 1",
    ),
    "an inner join from an outer one": (
        [LINES],
        "SELECT r.x, s.y FROM m.r r, m.s s WHERE r.k = s.k AND s.y > 1",
    ),
    "groups of an outer join": (
        [LINES],
        "SELECT r.g, count(s.y) AS n, max(s.h) AS h FROM m.r r LEFT JOIN m.s s ON r.k = s.k GROUP BY r.g",
    ),
    "a query that is a view": (
        ["SELECT r.g, s.h, count(*) AS n FROM m.r r LEFT JOIN m.s s ON r.k = s.k GROUP BY r.g, s.h"],
        "SELECT a.g, b.h, count(*) AS n FROM m.r a LEFT JOIN m.s b ON a.k = b.k GROUP BY a.g, b.h",
    ),
    "groups of groups": (
        ["SELECT t.n, count(*) AS c FROM (SELECT g, k, count(*) AS n FROM m.r GROUP BY g, k) t GROUP BY t.n"],
        "SELECT v.n > 1 AS many, count(*) AS c FROM (SELECT g, k, count(*) AS n FROM m.r GROUP BY g, k) v "
        "GROUP BY v.n > 1",
    ),
    "UNION ALL with a condition": (
        ["SELECT k, g, x FROM m.r WHERE x > 0 UNION ALL SELECT k, h, y FROM m.s"],
        "SELECT * FROM (SELECT k, g FROM m.r WHERE x > 0 UNION ALL SELECT k, h FROM m.s) t WHERE t.k > 1",
    ),
    "groups joined with a table": (
        ["SELECT k, g, count(*) AS n, sum(x) AS total FROM m.r WHERE x > 0 GROUP BY k, g"],
        "SELECT s.h, sum(r.x) AS total, count(*) AS n, avg(s.y) AS mean FROM m.r r JOIN m.s s ON r.k = s.k "
        "WHERE r.x >= 1 AND r.g IN (1, 2) GROUP BY s.h",
    ),
    "two views and a table": (
        ["SELECT k, x, t FROM m.r WHERE x > 0", "SELECT k AS kk, h FROM m.s WHERE y IS NOT NULL"],
        "SELECT r.x, u.z FROM m.r r, m.s s, m.u u WHERE r.k = s.k AND s.h = u.h AND r.x > 1 "
        "AND s.y IS NOT NULL",
    ),
    "a column by its equal": (
        ["SELECT r.k, r.x FROM m.r r, m.s s WHERE r.k = s.k"],
        "SELECT s.k FROM m.r r, m.s s WHERE s.k = r.k",
    ),
    "a constant": (["SELECT x FROM m.r WHERE t = 'a'"], "SELECT x, t FROM m.r WHERE t = 'a'"),
    "an alias like those of states": (
        ["SELECT k, x AS h FROM m.r"],
        "SELECT `Stored 1`.h, r.x FROM m.s `Stored 1`, m.r r WHERE r.k = `Stored 1`.k",
    ),
    "a single group without rows": (
        ["SELECT count(*) AS n FROM m.r WHERE x > 2"],
        "SELECT s.h, count(*) AS n FROM m.r r, m.s s WHERE r.x > 2 GROUP BY s.h",
    ),
}
REFUSED = {
    "a column that is not there": (["SELECT k FROM m.r"], "SELECT k, x FROM m.r", "it does not have"),
    "rows that are not there": (
        ["SELECT k, x FROM m.r WHERE x > 2"],
        "SELECT k FROM m.r WHERE x > 1",
        "its rows are those with",
    ),
    "a condition that cannot be seen": (
        ["SELECT k FROM m.r"],
        "SELECT k FROM m.r WHERE x > 1",
        "does not have",
    ),
    "a join that cannot be made": (
        ["SELECT r.k, r.x, s.y FROM m.r r, m.s s"],
        "SELECT r.k FROM m.r r, m.s s WHERE r.k = s.k",
        "does not have",
    ),
    "rows of groups": (
        ["SELECT k, count(*) AS n FROM m.r GROUP BY k"],
        "SELECT k FROM m.r",
        "rows are needed",
    ),
    "a sum that is not kept": (
        ["SELECT k, count(*) AS n FROM m.r GROUP BY k"],
        "SELECT k, sum(x) AS s FROM m.r GROUP BY k",
        "it has no sum of",
    ),
    "more tables": (
        ["SELECT r.k, s.y FROM m.r r, m.s s WHERE r.k = s.k"],
        "SELECT k FROM m.r",
        "it joins m.s",
    ),
    "an inner join without what tells it": (
        [LINES],
        "SELECT r.x FROM m.r r, m.s s WHERE r.k = s.k",
        "sum of joins",
    ),
    "another outer join": (
        [LINES],
        "SELECT r.x, s.y FROM m.r r LEFT JOIN m.s s ON r.k = s.k AND s.y > 1",
        "",
    ),
    "values of a distinct view": (
        ["SELECT DISTINCT k, x FROM m.r"],
        "SELECT k, x FROM m.r",
        "rows are needed",
    ),
}


def _all_ways(views: list[str], sql: str, seeds: range) -> Iterator[tuple[Way, bool]]:
    """Each way to answer a query, and whether its answer is DuckDB's."""
    stored, query = _stored(views), _parsed(sql, "query")
    oracle = Oracle(DUCK, {"query": sql})
    for seed in seeds:
        rows = _rows(Random(seed))
        bags = {name: MemoryBag.of(TABLES[name].columns, each) for name, each in rows.items()}
        expected = oracle.answers(["query"], rows)["query"]
        for way, answer in _answers(query, stored, _filled(stored, bags)):
            yield way, _counted(answer) == expected
    oracle.close()


@pytest.mark.parametrize(("views", "sql"), COVERED.values(), ids=COVERED)
def test_oracle_views_that_contain_a_query(views: list[str], sql: str) -> None:
    ways = list(_all_ways(views, sql, range(6)))
    assert all(is_right for _, is_right in ways)
    # One of them does with the views alone, or with all of them.
    assert any(
        {use.stored.partition("$")[0] for use in way.uses} == {f"v{n}" for n in range(len(views))}
        for way, _ in ways
    )


@pytest.mark.parametrize(("views", "sql", "why"), REFUSED.values(), ids=REFUSED)
def test_views_that_do_not_contain_a_query(views: list[str], sql: str, why: str) -> None:
    ways = list(_all_ways(views, sql, range(4)))
    assert all(not way.uses and is_right for way, is_right in ways)
    (state,) = [each for each in _stored(views) if each.name == "v0"]
    assert why in obstacle(_parsed(sql, "query").root, state)
