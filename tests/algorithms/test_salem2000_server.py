"""Oracles for the server and the world of points that the tests of salem2000 stand on."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from rollview.algebra.history import CSN
from rollview.algorithms.effects import Interval
from rollview.algorithms.salem2000.execute import execute, view_query
from rollview.lab.examples.one_server import points
from rollview.lab.memory.bag import MemoryBag

clocks = st.lists(st.integers(0, 2), min_size=0, max_size=30)
"""How much later each execution is than the one before it."""


def tick(start: int, steps: Iterable[int], last: int) -> list[int]:
    """Execution times from their distances, none after the end of the world."""
    times = []
    for step in steps:
        start = min(start + step, last)
        times.append(start)
    return times


@given(st.integers(1, 4), st.integers(0, 3), st.integers(0, 4), st.randoms(use_true_random=False))
def test_oracle_execute_sees_all_base_tables_at_one_time(
    relations: int, lead: int, at: int, random_: random.Random
) -> None:
    """Whatever the sources answer, and with any mixture of base and delta tables."""
    server = points(relations, 6)
    server.lead = lead
    query = view_query(server.block)
    for position in random_.sample(range(relations), random_.randint(1, relations)):
        after = random_.randint(0, at)
        query = query.with_delta(position, Interval(after, random_.randint(after, at)))
    query = random_.choice([query, query.negated()])
    server.clock = [at]
    rows, executed = server.run(execute(server.block, query))
    assert executed == at
    spans = [range(at + 1) if d is None else range(d.after + 1, d.upto + 1) for d in query.deltas]
    stamped = (
        (*point, min(point[position] for position in query.delta_positions)) for point in product(*spans)
    )
    assert rows == MemoryBag.of_pairs(rows.columns, ((row, query.sign) for row in stamped))


def test_a_query_of_delta_tables_only_asks_nobody() -> None:
    server = points(2, 3)
    server.clock = [3]
    query = view_query(server.block).with_delta(0, Interval(0, 2)).with_delta(1, Interval(1, 3))
    rows, _ = server.run(execute(server.block, query))
    assert len(rows.counts) == 4
    assert server.questions == 0
    assert server.compensated == 4


def test_a_query_whose_delta_tables_join_to_nothing_asks_nobody() -> None:
    server = points(3, 3)
    query = view_query(server.block).with_delta(1, Interval(2, 2))
    rows, _ = server.run(execute(server.block, query))
    assert rows.is_empty()
    assert rows.columns == (*server.block.output_columns, CSN)
    assert (server.executions, server.questions) == (1, 0)


def test_a_vector_of_times_is_honoured() -> None:
    """R¹ at 1, R³ at 2, while both are at 3: what §2 calls not realizable."""
    server = points(3, 3)
    server.commit_upto(3)
    query = view_query(server.block).with_delta(1, Interval(1, 2))
    rows, _ = server.run(execute(server.block, query, (1, 2, 2)))
    assert {row[:3] for row in rows.counts} == set(product(range(2), [2], range(3)))
