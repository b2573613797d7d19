"""Shapes: which tables there are, at which sources, and what the views over them say.

A shape is drawn from a number, so many runs share one and its SQL is parsed once. Between them, shapes
cover chains, stars and cycles, self-joins and products, several relations at one source, local and
residual conditions, projections with and without keys, UNION ALL and aggregates.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import lru_cache

from rollview.algebra.relation import Table
from rollview.algebra.view import View
from rollview.planning import parse_view

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
