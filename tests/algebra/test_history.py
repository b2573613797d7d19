"""Histories: sets that were seen, and versions in the warehouse's order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollview.algebra.history import Change, Seen, Transaction, UnitOfWork, seen_of
from rollview.errors import HistoryError
from rollview.lab.memory.bag import MemoryBag
from rollview.lab.memory.history import History


@given(st.sets(st.integers(1, 9)), st.integers(1, 10))
def test_seen_of_is_the_set_itself(versions: set[int], version: int) -> None:
    assert (version in seen_of(versions)) == (version in versions)


@given(st.sets(st.integers(1, 9)))
def test_the_condition_says_what_the_set_holds(versions: set[int]) -> None:
    numbers = MemoryBag.of(("n",), [(number,) for number in range(1, 11)])
    held = numbers.select(seen_of(versions).condition("n"))
    assert {row[0] for row in held.counts} == versions


def _history() -> History:
    history = History({"x.t": ("a",), "y.t": ("a",)}, ["x", "y"])
    x1 = Transaction("x", 1, (Change("x.t", (1,), 1),))
    y1 = Transaction("y", 1, (Change("y.t", (2,), 1),))
    x2, y2 = Transaction("x", 2, (Change("x.t", (1,), -1),)), Transaction("y", 2, ())
    history.append(UnitOfWork(1, 0.0, (y1,)))
    history.append(UnitOfWork(2, 0.0, (x1,)))
    history.append(UnitOfWork(3, 0.0, (x2, y2)))
    return history


def test_versions_follow_the_csn() -> None:
    history = _history()
    assert [history.version_at("x", csn) for csn in range(4)] == [0, 0, 1, 2]
    assert [history.version_at("y", csn) for csn in range(4)] == [0, 1, 1, 2]
    assert history.in_csn("x", Seen(2, frozenset({1}))) == Seen(3, frozenset({2}))
    assert history.in_csn("x", Seen(0)) == Seen(0)
    assert history.knows("x", Seen(2)) and not history.knows("x", Seen(3))


def test_changes_are_cut_by_csn() -> None:
    history = _history()
    assert history.changes("x.t", 1, 2).counts == {(1, 2): 1}
    assert history.changes("x.t", 2, 3).counts == {(1, 3): -1}
    assert history.touched("x.t", 1, 2) and not history.touched("x.t", 0, 1)


def test_a_history_without_gaps() -> None:
    history = _history()
    with pytest.raises(HistoryError, match="csn 5 cannot follow csn 3"):
        history.append(UnitOfWork(5, 0.0, ()))
    with pytest.raises(HistoryError, match="version 4 of source x cannot follow version 2"):
        history.append(UnitOfWork(4, 0.0, (Transaction("x", 4, ()),)))
