"""View deltas that simulated writers make in their own transactions, as they were captured with the log.

Writers wait for nobody: what a statement saw of other transactions lags behind its commit by up to two of
them, and now and then one makes nothing at all. Which, is a matter of the csn alone, so that every run of a
schedule finds the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from rollview.algebra.expression import Row
from rollview.algebra.history import CSN, Change, UnitOfWork
from rollview.algebra.node import Block
from rollview.algorithms.beyer2000.source_propagation import RELATION, SIGN
from rollview.algorithms.effects import MadeDelta, SourceDelta, Statement
from rollview.lab.memory.bag import MemoryBag
from rollview.lab.memory.evaluate import joined
from rollview.lab.simulator.store import Store
from rollview.lab.simulator.world import State, make_changes

_LAGS = (0, 1, 2, 0, 1)
_UNMARKED = 7


def made_delta(store: Store, effect: SourceDelta) -> MadeDelta[MemoryBag]:
    """The delta of a block in an interval, as the writers of its source have made it."""
    block = store.views[effect.view].blocks[effect.block]
    source = block.relations[0].table.source
    own = [unit for unit in store.history.units if any(part.source == source for part in unit.parts)]
    counts: dict[Row, int] = {}
    statements: list[Statement] = []
    for place, unit in enumerate(own):
        if effect.after < unit.csn <= effect.upto and unit.csn % _UNMARKED:
            lag = min(place, _LAGS[unit.csn % len(_LAGS)])
            unseen = frozenset(each.csn for each in own[place - lag : place])
            seen = _state(store, block, own[: place - lag])
            for table, changes in _statements(unit, source, block):
                statements.append(Statement(unit.csn, table, unseen))
                for row, count in _made(block, table, seen, changes):
                    # How often a row counts is a column here: two that cancel were both made.
                    key = (*row[:-1], unit.csn, row[-1], count)
                    counts[key] = counts.get(key, 0) + 1
                make_changes(seen, changes)
    columns = tuple(name for relation in block.relations for name in relation.columns)
    changed = {
        relation.table.qualified: frozenset(
            unit.csn
            for unit in own
            for part in unit.parts
            for change in part.changes
            if change.table == relation.table.qualified and unit.csn <= effect.upto
        )
        for relation in block.relations
    }
    rows = MemoryBag((*columns, CSN, RELATION, SIGN), counts)
    return MadeDelta(rows, tuple(statements), changed)


def _state(store: Store, block: Block, units: list[UnitOfWork]) -> State:
    """The block's tables as whoever has seen these units sees them."""
    names = {relation.table.qualified for relation in block.relations}
    state = {name: dict(store.initial[name]) for name in names}
    for unit in units:
        for part in unit.parts:
            make_changes(state, [change for change in part.changes if change.table in names])
    return state


def _statements(unit: UnitOfWork, source: str, block: Block) -> Iterator[tuple[str, list[Change]]]:
    """The statements of a transaction: changes of one table that follow each other."""
    names = {relation.table.qualified for relation in block.relations}
    changes = [change for part in unit.parts if part.source == source for change in part.changes]
    for table, found in groupby(changes, key=lambda change: change.table):
        if table in names:
            yield table, list(found)


def _made(block: Block, table: str, seen: State, changes: list[Change]) -> Iterator[tuple[Row, int]]:
    """The rows that a statement's changes join, each followed by the position of the changed relation."""
    after: State = {name: dict(rows) for name, rows in seen.items()}
    make_changes(after, changes)
    delta: dict[Row, int] = {}
    for change in changes:
        delta[change.row] = delta.get(change.row, 0) + change.count
    for position, relation in enumerate(block.relations):
        if relation.table.qualified == table:
            there = [
                delta if place == position else (after if place < position else seen)[each.table.qualified]
                for place, each in enumerate(block.relations)
            ]
            for row, count in joined(block, there):
                yield (*row, position), count
