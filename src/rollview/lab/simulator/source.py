"""A simulated source: an autonomous database that commits, answers and can be asked again.

Every answer is evaluated at the state the source is in by then, and says which versions were visible. A
source in snapshot mode makes a committed transaction visible at a separate moment, as PostgreSQL does:
commits and visibility then have different orders, except where transactions touch the same key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from dataclasses import replace
from functools import lru_cache

from rollview.algebra.bag import column_getter
from rollview.algebra.expression import Row, conjunction
from rollview.algebra.history import Seen, Transaction
from rollview.algebra.node import Block
from rollview.algebra.relation import Table
from rollview.algorithms.effects import Answer, Question
from rollview.lab.memory.bag import MemoryBag
from rollview.lab.memory.compiled import Compiled, compile_expression
from rollview.lab.simulator.world import State, make_changes


class SimulatedSource:
    """One source's tables and script; durable, so a restart loses nothing but messages under way."""

    def __init__(
        self,
        name: str,
        tables: Iterable[Table],
        initial: State,
        script: tuple[Transaction, ...],
        snapshots: bool,
    ) -> None:
        self.name = name
        self.state = initial
        self.script = script
        self.version = 0
        self.hidden: list[int] = []
        self._snapshots = snapshots
        self._committed: list[Transaction] = []
        self._key_of = {table.qualified: _key_getter(table) for table in tables}

    def commit(self, now: float) -> Transaction:
        """Commits the next transaction of the script."""
        transaction = replace(self.script[self.version], commit_time=now)
        self.version += 1
        self._committed.append(transaction)
        if self._snapshots:
            self._wait_for_locks(transaction)
            self.hidden.append(transaction.version)
        else:
            self._make_visible(transaction)
        return transaction

    def reveal(self, version: int) -> None:
        """Makes a committed transaction visible to queries."""
        self.hidden.remove(version)
        self._make_visible(self._committed[version - 1])

    def committed(self, first: int, last: int) -> list[Transaction]:
        """Transactions that were committed, to be sent again; versions that do not exist are left out."""
        return self._committed[max(first, 1) - 1 : last]

    def answer(self, question: Question[MemoryBag]) -> Answer[MemoryBag]:
        """Looks up every relation of the question at this instant."""
        saw = Seen(self.version, frozenset(self.hidden))
        while saw.upto in saw.holes:
            saw = Seen(saw.upto - 1, saw.holes - {saw.upto})
        rows: list[MemoryBag] = []
        # A relation may be looked up twice: what follows is reached from where it was found last.
        found: dict[int, MemoryBag] = {}
        shipped = iter(question.keys)
        for join_step in question.sub_query.join_steps:
            keys = next(shipped) if join_step.shipped else None
            wanted: Set[Row] | None
            if join_step.parent is None:
                wanted = None
            elif keys is not None:
                wanted = keys.counts.keys()
            else:
                parent = found[join_step.parent]
                key = column_getter(parent.columns, [column for column, _ in join_step.on])
                wanted = {key(row) for row in parent.counts}
            found[join_step.relation] = self._look_up(
                question.block, join_step.relation, join_step.on, wanted
            )
            rows.append(found[join_step.relation])
        return Answer(self.name, tuple(rows), saw)

    def _look_up(
        self, block: Block, relation: int, on: tuple[tuple[str, str], ...], wanted: Set[Row] | None
    ) -> MemoryBag:
        local, key, output = _compiled(block, relation, on)
        counts: dict[Row, int] = {}
        for row, count in self.state[block.relations[relation].table.qualified].items():
            if wanted is not None:
                value = key(row)
                if value not in wanted or None in value:
                    continue
            if local(row) is True:
                projected = output(row)
                counts[projected] = counts.get(projected, 0) + count
        return MemoryBag(block.needed[relation], counts)

    def _make_visible(self, transaction: Transaction) -> None:
        make_changes(self.state, transaction.changes)

    def _wait_for_locks(self, transaction: Transaction) -> None:
        """A transaction that touches a key of a hidden one could not have run before that was visible."""
        touched = self._touched(transaction)
        for version in list(self.hidden):
            if self._touched(self._committed[version - 1]) & touched:
                self.reveal(version)

    def _touched(self, transaction: Transaction) -> set[tuple[str, Row]]:
        return {(change.table, self._key_of[change.table](change.row)) for change in transaction.changes}


def _key_getter(table: Table) -> Callable[[Row], Row]:
    return column_getter(table.columns, table.key or table.columns)


@lru_cache(maxsize=4096)
def _compiled(
    block: Block, relation: int, on: tuple[tuple[str, str], ...]
) -> tuple[Compiled, Callable[[Row], Row], Callable[[Row], Row]]:
    """The local condition, the looked-up columns and the returned columns as functions of a base row."""
    columns = block.relations[relation].columns
    return (
        compile_expression(conjunction(block.local[relation]), columns),
        column_getter(columns, [own for _, own in on]),
        column_getter(columns, block.needed[relation]),
    )
