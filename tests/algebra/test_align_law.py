"""The law of align: whatever an answer saw, the table comes out right at every csn."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rollview.algebra.align import FROM, UNTIL, align, window
from rollview.algebra.bag import keep
from rollview.algebra.expression import Column, Literal, call
from rollview.algebra.history import Change, Seen, Transaction, UnitOfWork, seen_of
from rollview.lab.memory.bag import MemoryBag
from rollview.lab.memory.history import History

TABLE = "x.t"
rows = st.tuples(st.integers(0, 2))
changes = st.lists(st.tuples(rows, st.sampled_from([1, 1, -1])), min_size=0, max_size=3)


@st.composite
def readings(draw: st.DrawFn) -> tuple[History, MemoryBag, Seen, int, int]:
    """A history of two sources, and an arbitrary set of x's transactions that an answer saw."""
    history = History({TABLE: ("a",)}, ["x", "y"])
    versions = {"x": 0, "y": 0}
    for csn in range(1, draw(st.integers(0, 7)) + 1):
        source = draw(st.sampled_from("xxy"))
        versions[source] += 1
        made = tuple(Change(TABLE, row, count) for row, count in draw(changes)) if source == "x" else ()
        history.append(UnitOfWork(csn, 0.0, (Transaction(source, versions[source], made),)))
    visible = draw(st.sets(st.integers(1, versions["x"]))) if versions["x"] else set()
    first = draw(st.integers(0, history.last_csn))
    last = draw(st.integers(first, history.last_csn))
    initial = MemoryBag.of(("a",), draw(st.lists(rows, max_size=3)))
    return history, initial, seen_of(visible), first, last


@given(readings())
def test_oracle_every_state_in_the_interval(reading: tuple[History, MemoryBag, Seen, int, int]) -> None:
    history, initial, saw, first, last = reading
    answer = initial
    for unit in history.units:
        for part in unit.parts:
            if part.source == "x" and part.version in saw:
                answer = answer.plus(MemoryBag.of_pairs(("a",), [(c.row, c.count) for c in part.changes]))
    read_point = history.in_csn("x", saw)
    log = history.changes(TABLE, *window(read_point, first, last))
    aligned = align(answer, log, read_point, first, last)
    for csn in range(first, last + 1):
        valid = call("AND", call("<=", Column(FROM), Literal(csn)), call("<", Literal(csn), Column(UNTIL)))
        assert aligned.select(valid).project(keep(["a"])) == history.state(TABLE, initial, csn)


@given(readings())
def test_the_window_holds_all_that_is_needed(reading: tuple[History, MemoryBag, Seen, int, int]) -> None:
    """Changes outside the window are neither interfering nor missing, for any state in the interval."""
    history, _, saw, first, last = reading
    read_point = history.in_csn("x", saw)
    after, upto = window(read_point, first, last)
    for unit in history.units:
        if unit.parts[0].source == "x" and not after < unit.csn <= upto:
            assert not (unit.csn in read_point and unit.csn > first)
            assert not (unit.csn not in read_point and unit.csn <= last)
