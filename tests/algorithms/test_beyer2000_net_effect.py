"""beyer2000 §5: the net effect, its lemmas on arbitrary deltas, and the paper's examples."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollview.algebra.bag import keep
from rollview.algebra.net_effect import (
    Range,
    condense,
    condensed_around,
    deletions_and_insertions,
    in_order,
)
from rollview.algorithms.beyer2000.ipda_effects import TIMESTAMP
from rollview.errors import CorruptView
from rollview.lab.examples.policies import (
    CONDENSED,
    HOUR,
    PAUL,
    PETUNIAS,
    STATE_COUNT,
    TIMED,
    WI_CUST,
    Pair,
    apply_pieces,
    delta_of,
    petunias,
    state_count_delta,
)
from rollview.lab.memory.bag import MemoryBag
from rollview.lab.memory.evaluate import evaluate_blocks
from rollview.lab.simulator.database_worlds import CUSTOMER, clock
from rollview.planning import parse_view

NAMES = parse_view("SELECT c.name FROM shop.customer c", (CUSTOMER,), "Names")
STATE_TOTAL = parse_view(
    "SELECT c.state, count(*) AS count, sum(c.custId) AS total FROM shop.customer c GROUP BY c.state",
    (CUSTOMER,),
    "StateTotal",
)

PATTY = MemoryBag.of(("custId", "name"), [(52, "Patty's Petunias")])


def test_petunias_one_by_one_need_their_order() -> None:
    """§5: the second record first violates the key; the third first finds nothing to delete."""
    records = petunias()
    assert apply_pieces(WI_CUST, PAUL, *records) == PATTY
    with pytest.raises(CorruptView, match="occurs twice"):
        apply_pieces(WI_CUST, PAUL, records[1])
    with pytest.raises(CorruptView, match="where it is not"):
        apply_pieces(WI_CUST, PAUL, records[2])


def test_the_net_effect_of_the_petunias_is_the_first_and_the_last_record() -> None:
    net = WI_CUST.root.net_effect(delta_of(WI_CUST, PETUNIAS))
    assert net.counts == {(52, "Paul's Petunias"): -1, (52, "Patty's Petunias"): 1}
    deletions, insertions = in_order(WI_CUST.root, net)
    assert (deletions, insertions) == (PAUL.negate(), PATTY)
    assert apply_pieces(WI_CUST, PAUL, deletions, insertions) == PATTY
    with pytest.raises(CorruptView, match="occurs twice"):
        apply_pieces(WI_CUST, PAUL, insertions, deletions)


def test_state_count_drops_by_two() -> None:
    """§5: five sales in Wisconsin inserted and seven deleted, in one transaction."""
    net = STATE_COUNT.root.net_effect(state_count_delta())
    assert net.counts == {("WI", -2): 1}
    nine = MemoryBag.of(STATE_COUNT.root.state_columns, [("WI", 9), ("MN", 1)])
    two = MemoryBag.of(STATE_COUNT.root.state_columns, [("WI", 2), ("MN", 1)])
    after = apply_pieces(STATE_COUNT, nine, *in_order(STATE_COUNT.root, net))
    assert STATE_COUNT.root.present(after).counts == {("WI", 7): 1, ("MN", 1): 1}
    assert apply_pieces(STATE_COUNT, two, net).counts == {("MN", 1): 1}


def test_appended_summary_deltas_do_not_conflict() -> None:
    """§1.2: x1 and x2 both count one more sale in Wisconsin; each appends a record of its own."""
    delta = delta_of(STATE_COUNT, [(("WI", 1, 1, 10), 1), (("WI", 1, 2, 11), 1)])
    assert len(delta.counts) == 2
    assert STATE_COUNT.root.net_effect(delta).counts == {("WI", 2): 1}


def test_a_zero_count_of_a_summary_delta_stays() -> None:
    """§5: customer 3 takes the place of customer 1, so the count stays and the sum does not."""
    measures = len(STATE_TOTAL.root.state_columns) - 2
    pairs: list[Pair] = [(("WI", 1, *[3] * measures, 1, 1), 1), (("WI", -1, *[-1] * measures, 1, 1), 1)]
    net = STATE_TOTAL.root.net_effect(delta_of(STATE_TOTAL, pairs))
    assert [row[:2] for row in net.counts] == [("WI", 0)]
    assert all(value == 2 for row in net.counts for value in row[2:])


def test_a_deletion_with_null_in_it_is_found() -> None:
    net = MemoryBag.of_pairs(("custId", "name"), [((52, None), -1), ((52, "Peter"), 1), ((53, None), 1)])
    deletions, insertions = deletions_and_insertions(("custId",), net)
    assert deletions.counts == {(52, None): -1}
    assert insertions.counts == {(52, "Peter"): 1, (53, None): 1}


operations = st.lists(
    st.tuples(st.integers(51, 53), st.sampled_from(["Paul", "Peter", "Patty", None])), max_size=12
)


def _keyed_history(steps: list[tuple[int, str | None]]) -> tuple[dict[int, object], list[Pair]]:
    """From steps to what a keyed view holds after them and the records of its delta, in order.

    A step gives a customer a name; the name it has already takes the customer away.
    """
    held: dict[int, object] = {}
    records: list[Pair] = []
    for time, (customer, name) in enumerate(steps):
        had = customer in held
        old = held.pop(customer, None)
        if had:
            records.append(((customer, old, time, time), -1))
        if not had or old != name:
            held[customer] = name
            records.append(((customer, name, time, time), 1))
    return held, records


@given(operations, operations, st.randoms(use_true_random=False))
def test_lemmas_10_and_11_under_a_key(
    first: list[tuple[int, str | None]], more: list[tuple[int, str | None]], order: random.Random
) -> None:
    """In the proper order, or as a net effect of the shuffled records: the same view, and no key twice."""
    before, old_records = _keyed_history(first)
    after, records = _keyed_history([*first, *more])
    records = records[len(old_records) :]
    state = MemoryBag.of(("custId", "name"), list(before.items()))
    in_turn = apply_pieces(WI_CUST, state, *(delta_of(WI_CUST, [pair]) for pair in records))
    assert in_turn.counts == dict.fromkeys(after.items(), 1)

    order.shuffle(records)
    net = WI_CUST.root.net_effect(delta_of(WI_CUST, records))
    deletions, insertions = in_order(WI_CUST.root, net)
    assert deletions.plus(insertions) == net
    assert apply_pieces(WI_CUST, state, deletions, insertions) == in_turn
    for piece, count in ((deletions, -1), (insertions, 1)):
        assert set(piece.counts.values()) <= {count}
        assert len({row[0] for row in piece.counts}) == len(piece.counts)
    assert all(row in state.counts for row in deletions.counts)

    modified = {row[0] for row in deletions.counts} & {row[0] for row in insertions.counts}
    if modified:
        with pytest.raises(CorruptView, match="occurs twice"):
            apply_pieces(WI_CUST, state, insertions, deletions)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=14), st.randoms(use_true_random=False)
)
def test_lemma_10_without_a_key(steps: list[tuple[str, bool]], order: random.Random) -> None:
    """All counts are ±1 and rows may repeat: the net effect is applied at once, in no order at all."""
    held: list[str] = []
    pairs: list[Pair] = []
    for time, (name, insert) in enumerate(steps):
        if insert:
            held.append(name)
        elif name in held:
            held.remove(name)
        else:
            continue
        pairs.append(((name, time, time), 1 if insert else -1))
    order.shuffle(pairs)
    nothing = MemoryBag.of(("name",), [])
    pieces = in_order(NAMES.root, NAMES.root.net_effect(delta_of(NAMES, pairs)))
    assert len(pieces) == 1
    assert apply_pieces(NAMES, nothing, *pieces) == MemoryBag.of(("name",), [(name,) for name in held])


customers = st.dictionaries(
    st.integers(1, 5), st.tuples(st.none() | st.just("x"), st.sampled_from(["WI", "MN", None])), max_size=5
)


@given(customers, st.lists(customers, min_size=1, max_size=4))
def test_lemma_9_summary_deltas(
    first: dict[int, tuple[object, str]], states: list[dict[int, tuple[object, str]]]
) -> None:
    """The net effect of several summary deltas is as good as applying each of them, and as recomputing."""
    root = STATE_TOTAL.root
    contents = [
        next(evaluate_blocks(root, {CUSTOMER.qualified: {(key, *rest): 1 for key, rest in state.items()}}))
        for state in (first, *states)
    ]
    deltas = [root.lift(0, new.plus(old.negate())) for old, new in pairwise(contents)]
    state = root.lift(0, contents[0])
    together = deltas[0]
    for delta in deltas[1:]:
        together = together.plus(delta)
    net = root.net_effect(together)
    assert len({row[0] for row in net.counts}) == len(net.counts)
    assert (
        apply_pieces(STATE_TOTAL, state, net)
        == apply_pieces(STATE_TOTAL, state, *deltas)
        == root.lift(0, contents[-1])
    )


def test_condensing_3_00_to_4_00() -> None:
    """§5: a change of 3:15 that one of 3:45 takes back is gone; a view may be rolled to 3:00 or 4:00."""
    delta = MemoryBag.of_pairs(TIMED, CONDENSED)
    condensed = condense(WI_CUST.root, delta, HOUR, TIMESTAMP)
    assert condensed.counts == {
        (1, "early", clock(2, 59)): 1,
        (3, "kept", clock(4, 0)): 1,
        (4, "late", clock(4, 1)): 1,
    }
    for time in (clock(2, 30), clock(3, 0), clock(4, 0), clock(4, 30)):
        assert condensed_around([HOUR], time) is None
    assert condensed_around([HOUR], clock(3, 30)) == HOUR


@given(operations, st.integers(0, 12), st.integers(0, 12), st.integers(0, 12))
def test_condensing_changes_no_view_outside_the_range(
    steps: list[tuple[int, str | None]], one: int, other: int, upto: int
) -> None:
    span = Range(min(one, other), max(one, other))
    pairs = [((*row[:2], row[2]), count) for row, count in _keyed_history(steps)[1]]
    delta = MemoryBag.of_pairs(TIMED, pairs)
    condensed = condense(WI_CUST.root, delta, span, TIMESTAMP)
    if not span.after < upto < span.upto:
        assert _upto(condensed, upto) == _upto(delta, upto)
    assert len(condensed.counts) <= len(delta.counts)


def _upto(delta: MemoryBag, time: int) -> MemoryBag:
    rows = {row: count for row, count in delta.counts.items() if row[2] <= time}
    return MemoryBag(delta.columns, rows).project(keep(("custId", "name")))


def test_a_condensed_range_must_not_move_a_commit_in_the_commit_table() -> None:
    """§5 lets the net effect go by any xid, at the end of the range. The commit table is shared by all views.

    Giving xid 5 the time of the range's end would take it out of other views at 3:30. The last xid of the
    range keeps its own time, and that is late enough.
    """
    commits = {5: clock(3, 15), 9: clock(3, 45)}
    other_view = {5: "row of xid 5", 9: "row of xid 9"}

    def rolled(table: dict[int, int], time: int) -> set[str]:
        return {row for xid, row in other_view.items() if table[xid] <= time}

    any_xid = {**commits, 5: clock(4, 0)}
    assert rolled(any_xid, clock(3, 30)) != rolled(commits, clock(3, 30))
    last = max(commits, key=lambda xid: commits[xid])
    assert last == 9 and commits[last] <= clock(4, 0)
