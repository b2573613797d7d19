"""A view that is computed as a whole, as one step of its delta: exact behind it, and nothing else in it."""

from __future__ import annotations

from random import Random

import pytest
from any_query import AnyQuery
from test_oracle_any_query import TABLES, bags, history

from rollview.algebra.bag import keep
from rollview.algebra.history import CSN
from rollview.algorithms.effects import ContentsAt, ForwardQuery, Interval, Publish, StateAt
from rollview.algorithms.recomputing import recompute
from rollview.lab.memory.bag import MemoryBag
from rollview.planning import parse_view
from rollview.views.content import block_contents

QUERIES = 40


@pytest.mark.parametrize("part", range(4))
def test_oracle_any_query_is_recomputed(part: int) -> None:
    """From any state to any later one: rolled along the step, the state is that of a load."""
    changed = 0
    for seed in range(part * QUERIES, (part + 1) * QUERIES):
        random = Random(seed)
        view = parse_view(AnyQuery(random).query(random.choice((1, 2, 3))), TABLES, "v")
        known = [dict(bags(state)) for state in history(random)]
        for each in view.parts:
            contents = [list(block_contents(each.root, tables)) for tables in known]
            states = [each.root.state_of(iter(content)) for content in contents]
            query = ForwardQuery(each.name, 0, None)
            process = recompute(each, [query], Interval(1, 4))
            assert next(process) == StateAt(each.name, 1)
            assert process.send(states[1]) == ContentsAt(each.name, 4)
            published = process.send(contents[4])
            assert isinstance(published, Publish)
            assert published.moves == ((query, 4),)
            delta = published.delta
            assert isinstance(delta, MemoryBag)
            assert each.root.roll(states[1], delta) == states[4], (seed, each.name)
            assert {row[delta.columns.index(CSN)] for row in delta.counts} <= {4}
            rows = each.root.row_delta(states[1], delta, 1)
            shown = each.root.present(states[1])
            after = shown.plus(rows.project(keep(shown.columns)))
            assert after == each.root.present(states[4]), (seed, each.name)
            changed += bool(rows.counts)
            for tables, state in zip(known, states, strict=True):
                tables[each.name] = each.root.present(state)
    assert changed > QUERIES


@pytest.mark.parametrize("sql", ["SELECT k, x FROM north.t", "SELECT k, sum(x) AS s FROM north.t GROUP BY k"])
def test_what_did_not_change_is_not_in_the_step(sql: str) -> None:
    view = parse_view(sql, TABLES, "v")
    (tables, *_) = (bags(state) for state in history(Random(6)))
    content = list(block_contents(view.root, tables))
    process = recompute(view, [], Interval(0, 3))
    next(process)
    process.send(view.root.state_of(iter(content)))
    assert not process.send(content).delta.counts
