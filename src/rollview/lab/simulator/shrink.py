"""Shrinking: from a failing run to the shortest run that still fails.

Transactions, changes and first rows are taken away one by one as long as the run still falls short of the
level; then choices are made calmer. A smaller world rarely fails under the very same choices, so a few
other schedules are tried on it as well.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from rollview.algebra.history import Transaction
from rollview.algorithms.algorithm import Algorithm, Level
from rollview.errors import WorldError
from rollview.lab.simulator.checker import check
from rollview.lab.simulator.network import Network
from rollview.lab.simulator.schedule import Recorded, Schedule, Seeded
from rollview.lab.simulator.simulation import simulate_run
from rollview.lab.simulator.world import World, validate


@dataclass(frozen=True)
class Failing:
    """A run that falls short, by its world and its choices."""

    world: World
    choices: tuple[int, ...]


class _Budget(Exception):
    """Enough runs have been tried."""


def shrink(
    failing: Failing, algorithm: Algorithm, network: Network, required: Level, most_runs: int = 3000
) -> Failing:
    """A smaller run that also falls short of `required`; the given one if none is found."""
    search = _Search(algorithm, network, required, most_runs)
    try:
        while True:
            smaller = search.first_failing(failing)
            if smaller is None:
                return search.calmer(failing)
            failing = smaller
    except _Budget:
        return failing


class _Search:
    def __init__(self, algorithm: Algorithm, network: Network, required: Level, most_runs: int) -> None:
        self._algorithm = algorithm
        self._network = network
        self._required = required
        self._left = most_runs

    def first_failing(self, failing: Failing) -> Failing | None:
        """The first world with one thing less that still fails."""
        for world in _smaller_worlds(failing.world):
            if self._fails(world, Recorded(failing.choices)):
                return Failing(world, failing.choices)
            for seed in range(8):
                schedule = Seeded(random.Random(seed))
                if self._fails(world, schedule):
                    return Failing(world, tuple(schedule.choices))
        return None

    def calmer(self, failing: Failing) -> Failing:
        """The same world with as many choices as possible set to the calmest, and the tail cut off."""
        choices = list(failing.choices)
        try:
            for position in range(len(choices) - 1, -1, -1):
                if choices[position]:
                    attempt = [*choices[:position], 0, *choices[position + 1 :]]
                    if self._fails(failing.world, Recorded(attempt)):
                        choices = attempt
        except _Budget:
            pass
        while choices and not choices[-1]:
            choices.pop()
        return Failing(failing.world, tuple(choices))

    def _fails(self, world: World, schedule: Schedule) -> bool:
        if not self._left:
            raise _Budget
        self._left -= 1
        outcome = simulate_run(world, self._algorithm, self._network, schedule)
        verdict = check(world, outcome.commits, outcome.publications, outcome.at_rest)
        return verdict.level < self._required


def _smaller_worlds(world: World) -> Iterator[World]:
    """Worlds with one transaction, one change or one first row less, as far as they can exist."""
    candidates = [*_without_transaction(world), *_without_change(world), *_without_row(world)]
    if world.snapshots:
        candidates.append(replace(world, snapshots=frozenset()))
    for candidate in candidates:
        try:
            validate(candidate)
        except WorldError:
            continue
        yield candidate


def _without_transaction(world: World) -> Iterator[World]:
    for source, script in world.scripts.items():
        for victim in script:
            if victim.global_id and min(victim.participants) != source:
                continue  # A global transaction goes as a whole, once.
            scripts = {
                name: _renumbered([other for other in others if not _same(other, victim)])
                for name, others in world.scripts.items()
            }
            yield replace(world, scripts=scripts)


def _same(transaction: Transaction, victim: Transaction) -> bool:
    if victim.global_id:
        return transaction.global_id == victim.global_id
    return transaction is victim


def _renumbered(script: list[Transaction]) -> tuple[Transaction, ...]:
    return tuple(replace(transaction, version=version) for version, transaction in enumerate(script, 1))


def _without_change(world: World) -> Iterator[World]:
    for source, script in world.scripts.items():
        for index, transaction in enumerate(script):
            for left_out in range(len(transaction.changes) if len(transaction.changes) > 1 else 0):
                changes = transaction.changes[:left_out] + transaction.changes[left_out + 1 :]
                smaller = (*script[:index], replace(transaction, changes=changes), *script[index + 1 :])
                yield replace(world, scripts={**world.scripts, source: smaller})


def _without_row(world: World) -> Iterator[World]:
    for name, rows in world.initial.items():
        for left_out in range(len(rows)):
            yield replace(world, initial={**world.initial, name: rows[:left_out] + rows[left_out + 1 :]})
