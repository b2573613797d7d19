"""Random worlds: tables, views, rows and transactions, small and dense enough that updates interfere.

A shape is the tables, their sources and what the views over them say. It is drawn from a number, so many runs
share one and its SQL is parsed once. Between them, shapes cover chains, stars and cycles, self-joins and
products, several relations at one source, local and residual conditions, projections with and without keys,
UNION ALL and aggregates.

Values come from tiny domains so that most rows join, keys are used again after a deletion, and some
values are NULL. Scripts are cut from one serial order of transactions, so however sources interleave,
that order remains a witness that the execution was serializable.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from rollview.algebra.expression import Row
from rollview.algebra.history import Change, Transaction
from rollview.algebra.relation import Table
from rollview.algebra.view import View
from rollview.algorithms.algorithm import Scenario
from rollview.lab.simulator.world import World
from rollview.planning import parse_view

T = TypeVar("T")
_KEYS = range(1, 7)
_VALUES = (0, 1, 1, 2, 2, None)

SHAPES = 96
"""How many shapes there are for a number of relations."""

_SOURCE_NAMES = "xyzuvw"


@dataclass(frozen=True)
class Shape:
    """Tables and views, before there are rows."""

    tables: tuple[Table, ...]
    views: tuple[View, ...]


@lru_cache(maxsize=2048)
def draw_shape(relations: int, views: int, number: int, keyed: bool, sources: int) -> Shape:
    """The shape with this number. `keyed`: every view is one block that keeps all keys.

    `sources` is how many sources there are at most; 0 is any number.
    """
    generator = random.Random(f"{relations} {number}")
    tables = _draw_tables(generator, relations, sources or relations)
    aliases = [f"r{i + 1}" for i in range(relations)]
    joined = list(zip(aliases, tables, strict=True))
    if relations > 1 and not keyed and generator.random() < 0.2:
        # A self-join: the last relation is the first table once more.
        joined[-1] = (aliases[-1], tables[0])
        tables = tuple(dict.fromkeys(table for _, table in joined))
    parsed = []
    for index in range(views):
        name = "v" if views == 1 else f"v{index + 1}"
        parsed.append(parse_view(_draw_sql(generator, joined, keyed), tables, name))
    return Shape(tables, tuple(parsed))


def _draw_tables(generator: random.Random, relations: int, most: int) -> tuple[Table, ...]:
    sources = _SOURCE_NAMES[: generator.randint(1, most)]
    if generator.random() < 0.4:
        sources = _SOURCE_NAMES[:most]
    names = [*sources, *(generator.choice(sources) for _ in range(relations - len(sources)))]
    return tuple(Table(name, f"t{i + 1}", ("k", "a", "b"), ("k",)) for i, name in enumerate(names))


def _draw_sql(generator: random.Random, joined: list[tuple[str, Table]], keyed: bool) -> str:
    kind = "keyed" if keyed else generator.choice(["keyed", "projected", "aggregate", "union", "projected"])
    source = _draw_from(generator, joined)
    aliases = [alias for alias, _ in joined]
    first, last = aliases[0], aliases[-1]
    if kind == "keyed":
        columns = [f"{alias}.k AS k{i + 1}" for i, alias in enumerate(aliases)]
        return f"SELECT {', '.join([*columns, f'{last}.b AS b'])} {source}"
    if kind == "aggregate":
        keys = generator.choice([f"{first}.a AS g, ", ""])
        group = f" GROUP BY {first}.a" if keys else ""
        return f"SELECT {keys}count(*) AS n, sum({last}.b) AS total, avg({last}.k) AS mean {source}{group}"
    pair = f"{first}.a AS a, {last}.b AS b"
    if kind == "union":
        return f"SELECT {pair} {source} UNION ALL SELECT {first}.k, {last}.k {_draw_from(generator, joined)}"
    return f"SELECT {pair} {source}"


def _draw_from(generator: random.Random, joined: list[tuple[str, Table]]) -> str:
    """FROM and WHERE: a random tree of equalities, sometimes a cycle, a product, further conditions."""
    conditions = []
    star = generator.random() < 0.3
    for index in range(1, len(joined)):
        if generator.random() < 0.06 and len(joined) <= 3:
            continue  # A product.
        parent = 0 if star else generator.randint(max(0, index - 2), index - 1)
        ours, theirs = generator.choice([("a", "b"), ("a", "b"), ("a", "a"), ("k", "b"), ("a", "k")])
        conditions.append(f"{joined[index][0]}.{ours} = {joined[parent][0]}.{theirs}")
    if len(joined) > 2 and generator.random() < 0.25:
        conditions.append(f"{joined[0][0]}.a = {joined[-1][0]}.b")
    if generator.random() < 0.3:
        conditions.append(f"{generator.choice(joined)[0]}.b < 2")
    if len(joined) > 1 and generator.random() < 0.3:
        conditions.append(f"{joined[0][0]}.b <= {joined[-1][0]}.a + 1")
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return "FROM " + ", ".join(f"{table.qualified} {alias}" for alias, table in joined) + where


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
