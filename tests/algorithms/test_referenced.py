"""Changes of referenced rows in the sweep: what a foreign key spares, and that nothing else is left out."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from sze2000_worlds import draw_world, first_below

from rollview.algebra.dependencies import refers
from rollview.algorithms import referenced
from rollview.algorithms.algorithm import Level, Scenario
from rollview.algorithms.registry import ALGORITHMS
from rollview.lab.simulator.network import NETWORKS
from rollview.lab.simulator.simulation import simulate_run
from rollview.lab.simulator.warehouse import Costs
from rollview.lab.simulator.world import World
from rollview.lab.tables.measured_costs import Stream
from rollview.planning import parse_view

Patch = pytest.MonkeyPatch
RUNS = 120


@pytest.mark.parametrize("algorithm", ["sweep", "net-effect", "ipda"])
def test_levels_hold_where_foreign_keys_are_enforced(algorithm: str) -> None:
    assert first_below(algorithm, RUNS) == ""


def _no_look_at_the_transaction(patch: Patch) -> None:
    """An order that comes with its lines is left out, too."""
    patch.setattr(referenced, "_keys", _empty_for_others(referenced._keys))


def _empty_for_others(true_keys: Callable[..., Any]) -> Callable[..., Any]:
    def keys(*arguments: Any) -> Any:
        found = yield from true_keys(*arguments)
        return (
            found if len(arguments[2]) == 1 and arguments[2][0].endswith(".k") else found.plus(found.negate())
        )

    return keys


def _modifications_too(patch: Patch) -> None:
    """What keeps its key counts as come and gone."""

    def keys(*arguments: Any) -> Any:
        steps, value = true_keys(*arguments), None
        while True:
            try:
                log = yield steps.send(value)
            except StopIteration as done:
                return done.value
            # Each row once: what went and came is no longer nothing.
            value = log.distinct(log.columns)

    true_keys = referenced._keys
    patch.setattr(referenced, "_keys", keys)


def _other_sources(patch: Patch) -> None:
    """A foreign key to another source, which nobody enforces, is trusted."""

    def referring(block: Any, position: int) -> Any:
        return (other for other in range(len(block.relations)) if refers(block, other, position))

    patch.setattr(referenced, "referring", referring)


@pytest.mark.parametrize("mistake", [_no_look_at_the_transaction, _modifications_too, _other_sources])
def test_mistakes_are_caught(monkeypatch: Patch, mistake: Callable[[Patch], None]) -> None:
    mistake(monkeypatch)
    assert first_below("sweep", 400)


def _costs(world: World, algorithm: str) -> Costs:
    return simulate_run(world, ALGORITHMS[algorithm], NETWORKS["fifo"], Stream()).costs


def _without_foreign_keys(world: World) -> World:
    tables = tuple(replace(table, foreign_keys=()) for table in world.tables)
    views = tuple(parse_view(view.sql, tables, view.name) for view in world.views)
    return replace(world, tables=tables, views=views)


def test_fewer_sub_queries_and_rows() -> None:
    """A stream of transactions over relations that refer to each other, averaged: the sweep is cheapest."""
    found = {"sweep": Costs(), "version-numbers": Costs(), "without_keys": Costs()}
    for seed in range(60):
        world = draw_world(random.Random(seed), Scenario.SOURCE_LOCAL, transactions=12)
        for algorithm in ("sweep", "version-numbers"):
            found[algorithm].add(_costs(world, algorithm))
        found["without_keys"].add(_costs(_without_foreign_keys(world), "sweep"))
    sweep, numbers, without_keys = found.values()
    # What the view, the log and shared questions answer spares most of what foreign keys would.
    assert sweep.questions < 0.95 * without_keys.questions
    assert sweep.rows_shipped < 0.95 * without_keys.rows_shipped
    assert sweep.questions < numbers.questions
    assert Level.COMPLETE in ALGORITHMS["sweep"].claims.values()
