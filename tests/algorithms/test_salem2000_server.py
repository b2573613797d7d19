"""What the tests of salem2000 stand on: a runtime for single generators, and worlds whose rows are points.

In the world of points every relation gets the row (c) in the transaction with csn c, and the view is the
product of all relations. A view row (t₁ … tₙ) then is a point of the paper's Figures 6 to 9, and belongs
into the view delta once, at csn max(t₁ … tₙ). Propagation queries are linear in every delta, so what is right
for points is right for any data with the same times.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterable
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollview.algebra.bag import MemoryBag
from rollview.algebra.block import Block
from rollview.algebra.expression import Row
from rollview.algebra.history import CSN, Change, History, Transaction, UnitOfWork
from rollview.algebra.relation import Table
from rollview.algebra.view import View
from rollview.algorithms.effects import (
    Ask,
    Await,
    Changes,
    Compensated,
    Effect,
    Execute,
    ForwardQuery,
    Interval,
    Newest,
    NextInterval,
    Publish,
    Recall,
    RowsOf,
)
from rollview.algorithms.salem2000 import compute_delta, rolling, synchronous
from rollview.algorithms.salem2000.execute import PropagationQuery, execute, view_query
from rollview.planning import parse_view
from rollview.simulator.source import SimulatedSource


class EndOfScript(Exception):
    """A process asked for an interval after the last one of the script."""


class Server:
    """One source whose transactions come as a clock says: the n-th Execute happens at the n-th time.

    Between a query's beginning and its answer, `lead` further transactions are committed.
    """

    def __init__(self, view: View, initial: dict[str, list[Row]], script: Iterable[list[Change]]) -> None:
        self.view, self.block = view, view.blocks[0]
        self.clock: list[int] = []
        self.lead = 0
        self.intervals: list[int] = []
        self.positions: dict[ForwardQuery, int] = {}
        self.published: list[MemoryBag] = []
        self.control: Any = None
        self.watch: Callable[[], None] = lambda: None
        self.executions = 0
        self.compensated = 0
        self.questions = 0
        self.history = History({table.qualified: table.columns for table in view.tables}, ["x"])
        self.script = tuple(Transaction("x", n, tuple(changes)) for n, changes in enumerate(script, 1))
        rows = {table.qualified: dict.fromkeys(initial[table.qualified], 1) for table in view.tables}
        self.source = SimulatedSource("x", view.tables, rows, self.script, snapshots=False)

    def commit_upto(self, csn: int) -> None:
        """Lets time pass at the source and in the history."""
        self._commit_at_source(csn)
        while self.history.last_csn < csn:
            transaction = self.script[self.history.last_csn]
            self.history.append(UnitOfWork(transaction.version, 0.0, (transaction,)))

    def _commit_at_source(self, csn: int) -> None:
        while self.source.version < min(csn, len(self.script)):
            self.source.commit(0.0)

    def run(self, steps: Generator[Effect, Any, Any]) -> Any:
        """Serves a generator to its end and returns its result."""
        value: Any = None
        while True:
            try:
                effect = steps.send(value)
            except StopIteration as end:
                return end.value
            value = self._serve(effect)

    def _serve(self, effect: Effect) -> Any:
        match effect:
            case Execute(at=at):
                self.executions += 1
                if at is None and self.clock:
                    self.commit_upto(self.clock.pop(0))
                return self.history.last_csn if at is None else at
            case Ask(questions=questions):
                self._commit_at_source(self.source.version + self.lead)
                self.questions += len(questions)
                return tuple(self.source.answer(question) for question in questions)
            case Await(answers=answers):
                self.commit_upto(max(answer.saw.upto for answer in answers))
                return tuple(self.history.in_csn("x", answer.saw) for answer in answers)
            case Changes(table=table, after=after, upto=upto):
                return self.history.changes(table, after, upto)
            case Compensated(rows=rows):
                self.compensated += len(rows.counts)
                return None
            case RowsOf(columns=columns, rows=pairs):
                return MemoryBag.of_pairs(columns, pairs)
            case NextInterval(query=query, after=after):
                return self._next_interval(self.positions.get(query, 0) if after is None else after)
            case Publish(moves=moves, delta=delta, control=control):
                self.positions.update(moves)
                self.published.append(delta)
                self.control = control
                self.watch()
                return None
            case Newest():
                return self.history.last_csn
            case Recall():
                return self.control
        raise AssertionError(effect)

    def _next_interval(self, start: int) -> Interval:
        """The next interval of the script; its transactions are waited for."""
        if not self.intervals or start == len(self.script):
            raise EndOfScript
        upto = min(max(self.intervals.pop(0), start + 1), len(self.script))
        self.commit_upto(upto)
        return Interval(start, upto)

    def run_process(self, process: Generator[Effect, Any, Any]) -> None:
        """Serves a process that goes on forever, until the script of intervals ends."""
        with pytest.raises(EndOfScript):
            self.run(process)


def points(relations: int, last: int) -> Server:
    """The world of points, with csn up to `last`."""
    tables = tuple(Table("x", f"r{i + 1}", ("t",)) for i in range(relations))
    columns = ", ".join(f"{table.name}.t AS t{i + 1}" for i, table in enumerate(tables))
    sources = ", ".join(f"{table.qualified} {table.name}" for table in tables)
    view = parse_view(f"SELECT {columns} FROM {sources}", tables, "v")
    script = [[Change(table.qualified, (csn,), 1) for table in tables] for csn in range(1, last + 1)]
    return Server(view, {table.qualified: [(0,)] for table in tables}, script)


def timed(relations: int, after: int, upto: int) -> MemoryBag:
    """The timed delta table for points: each one once, at the csn of its latest change."""
    columns = (*(f"t{i + 1}" for i in range(relations)), CSN)
    rows = ((*point, max(point)) for point in product(range(upto + 1), repeat=relations))
    return MemoryBag.of(columns, (row for row in rows if row[-1] > after))


def between(delta: MemoryBag, after: int, upto: int) -> MemoryBag:
    """σ_{a,b}."""
    return MemoryBag(
        delta.columns, {row: count for row, count in delta.counts.items() if after < row[-1] <= upto}
    )


def untimed(delta: MemoryBag) -> MemoryBag:
    """φ over all attributes but the timestamp."""
    return MemoryBag.of_pairs(delta.columns[:-1], ((row[:-1], count) for row, count in delta.counts.items()))


def text(query: PropagationQuery, times: int | tuple[int, ...]) -> str:
    """A propagation query as the paper writes it, each base table with its time: `+R1(0,2] R2@3`."""
    parts = []
    for i, interval in enumerate(query.deltas):
        time = times[i] if isinstance(times, tuple) else times
        parts.append(
            f"R{i + 1}@{time}" if interval is None else f"R{i + 1}({interval.after},{interval.upto}]"
        )
    return ("+" if query.sign > 0 else "-") + " ".join(parts)


def record_executions(patch: pytest.MonkeyPatch) -> list[str]:
    """From now on every executed query is written into the list."""
    executed: list[str] = []

    def recording(
        block: Block, query: PropagationQuery, at: int | tuple[int, ...] | None = None
    ) -> Generator[Effect, Any, tuple[MemoryBag, int]]:
        rows, time = yield from execute(block, query, at)
        executed.append(text(query, time if at is None else at))
        return rows, time

    for module in (compute_delta, rolling, synchronous):
        patch.setattr(module, "execute", recording)
    return executed


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
