"""salem2000 §3.4: rolling propagation, its figures, and where Figure 10 as printed goes wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_salem2000_server import clocks, tick

from rollview.algorithms.effects import ForwardQuery, Interval
from rollview.algorithms.salem2000 import query_lists, rolling
from rollview.algorithms.salem2000.query_lists import (
    ListedQuery,
    Progress,
    comp_interval,
    comp_time,
    initial_progress,
    prune_query_lists,
    with_forward,
    with_query,
)
from rollview.lab.examples.one_server import Server, between, points, timed
from rollview.lab.examples.rolling import run_figure_8, run_figure_9, total
from rollview.lab.memory.bag import MemoryBag

Patch = pytest.MonkeyPatch


def roll(server: Server) -> MemoryBag:
    """Runs rolling propagation until the script of intervals ends; the sum of what it published."""
    server.run_process(next(rolling.processes(server.view)))
    return total(server)


def mark(server: Server) -> int:
    """The high-water mark."""
    return min(server.positions.values())


def is_timed(server: Server) -> bool:
    """Whether the delta of a whole run is a timed delta table up to the high-water mark (Theorem 4.3)."""
    delta = roll(server)
    return between(delta, 0, mark(server)) == timed(len(server.block.relations), 0, mark(server))


def case(relations: int, clock: list[int], bounds: list[int], last: int = 8) -> Server:
    """A run with executions at these times and intervals to these ends."""
    server = points(relations, last)
    server.clock, server.intervals = list(clock), list(bounds)
    return server


# Figures 8 and 9. The paper's times are t_a = 0, t_b = 2, t_c = 4, t_d = 6, t_e = 8.


def test_figure_nine() -> None:
    """No compensation for R¹. Neither of R²'s is rectangular, so each is cut in two."""
    server = run_figure_9()
    delta = total(server)
    assert server.queries() == [
        "+R1(0,2] R2@3",
        "+R1@5 R2(0,4]",
        "-R1(0,5] R2(0,3]",
        "-R1(2,5] R2(3,4]",
        "+R1(2,4] R2@6",
        "+R1(4,6] R2@9",
        "+R1@10 R2(4,8]",
        "-R1(2,10] R2(4,6]",
        "-R1(4,10] R2(6,8]",
        "+R1(6,8] R2@11",
    ]
    assert between(delta, 0, 4) == timed(2, 0, 4)
    assert between(delta, 0, 5) != timed(2, 0, 5), "after t_c it is not complete yet"


def test_the_state_after_figure_nine() -> None:
    """§3.4: both t_fwd are t_e, R¹'s last two queries are listed, and the high-water mark is t_c."""
    server = run_figure_9()
    listed = (ListedQuery(Interval(4, 6), 9), ListedQuery(Interval(6, 8), 11))
    assert server.control == {0: Progress((8, 8), (4, 8), (listed, ()))}
    assert server.positions == {ForwardQuery("v", 0, 0): 4, ForwardQuery("v", 0, 1): 8}


def test_figure_eight_and_the_number_of_queries() -> None:
    """Three iterations of Propagate take twelve queries; to t_e with R¹'s intervals 16, rolling ten."""
    for iterations, queries in ((3, 12), (4, 16)):
        assert run_figure_8(iterations).executions == queries
    assert run_figure_9().executions == 10


# §4 correctness


bounds_ = st.lists(st.integers(1, 9), min_size=1, max_size=9)


@given(st.integers(1, 4), bounds_, clocks, st.integers(0, 1), st.integers(0, 9))
def test_theorem_4_3_at_all_times_and_across_a_crash(
    relations: int, bounds: list[int], steps: list[int], lead: int, crash: int
) -> None:
    """After every publication the delta is right up to the mark, which never goes back."""
    last = 8 if relations < 4 else 4
    server = case(relations, tick(0, steps, last), [], last)
    server.lead = lead
    marks = [0]

    def check() -> None:
        assert between(server.published[-1], 0, marks[-1]).is_empty()
        assert between(total(server), 0, mark(server)) == timed(relations, 0, mark(server))
        assert mark(server) >= marks[-1]
        marks.append(mark(server))

    server.watch = check
    for part in (bounds[:crash], bounds[crash:]):
        server.intervals = part
        server.run_process(next(rolling.processes(server.view)))


def test_it_comes_to_the_end_of_the_history() -> None:
    server = case(3, [], [9] * 20)
    assert is_timed(server)
    assert mark(server) == 8


# CompInterval, CompTime, PruneQueryLists

LISTED = with_query(
    with_query(initial_progress(2, 0), 0, ListedQuery(Interval(0, 2), 3)), 0, ListedQuery(Interval(2, 4), 6)
)
ROLLED = with_forward(LISTED, 0, 4)


def test_comp_interval_reaches_to_the_next_execution_time() -> None:
    assert [comp_interval(ROLLED, 1, time) for time in (0, 2, 3, 5)] == [3, 1, 3, 1]
    assert comp_interval(ROLLED, 1, 6) > 10**9, "no query was executed later: unbounded"


def test_comp_time_goes_back_to_the_oldest_query_that_saw_it() -> None:
    assert [comp_time(ROLLED, 0, time) for time in (0, 2, 3, 5)] == [0, 0, 2, 2]
    assert comp_time(ROLLED, 0, 6) == 4, "no query did: the next one will begin at t_fwd"


def test_pruning_drops_what_every_relation_has_reached() -> None:
    assert prune_query_lists(ROLLED).compensated == (0, 0)
    later = prune_query_lists(with_forward(ROLLED, 1, 3))
    assert later.lists == ((ListedQuery(Interval(2, 4), 6),), ())
    assert later.compensated == (2, 3)
    assert prune_query_lists(with_forward(with_forward(ROLLED, 0, 7), 1, 6)).compensated == (7, 6)


# Figure 10 as printed


def test_printed_t_fwd_does_not_move_for_the_first_relation(monkeypatch: Patch) -> None:
    """It moves in the repeat loop, which the first relation does not enter."""
    true_forward = rolling.with_forward
    monkeypatch.setattr(rolling, "with_forward", lambda p, i, time: true_forward(p, i, time) if i else p)
    server = case(2, [], [2, 2, 2, 2])
    roll(server)
    assert mark(server) == 0
    assert len(server.published) == 4


def test_printed_compensation_has_no_sign(monkeypatch: Patch) -> None:
    true_compute = rolling.compute_delta
    monkeypatch.setattr(
        rolling, "compute_delta", lambda block, query, *times: true_compute(block, query.negated(), *times)
    )
    assert not is_timed(case(2, [2] * 9, [2, 2]))


def test_printed_comp_time_has_no_answer_if_no_later_query_is_listed(monkeypatch: Patch) -> None:
    """R¹_{0,1} executed at 2, then R²_{0,4}: no listed query saw what came after 2, and 2 is too late."""
    clock, bounds = [2, 4], [1, 4, 4]
    assert is_timed(case(2, clock, bounds))
    true_time = query_lists.comp_time

    def going_back_to_t(progress: Progress, position: int, time: int) -> int:
        listed = any(query.executed > time for query in progress.lists[position])
        return true_time(progress, position, time) if listed else time

    monkeypatch.setattr(rolling, "comp_time", going_back_to_t)
    assert not is_timed(case(2, clock, bounds))


def test_printed_smallest_execution_time_may_belong_to_several_queries(monkeypatch: Patch) -> None:
    """R¹_{0,1} and R¹_{1,2} both executed at 4: taking the newer one leaves R¹_{0,1} uncompensated."""
    clock, bounds = [4] * 20, [1, 1, 2, 4, 4, 4]
    assert is_timed(case(2, clock, bounds))
    monkeypatch.setattr(query_lists, "_age", lambda query: (query.executed, -query.interval.after))
    assert not is_timed(case(2, clock, bounds))


def test_printed_pruning_comes_too_late(monkeypatch: Patch) -> None:
    """All is propagated and nothing is left to wait for, but the mark stands where it was."""
    server = case(2, [], [8, 8])
    roll(server)
    assert mark(server) == 8
    true_prune = rolling.prune_query_lists
    monkeypatch.setattr(rolling, "prune_query_lists", lambda progress: progress)
    true_roll = rolling.roll
    monkeypatch.setattr(
        rolling,
        "roll",
        lambda block, i, interval, progress, cut: true_roll(block, i, interval, true_prune(progress), cut),
    )
    late = case(2, [], [8, 8])
    roll(late)
    assert mark(late) < 8


SMALLEST = {"clock": [2, 3], "bounds": [1, 2, 3, 3, 3, 3], "last": 3}


def test_printed_compensation_takes_back_too_much_for_three_relations(monkeypatch: Patch) -> None:
    """The smallest case: R¹_{0,1} executed at 2, R²_{0,2} at 3. R¹'s query did not see R³'s change at 3."""
    server = case(3, **SMALLEST)
    assert is_timed(server)
    assert mark(server) == 3
    monkeypatch.setattr(rolling, "layers", rolling.one_layer)
    printed = case(3, **SMALLEST)
    delta = roll(printed)
    assert mark(printed) == 3
    assert sum(count for row, count in delta.counts.items() if row[:3] == (1, 2, 3)) == 0
    assert delta.counts[1, 2, 3, 3] == 1
    assert delta.counts[1, 2, 3, 1] == -1


@given(bounds_, clocks)
def test_printed_compensation_is_right_for_two_relations(bounds: list[int], steps: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rolling, "layers", rolling.one_layer)
        assert is_timed(case(2, tick(0, steps, 8), bounds))
