"""salem2000 §3.1 to §3.3: the synchronous expansions, ComputeDelta, Propagate, and the paper's examples."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_salem2000_server import clocks, tick

from rollview.algorithms.effects import ForwardQuery, Interval
from rollview.algorithms.salem2000 import compute_delta, execute, propagate
from rollview.algorithms.salem2000.compute_delta import view_delta
from rollview.algorithms.salem2000.execute import PropagationQuery, view_query
from rollview.algorithms.salem2000.synchronous import equation_one, equation_two, equation_two_per_transaction
from rollview.lab.examples.one_server import Server, between, points, timed, untimed
from rollview.lab.examples.rolling import (
    REALIZABLE,
    A,
    B,
    C,
    realizable_times,
    regions,
    results,
    run_equation_1,
    run_equation_2,
    run_equation_3,
    server_of_equation,
    two_deletions,
    two_insertions,
)
from rollview.lab.memory.bag import MemoryBag

# §3.1 synchronous propagation


def test_equation_one_for_three_relations() -> None:
    assert run_equation_1().queries() == [
        "+R1(1,3] R2@3 R3@3",
        "+R1@3 R2(1,3] R3@3",
        "+R1@3 R2@3 R3(1,3]",
        "-R1(1,3] R2(1,3] R3@3",
        "-R1(1,3] R2@3 R3(1,3]",
        "-R1@3 R2(1,3] R3(1,3]",
        "+R1(1,3] R2(1,3] R3(1,3]",
    ]


def test_equation_two_for_three_relations() -> None:
    """What is left of the delta table is seen at t_a, what is right of it at t_b."""
    assert run_equation_2().queries() == ["+R1(1,3] R2@3 R3@3", "+R1@1 R2(1,3] R3@3", "+R1@1 R2@1 R3(1,3]"]


@pytest.mark.parametrize("relations", [1, 2, 3, 4, 5])
def test_the_number_of_queries(relations: int) -> None:
    server = points(relations, 1)
    server.commit_upto(1)
    server.run(equation_one(server.block, Interval(0, 1)))
    assert server.executions == 2**relations - 1
    server.run(equation_two(server.block, Interval(0, 1)))
    assert server.executions == 2**relations - 1 + relations


def test_the_papers_examples_of_what_is_realizable() -> None:
    assert [realizable_times(query, times) for query, times in REALIZABLE.values()] == [[B], [], []]
    deltas = PropagationQuery((Interval(A, B), Interval(A, C), Interval(0, A)))
    assert realizable_times(deltas, (0, 0, 0)) == [4, 5, 6, 7]


def test_which_synchronous_queries_are_realizable() -> None:
    """Equation 1: at t_b and, except for the last one, only there. Equation 2: two of three never are."""

    def possible(server: Server) -> list[list[int]]:
        vectors = [
            (query, at if isinstance(at, tuple) else (at,) * len(query.deltas))
            for query, at in server.executed
        ]
        return [realizable_times(*each) for each in vectors]

    assert possible(run_equation_1()) == [[B]] * 6 + [[3, 4, 5, 6, 7]]
    assert possible(run_equation_2()) == [[B], [], []]


@given(st.integers(1, 3), st.integers(0, 3), st.integers(1, 3), st.integers(0, 2))
def test_equation_one_with_minimum_timestamps_is_a_timed_delta(
    relations: int, after: int, length: int, lead: int
) -> None:
    server = points(relations, 8)
    server.lead = lead
    server.commit_upto(after + length)
    delta = server.run(equation_one(server.block, Interval(after, after + length)))
    assert delta == timed(relations, after, after + length)


@given(st.integers(1, 3), st.integers(0, 3), st.integers(1, 3), st.integers(0, 2))
def test_equation_two_is_right_at_the_ends_and_timed_per_transaction(
    relations: int, after: int, length: int, lead: int
) -> None:
    interval = Interval(after, after + length)
    server = points(relations, 8)
    server.lead = lead
    server.commit_upto(interval.upto)
    delta = server.run(equation_two(server.block, interval))
    assert untimed(delta) == untimed(timed(relations, after, interval.upto))
    per_transaction = server.run(equation_two_per_transaction(server.block, interval))
    assert per_transaction == timed(relations, after, interval.upto)


def test_equation_two_is_not_a_timed_delta() -> None:
    """R¹ changes at 1 and R² at 2: their row belongs to 2, but comes with R¹'s change, stamped 1."""
    server = points(2, 2)
    server.commit_upto(2)
    delta = server.run(equation_two(server.block, Interval(0, 2)))
    assert delta.counts[1, 2, 1] == 1
    assert (1, 2, 2) not in delta.counts
    assert between(delta, 0, 1) != timed(2, 0, 1)


def test_lemma_4_1_a_timed_delta_table_is_split_into_two() -> None:
    """At every time in between both parts are timed delta tables."""
    delta = server_of_equation(2).run(equation_one(points(2, B).block, Interval(0, B)))
    for time in range(1, B):
        assert between(delta, 0, time) == timed(2, 0, time)
        assert between(delta, time, B) == timed(2, time, B)


def test_lemma_4_2_needs_timed_delta_tables() -> None:
    """Two delta tables make a delta table; a timed one only if both are timed."""
    parts = [Interval(0, 2), Interval(2, 3)]
    sums = {}
    for equation in (equation_two, equation_one):
        server = points(2, 3)
        deltas = []
        for part in parts:
            server.commit_upto(part.upto)
            deltas.append(server.run(equation(server.block, part)))
        sums[equation] = deltas[0].plus(deltas[1])
        assert untimed(sums[equation]) == untimed(timed(2, 0, 3))
    assert sums[equation_one] == timed(2, 0, 3)
    assert between(sums[equation_two], 0, 1) != timed(2, 0, 1)


# §3.2 asynchronous propagation


def test_equation_three() -> None:
    server = run_equation_3()
    assert server.queries() == ["+R1(1,3] R2@4", "-R1(1,3] R2(3,4]", "+R1@6 R2(1,3]", "-R1(1,6] R2(1,3]"]
    assert server.published == [timed(2, A, B)]


def test_figure_seven_the_regions_add_up_to_the_l_shape() -> None:
    """Each query alone covers its rectangle; the net effect is V_{a,b}."""
    server = run_equation_3()
    net = MemoryBag(("t1", "t2"), {})
    for (query, time), (rows, columns) in zip(list(server.executed), regions().values(), strict=True):
        result, _ = server.run(execute.execute(server.block, query, time))
        assert {row[:2] for row in result.counts} == {(one, two) for one in rows for two in columns}
        net = net.plus(untimed(result))
    assert net == untimed(timed(2, A, B))


@pytest.mark.parametrize(("relations", "queries"), [(1, 1), (2, 4), (3, 15), (4, 64)])
def test_the_number_of_queries_when_every_execution_is_later(relations: int, queries: int) -> None:
    """n forward queries, and for each a compensation over the n − 1 others: c(n) = n · (1 + c(n − 1))."""
    # Only the count matters here, so the transactions are empty.
    server = Server(points(relations, 0).view, {f"x.r{i + 1}": [] for i in range(relations)}, [[]] * 70)
    server.commit_upto(1)
    server.clock = list(range(2, 70))
    server.run(view_delta(server.block, Interval(0, 1)))
    assert server.executions == queries


# §3.3 timestamps


def test_two_deletions() -> None:
    """r¹ goes at t_a, r² at t_b: only the last compensation finds anything, and stamps it t_a."""
    found = [rows.counts for rows in results(two_deletions())]
    assert found == [{}, {}, {}, {("r1", "r2", 1): -1}, {("r1", "r2", 1): -1}]


def test_two_insertions() -> None:
    """x¹ comes at t_a, x² at t_b: what is stamped t_a cancels, the insertion at t_b remains."""
    found = [rows.counts for rows in results(two_insertions())]
    both = ("x1", "x2")
    assert found == [{(*both, 1): 1}, {}, {(*both, 2): 1}, {(*both, 1): -1}, {(*both, 2): 1}]


# §4 correctness


@given(st.integers(1, 4), st.integers(0, 2), st.integers(1, 3), clocks, st.integers(0, 2))
def test_theorem_4_1_compute_delta_gives_a_timed_delta(
    relations: int, after: int, length: int, steps: list[int], lead: int
) -> None:
    """For all a < b inside the interval σ_{a,b}(Δ) is what happened from a to b."""
    last = 5 if relations == 4 else 8
    upto = min(after + length, last)
    server = points(relations, last)
    server.lead = lead
    server.commit_upto(upto)
    server.clock = tick(upto, steps, last)
    delta = server.run(view_delta(server.block, Interval(after, upto)))
    assert delta == timed(relations, after, upto)


@given(st.integers(2, 3), st.data(), clocks)
def test_theorem_4_1_from_a_vector_of_times(relations: int, data: st.DataObject, steps: list[int]) -> None:
    """From τ_old, relations not all at one time: points outside the old box, at their latest new change."""
    new, last = 4, 8
    old = tuple(data.draw(st.integers(0, new)) for _ in range(relations))
    server = points(relations, last)
    server.commit_upto(new)
    server.clock = tick(new, steps, last)
    delta = server.run(compute_delta.compute_delta(server.block, view_query(server.block), old, new))
    expected = {}
    for row in (*timed(relations, 0, new).counts, (0,) * (relations + 1)):
        changed = [time for time, start in zip(row[:-1], old, strict=True) if time > start]
        if changed:
            expected[*row[:-1], max(changed)] = 1
    assert delta.counts == expected


def test_compute_delta_takes_all_that_is_new_and_propagate_what_the_driver_gives() -> None:
    for module, bounds, published in ((compute_delta, [1], 1), (propagate, [1, 3, 4], 3)):
        server = points(2, 5)
        server.commit_upto(4)
        server.intervals = list(bounds)
        server.run_process(next(module.processes(server.view)))
        assert len(server.published) == published
        assert server.positions == {ForwardQuery("v", 0): 4}


@given(st.integers(1, 3), st.lists(st.integers(1, 9), min_size=1, max_size=4), clocks)
def test_theorem_4_2_propagate(relations: int, bounds: list[int], steps: list[int]) -> None:
    server = points(relations, 8)
    server.commit_upto(2)
    server.clock = tick(2, steps, 8)
    server.intervals = bounds
    server.run_process(next(propagate.processes(server.view)))
    delta = server.published[0]
    for piece in server.published[1:]:
        delta = delta.plus(piece)
    assert delta == timed(relations, 0, server.positions[ForwardQuery("v", 0)])
