"""Random worlds: rows and transactions for a shape, small and dense enough that updates interfere.

Values come from tiny domains so that most rows join, keys are used again after a deletion, and some
values are NULL. Scripts are cut from one serial order of transactions, so however sources interleave,
that order remains a witness that the execution was serializable.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from rollview.algebra.expression import Row
from rollview.algebra.history import Change, Transaction
from rollview.algebra.levels import Scenario
from rollview.algebra.relation import Table
from rollview.simulator.shape import SHAPES, Shape, draw_shape
from rollview.simulator.world import World

T = TypeVar("T")
_KEYS = range(1, 7)
_VALUES = (0, 1, 1, 2, 2, None)


@dataclass(frozen=True)
class Size:
    """How large a world is, and of which kind.

    `keyed`: every view is one block that keeps the keys of its relations. `snapshots`: some sources
    answer from snapshots that are no prefix of their commits. `sources`: how many at most; 0 is any.
    `rates`: how often each table changes, compared with the others; all alike if there are none.
    """

    relations: int = 3
    transactions: int = 10
    views: int = 1
    keyed: bool = False
    snapshots: bool = True
    sources: int = 0
    initial_rows: int = 4
    rates: tuple[int, ...] = ()


def generate(generator: random.Random, scenario: Scenario, size: Size) -> World:
    """A world of this size."""
    shape = draw_shape(size.relations, size.views, generator.randrange(SHAPES), size.keyed, size.sources)
    return generate_over(shape, generator, scenario, size)


def generate_over(shape: Shape, generator: random.Random, scenario: Scenario, size: Size) -> World:
    """Rows and transactions for a given shape."""
    state = {table.qualified: _first_rows(generator, size.initial_rows) for table in shape.tables}
    initial = {name: tuple(rows.values()) for name, rows in state.items()}
    tables: dict[str, list[Table]] = {}
    for table, rate in zip(shape.tables, size.rates or (1,) * len(shape.tables), strict=True):
        tables.setdefault(table.source, []).extend([table] * rate)
    sources = [table.source for each in tables.values() for table in each] if size.rates else list(tables)
    scripts: dict[str, list[Transaction]] = {source: [] for source in tables}
    for number in range(size.transactions):
        participants = _participants(generator, scenario, sources)
        for source in participants:
            most = 1 if scenario is Scenario.SINGLE_UPDATE else 3
            changes: list[Change] = []
            for _ in range(generator.randint(1, most)):
                table = _pick(generator, tables[source])
                changes += _change(generator, table, state[table.qualified], scenario)
            script = scripts[source]
            together = len(participants) > 1
            script.append(
                Transaction(
                    source,
                    len(script) + 1,
                    tuple(changes),
                    global_id=f"g{number + 1}" if together else "",
                    participants=participants if together else (),
                )
            )
    snapshots = frozenset(source for source in tables if generator.random() < 0.25 and size.snapshots)
    frozen = {source: tuple(script) for source, script in scripts.items()}
    return World(shape.tables, shape.views, initial, frozen, scenario, snapshots)


def _pick(generator: random.Random, items: Sequence[T]) -> T:
    """One of the items; much faster than `choice`, and a world is made for every run."""
    return items[int(generator.random() * len(items))]


def _participants(generator: random.Random, scenario: Scenario, sources: list[str]) -> tuple[str, ...]:
    if scenario is Scenario.GLOBAL and len(sources) > 1 and generator.random() < 0.5:
        return tuple(sorted(generator.sample(sources, generator.randint(2, min(3, len(sources))))))
    return (_pick(generator, sources),)


def _first_rows(generator: random.Random, most: int) -> dict[int, Row]:
    keys = generator.sample(_KEYS, generator.randint(0, most))
    return {key: _row(generator, key) for key in keys}


def _row(generator: random.Random, key: int) -> Row:
    return (key, _pick(generator, _VALUES), _pick(generator, _VALUES))


def _change(generator: random.Random, table: Table, rows: dict[int, Row], scenario: Scenario) -> list[Change]:
    """An insertion, a deletion or, where a transaction may hold two changes, a modification."""
    name = table.qualified
    key = _pick(generator, _KEYS)
    old = rows.get(key)
    if old is None:
        rows[key] = _row(generator, key)
        return [Change(name, rows[key], 1)]
    if scenario is Scenario.SINGLE_UPDATE or generator.random() < 0.4:
        del rows[key]
        return [Change(name, old, -1)]
    rows[key] = _row(generator, key)
    return [Change(name, old, -1), Change(name, rows[key], 1)]
