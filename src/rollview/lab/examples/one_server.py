"""One source under a clock of its own, and worlds whose rows are points: what salem2000's figures are about.

In the world of points every relation gets the row (c) in the transaction with csn c, and the view is the
product of all relations. A view row (t₁ … tₙ) then is a point of the paper's Figures 6 to 9, and belongs
into the view delta once, at csn max(t₁ … tₙ). Propagation queries are linear in every delta, so what is right
for points is right for any data with the same times.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from itertools import product
from typing import Any

from rollview.algebra.expression import Row
from rollview.algebra.history import CSN, Change, Transaction, UnitOfWork
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
from rollview.algorithms.salem2000.execute import PropagationQuery, Times
from rollview.lab.memory.bag import MemoryBag
from rollview.lab.memory.history import History
from rollview.lab.simulator.source import SimulatedSource
from rollview.planning import parse_view

_END = object()
"""The result of asking for an interval after the last one of the script."""


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
        self.executed: list[tuple[PropagationQuery, int | Times]] = []
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
        """Serves a generator to its end; its result, or None if the script of intervals ends first."""
        value: Any = None
        while True:
            try:
                effect = steps.send(value)
            except StopIteration as end:
                return end.value
            value = self._serve(effect)
            if value is _END:
                return None

    def _serve(self, effect: Effect) -> Any:
        match effect:
            case Execute(at=at, query=query):
                self.executions += 1
                if at is None and self.clock:
                    self.commit_upto(self.clock.pop(0))
                executed = self.history.last_csn if at is None else at
                if isinstance(query, tuple):
                    self.executed.append((query[0], executed if query[1] is None else query[1]))
                return executed
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

    def _next_interval(self, start: int) -> Interval | object:
        """The next interval of the script, whose transactions are waited for; `_END` after the last one."""
        if not self.intervals or start == len(self.script):
            return _END
        upto = min(max(self.intervals.pop(0), start + 1), len(self.script))
        self.commit_upto(upto)
        return Interval(start, upto)

    def queries(self, names: Callable[[int], object] = int) -> list[str]:
        """The queries that were executed, in order, as the paper writes them."""
        return [text(query, times, names) for query, times in self.executed]

    def run_process(self, process: Generator[Effect, Any, Any]) -> None:
        """Serves a process that never ends, until the script of intervals ends."""
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


def text(query: PropagationQuery, times: int | Times, names: Callable[[int], object] = int) -> str:
    """A propagation query as the paper writes it, each base table with its time: `+R1(0,2] R2@3`."""
    parts = []
    for i, interval in enumerate(query.deltas):
        time = times[i] if isinstance(times, tuple) else times
        span = "" if interval is None else f"({names(interval.after)},{names(interval.upto)}]"
        parts.append(f"R{i + 1}{span or f'@{names(time)}'}")
    return ("+" if query.sign > 0 else "-") + " ".join(parts)
