"""Random worlds of keys and foreign keys, in which views show some of the columns.

The other worlds declare no foreign keys and show either all keys or none, so much of what sze2000 §4 saves
is never tried there. Here: F → D → G at one source with enforced foreign keys, F → E at another source
(declared, but no one can enforce it), and P, joined with nothing.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from rollview.algorithms.algorithm import Scenario
from rollview.lab.simulator.world import World, from_json

COLUMNS = {
    "F": ("k", "d", "e", "x"),
    "D": ("k", "g", "y"),
    "G": ("k", "u"),
    "E": ("k", "z"),
    "P": ("k", "v"),
}
EDGES = {"D": "F.d = D.k", "G": "D.g = G.k", "E": "F.e = E.k"}
REFERS = {"F": {"d": "D", "e": "E"}, "D": {"g": "G"}}
ENFORCED = {"F": {"d": "D"}, "D": {"g": "G"}}
CHOICES = ("FD", "FDG", "FDE", "FDGE", "FE", "DG", "FDP", "DGP", "EP", "FDGEP")


def draw_keyed_world(generator: random.Random, scenario: Scenario, transactions: int = 7) -> World:
    """A random view over some of the relations, and transactions that keep the enforced foreign keys."""
    names = generator.choice(CHOICES)
    sources = {"F": "x", "D": "x", "G": "x", "E": "y", "P": generator.choice("xyz")}
    state: dict[str, dict[int, list[Any]]] = {name: {} for name in names}
    for name in reversed(names):
        for key in generator.sample(range(1, 5), generator.randint(0, 3)):
            state[name][key] = _row(generator, state, name, key)
    initial = {f"{sources[name]}.{name}": [list(row) for row in state[name].values()] for name in names}
    scripts: dict[str, list[Any]] = {sources[name]: [] for name in names}
    for _ in range(transactions):
        source = generator.choice(sorted(scripts))
        mine = [name for name in names if sources[name] == source]
        changes: list[Any] = []
        for _ in range(1 if scenario is Scenario.SINGLE_UPDATE else generator.randint(1, 4)):
            changes += _change(generator, state, generator.choice(mine), scenario)
        if changes:
            named = [[f"{source}.{name}", row, count] for name, row, count in changes]
            scripts[source].append({"changes": named})
    relations = [
        {
            "source": sources[name],
            "name": name,
            "columns": list(COLUMNS[name]),
            "key": ["k"],
            "foreign_keys": [
                {"columns": [column], "references": f"{sources[other]}.{other}"}
                for column, other in REFERS.get(name, {}).items()
                if other in names
            ],
        }
        for name in names
    ]
    return from_json(
        {
            "scenario": str(scenario),
            "relations": relations,
            "views": [{"name": "v", "sql": _draw_sql(generator, names, sources)}],
            "initial": initial,
            "scripts": scripts,
        }
    )


def _draw_sql(generator: random.Random, names: str, sources: dict[str, str]) -> str:
    columns = [f"{name}.{column}" for name in names for column in COLUMNS[name]]
    shown = [column for column in columns if generator.random() < 0.45] or [columns[0]]
    outputs = [f"{column} AS {column.replace('.', '')}" for column in shown]
    if generator.random() < 0.15:
        outputs.append(f"{generator.choice(columns)} + {generator.choice(columns)} AS total")
    conditions = [EDGES[name] for name in names if name in EDGES and (name != "G" or "D" in names)]
    conditions = [each for each in conditions if each.split(".")[0] in names]
    if generator.random() < 0.25:
        conditions.append(f"{generator.choice(columns)} < 2")
    if generator.random() < 0.25:
        conditions.append(f"{generator.choice(columns)} <= {generator.choice(columns)} + 1")
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    tables = ", ".join(f"{sources[name]}.{name} {name}" for name in names)
    return f"SELECT {', '.join(outputs)} FROM {tables}{where}"


def _row(generator: random.Random, state: dict[str, dict[int, Any]], name: str, key: int) -> list[Any]:
    values: list[Any] = [key]
    for column in COLUMNS[name][1:]:
        other = REFERS.get(name, {}).get(column)
        if other in state and other == ENFORCED.get(name, {}).get(column):
            values.append(generator.choice([None, *state[other], *state[other], *state[other]]))
        elif other is not None:
            values.append(generator.choice([None, 1, 2, 3, 4]))
        else:
            values.append(generator.choice([0, 1, 2]))
    return values


def _change(
    generator: random.Random, state: dict[str, dict[int, Any]], name: str, scenario: Scenario
) -> Iterator[tuple[str, list[Any], int]]:
    key = generator.randint(1, 4)
    old = state[name].get(key)
    if old is None:
        state[name][key] = _row(generator, state, name, key)
        yield name, state[name][key], 1
        return
    if scenario is not Scenario.SINGLE_UPDATE and generator.random() < 0.6:
        new = list(old)
        while new == old:
            fresh = _row(generator, state, name, key)
            place = generator.randrange(1, len(new))
            new[place] = fresh[place]
            if generator.random() < 0.2:
                break
        state[name][key] = new
        yield from ((name, old, -1), (name, new, 1))
        return
    for other, columns in ENFORCED.items():
        for column, referenced in columns.items():
            place = COLUMNS[other].index(column)
            for row in [*state.get(other, {}).values()] if referenced == name else ():
                if row[place] == key:
                    if scenario is Scenario.SINGLE_UPDATE:
                        return
                    yield from _remove(state, other, row)
    yield from _remove(state, name, old)


def _remove(
    state: dict[str, dict[int, Any]], name: str, row: list[Any]
) -> Iterator[tuple[str, list[Any], int]]:
    """Deletes a row after those that refer to it."""
    for other, columns in ENFORCED.items():
        for column, referenced in columns.items():
            if referenced == name and other in state:
                place = COLUMNS[other].index(column)
                for referring in list(state[other].values()):
                    if referring[place] == row[0]:
                        yield from _remove(state, other, referring)
    if row[0] in state[name]:
        del state[name][row[0]]
        yield name, row, -1
