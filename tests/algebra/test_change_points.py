"""Change points against the oracle: the rows before and after every transaction, computed from scratch."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollview.algebra import change_points
from rollview.algebra.history import CSN
from rollview.algebra.relation import Table
from rollview.lab.memory.bag import MemoryBag
from rollview.planning import parse_view

_TABLE = Table("s", "r", ("a", "b"))
_GROUPED = "SELECT a, count(*) AS n, sum(b) AS total, avg(b) AS mean FROM s.r GROUP BY a"
_WHOLE = "SELECT count(*) AS n, sum(b) AS total FROM s.r"
_KEPT = """SELECT a, count(*) AS n, min(b) AS low, max(b) + 1 AS high, sum(b) AS total, avg(b) AS mean,
    count(DISTINCT b) AS d, max(a) AS k FROM s.r GROUP BY a"""
_ALL_KEPT = "SELECT count(*) AS n, count(b) AS m, min(b) AS low, count(DISTINCT b) AS d FROM s.r"
_TWO_KEPT = "SELECT count(DISTINCT a) AS d, count(DISTINCT b) AS e FROM s.r"
_VALUES = st.one_of(st.none(), st.integers(0, 2))
_ROWS = st.dictionaries(st.tuples(_VALUES, _VALUES), st.integers(1, 2), max_size=4)
_CHANGES = st.dictionaries(
    st.tuples(_VALUES, _VALUES, st.integers(6, 9)), st.sampled_from([-2, -1, 1, 2]), max_size=6
)


def _legal(rows: dict, changes: dict) -> dict:
    """The changes in csn order, deleting only what is there."""
    there, kept = dict(rows), {}
    for (a, b, csn), count in sorted(changes.items(), key=lambda item: item[0][2]):
        possible = max(count, -there.get((a, b), 0))
        if possible:
            kept[a, b, csn] = possible
            there[a, b] = there.get((a, b), 0) + possible
    return kept


@given(
    sql=st.sampled_from([_GROUPED, _WHOLE, _KEPT, _ALL_KEPT, _TWO_KEPT]),
    rows=_ROWS,
    changes=_CHANGES,
    few=st.sampled_from([-1, change_points.FEW_PAIRS]),
)
def test_oracle_rows_before_and_after_every_csn(
    sql: str, rows: dict[tuple[int, int], int], changes: dict[tuple[int, int, int], int], few: int
) -> None:
    changes = _legal(rows, changes)
    root = parse_view(sql, [_TABLE]).root
    names = root.input.output_columns
    width = len(names)

    def inputs(row: tuple[int, int]) -> tuple[int, ...]:
        return row if width == 2 else row[1:]

    state = root.state_of(
        iter([MemoryBag.of_pairs(names, [(inputs(row), count) for row, count in rows.items()])])
    )
    block_delta = MemoryBag.of_pairs(
        (*names, CSN), [((*inputs(row[:2]), row[2]), count) for row, count in changes.items()]
    )
    delta = root.lift(0, block_delta, CSN)
    with patch.object(change_points, "FEW_PAIRS", few):
        found = root.row_delta(state, delta, 5)
    assert found.columns == (*root.output_columns, CSN)
    before, place = state, delta.columns.index(CSN)
    for csn in range(6, 10):
        own = MemoryBag(
            delta.columns, {row: count for row, count in delta.counts.items() if row[place] == csn}
        )
        after = root.roll(before, own)
        expected = root.present(after).plus(root.present(before).negate())
        here = {row[:-1]: count for row, count in found.counts.items() if row[-1] == csn}
        assert here == expected.counts
        before = after


@pytest.mark.parametrize("sql", [_GROUPED, _WHOLE])
def test_a_key_that_changes_often_costs_as_many_rows(sql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    root = parse_view(sql, [_TABLE]).root
    names, most = root.input.output_columns, 0
    join = MemoryBag.join

    def counted(self: MemoryBag, *arguments: Any) -> MemoryBag:
        nonlocal most
        joined = join(self, *arguments)
        most = max(most, len(joined.counts))
        return joined

    state = root.state_of(iter([MemoryBag.of(names, [(1,) * len(names)])]))
    rows = [((1,) * len(names) + (csn,), 1) for csn in range(1, 301)]
    delta = root.lift(0, MemoryBag.of_pairs((*names, CSN), rows), CSN)
    monkeypatch.setattr(MemoryBag, "join", counted)
    assert len(root.row_delta(state, delta, 0).counts) == 600
    assert most <= 300


@pytest.mark.parametrize("sql", [_KEPT, _ALL_KEPT])
def test_a_hot_group_of_many_values_costs_what_changes(sql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    root = parse_view(sql, [_TABLE]).root
    names = root.input.output_columns
    joined_rows = 0
    join = MemoryBag.join

    def counted(self: MemoryBag, *arguments: Any) -> MemoryBag:
        nonlocal joined_rows
        joined = join(self, *arguments)
        joined_rows += len(joined.counts)
        return joined

    def row(value: int) -> tuple[int, ...]:
        return (1, value)[-len(names) :]

    state = root.state_of(iter([MemoryBag.of(names, [row(value) for value in range(10_000)])]))
    rows = [((*row(60_000 + csn), csn), 1) for csn in range(1, 101)]
    delta = root.lift(0, MemoryBag.of_pairs((*names, CSN), rows), CSN)
    monkeypatch.setattr(MemoryBag, "join", counted)
    assert len(root.row_delta(state, delta, 0).counts) == 200
    # Without the rest as one row: two million.
    assert joined_rows <= 2 * 100 * 101
