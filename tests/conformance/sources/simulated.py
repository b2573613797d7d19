"""The simulator's source behind the contract of real ones, so that the fake cannot drift from them.

It stands here and not in the simulator, because layers keep simulator and sources apart. In snapshot mode
what a reading sees need not be a prefix of the commits, as in PostgreSQL.
"""

# ruff: noqa: ARG002 - the contract hands over more than a simulation needs

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from rollview.algebra.bag import COUNT
from rollview.algebra.expression import Column
from rollview.algebra.history import Change, Seen, Transaction, seen_of
from rollview.algebra.join_graph import JoinStep, SubQuery
from rollview.algebra.node import Block
from rollview.algebra.relation import Relation, Table
from rollview.algorithms.effects import Question
from rollview.lab.memory.bag import MemoryBag
from rollview.lab.simulator.source import SimulatedSource
from rollview.rows import arrow_schema
from rollview.sources.source import (
    Batch,
    CapturedTransaction,
    Comparison,
    Lookup,
    ReadResult,
    SetupResult,
    Source,
    SourceTxids,
)
from rollview.testing import Modelled, Row, Write


class AsSource:
    """The contract of `sources.source` on a simulated source; source txids are its versions."""

    name = "s"
    kind = "simulated"

    def __init__(self, simulated: SimulatedSource, tables: Sequence[Table]) -> None:
        self._simulated = simulated
        self._tables = {table.qualified: table for table in tables}

    def tables(self) -> tuple[Table, ...]:
        return tuple(self._tables.values())

    def check(self, tables: Sequence[Table]) -> SetupResult:
        return SetupResult()

    def setup(self, tables: Sequence[Table]) -> SetupResult:
        return SetupResult()

    def remove(self) -> SetupResult:
        return SetupResult()

    def describe(self) -> Mapping[str, str]:
        return {"transactions": "simulated"}

    def current_position(self, site: str) -> str:
        """Nothing that is still hidden may lie before the beginning: no reading has seen it."""
        return str(min([each - 1 for each in self._simulated.hidden], default=self._simulated.version))

    def capture(self, site: str, after: str, limit: int) -> Batch:
        taken: list[CapturedTransaction] = []
        rows, last = 0, int(after)
        for transaction in self._simulated.committed(int(after) + 1, self._simulated.version):
            if rows >= limit and taken:
                break
            taken.append(self._captured(transaction))
            rows += len(transaction.changes)
            last = transaction.version
        return Batch(tuple(taken), str(last))

    def replay(self, site: str, after: str, source_txids: Sequence[int], upto: str) -> Batch:
        given = self._simulated.committed(int(after) + 1, int(upto))
        return Batch(tuple(self._captured(transaction) for transaction in given), upto)

    def acknowledge(self, site: str, upto: str) -> None:
        return

    def can_compare(self, key_type: str, column_type: str) -> bool:
        return key_type == column_type

    def can_push(self, comparison: Comparison, column_type: str) -> bool:
        return False

    def lookup(self, plan: Sequence[Lookup]) -> ReadResult:
        answer = self._simulated.answer(_as_question(plan))
        rows = [
            _as_arrow(lookup.table, lookup.columns, bag.counts)
            for lookup, bag in zip(plan, answer.rows, strict=True)
        ]
        return ReadResult(tuple(rows), _read_point(answer.saw))

    def read(self, tables: Mapping[Table, Sequence[str]], scratch: Path) -> ReadResult:
        rows = []
        for table, columns in tables.items():
            places = [table.columns.index(name) for name in columns]
            counts = [
                (tuple(row[place] for place in places), count)
                for row, count in self._simulated.state[table.qualified].items()
            ]
            rows.append(_as_arrow(table, columns, MemoryBag.of_pairs(columns, counts).counts))
        version, hidden = self._simulated.version, set(self._simulated.hidden)
        return ReadResult(
            tuple(rows), _read_point(seen_of(each for each in range(1, version + 1) if each not in hidden))
        )

    def seen(self, site: str, read_point: str, source_txids: SourceTxids) -> Seen | None:
        upto, holes = json.loads(read_point)
        if int(source_txids.log_position) < upto:
            return None
        return Seen(source_txids.latest(upto), frozenset(source_txids.versions(holes).values()))

    def close(self) -> None:
        return

    def _captured(self, transaction: Transaction) -> CapturedTransaction:
        rows: dict[str, Any] = {}
        for name in dict.fromkeys(change.table for change in transaction.changes):
            counts = {change.row: change.count for change in transaction.changes if change.table == name}
            rows[name] = _as_arrow(self._tables[name], self._tables[name].columns, counts)
        return CapturedTransaction(transaction.version, transaction.commit_time, rows)


class SimulatedDriver(Modelled):
    """Commits become visible at once."""

    snapshots = False

    def open(self) -> Source:
        tables = [
            Table("s", name, tuple(c for c, _ in columns), types=tuple(k for _, k in columns))
            for name, columns in self.schemas.items()
        ]
        initial = {f"s.{name}": dict.fromkeys(rows, 1) for name, rows in self.model.items()}
        self.simulated = SimulatedSource("s", tables, initial, (), self.snapshots)
        self._versions = 0
        return AsSource(self.simulated, tables)

    def commit(self, writes: Sequence[Write]) -> None:
        self.apply(writes)
        changes = [
            Change(f"s.{write.table}", row, count)
            for write in writes
            for row, count in ((write.before, -1), (write.after, 1))
            if row is not None
        ]
        self._versions += 1
        transaction = Transaction("s", self._versions, tuple(changes))
        self.simulated.script = (*self.simulated.script, transaction)
        self.simulated.commit(float(self._versions))
        if self._versions % 3 == 0 and self.simulated.hidden:
            self.simulated.reveal(self.simulated.hidden[-1])

    @contextmanager
    def restarted(self) -> Iterator[Source]:
        """A simulation is in memory, and memory is all it has: it is never restarted."""
        yield self.source

    def traces(self) -> Any:
        return ()


class SnapshotDriver(SimulatedDriver):
    """Commits become visible later, and not in their order."""

    snapshots = True


def _read_point(saw: Seen) -> str:
    return json.dumps([saw.upto, sorted(saw.holes)])


def _as_question(plan: Sequence[Lookup]) -> Question[MemoryBag]:
    """The plan as the simulator knows it; keys are those of a relation that only the caller has."""
    relations = [Relation(f"r{place}", lookup.table) for place, lookup in enumerate(plan)]
    # A block's columns come in the order of the table, and so do those of a look-up.
    output = [(r.column(name), Column(r.column(name))) for r, each in zip(relations, plan, strict=True)
              for name in each.columns]  # fmt: skip
    block = Block(tuple(relations), (), tuple(() for _ in plan), (), tuple(output))
    join_steps: list[JoinStep] = []
    keys: list[MemoryBag | None] = []
    for place, (relation, lookup) in enumerate(zip(relations, plan, strict=True)):
        if lookup.parent is not None:
            parent = relations[lookup.parent]
            on = tuple((parent.column(theirs), relation.column(own)) for theirs, own in lookup.on)
            join_steps.append(JoinStep(place, lookup.parent, on, False, ()))
            continue
        names = () if lookup.keys is None else tuple(lookup.keys.column_names)
        on = tuple((name, relation.column(name)) for name in names)
        join_steps.append(JoinStep(place, -1 if names else None, on, True, ()))
        keys.append(None if lookup.keys is None else _as_bag(lookup.keys))
    return Question(block, SubQuery("s", tuple(join_steps)), tuple(keys))


def _as_bag(keys: pa.Table) -> MemoryBag:
    return MemoryBag.of(keys.column_names, {tuple(row.values()) for row in keys.to_pylist()})


def _as_arrow(table: Table, columns: Sequence[str], counts: Mapping[Row, int]) -> pa.Table:
    kinds = dict(zip(table.columns, table.types, strict=True))
    schema = arrow_schema([*((name, kinds[name]) for name in columns), (COUNT, "bigint")])
    names = [*columns, COUNT]
    rows = [dict(zip(names, (*row, count), strict=True)) for row, count in counts.items()]
    return pa.Table.from_pylist(rows, schema)
