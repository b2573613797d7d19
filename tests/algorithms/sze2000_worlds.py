"""The version-numbers entry, and its runs over worlds with foreign keys."""

from __future__ import annotations

import random

from rollview.algorithms.algorithm import Scenario
from rollview.algorithms.registry import ALGORITHMS
from rollview.lab.simulator.checker import Verdict, check
from rollview.lab.simulator.keyed_worlds import draw_keyed_world as draw_world
from rollview.lab.simulator.network import NETWORKS, Network
from rollview.lab.simulator.schedule import Schedule, Seeded
from rollview.lab.simulator.simulation import simulate_run
from rollview.lab.simulator.world import World
from rollview.lab.tables.measured_costs import Batches

ALGORITHM = ALGORITHMS["version-numbers"]
_LONG = 12


def judge(seed: int, scenario: Scenario, network: Network) -> Verdict:
    """One run of the seed's world."""
    generator = random.Random(seed)
    world = draw_world(generator, scenario)
    outcome = simulate_run(world, ALGORITHM, network, Seeded(generator))
    return check(world, outcome.commits, outcome.publications, outcome.at_rest)


def first_below(algorithm: str, runs: int) -> str:
    """The first run, of single updates or source-local, that did not reach the claim; empty if all did."""
    for seed in range(runs):
        generator = random.Random(seed)
        scenario = generator.choice(list(Scenario)[:2])
        world = draw_world(generator, scenario)
        network = NETWORKS[generator.choice(list(NETWORKS))]
        if fallen := _fallen(algorithm, scenario, world, network, Seeded(generator)):
            return f"seed {seed}: {fallen}"
    return ""


def first_below_in_long_steps(algorithm: str, runs: int) -> str:
    """The same where an interval has all transactions: rows come, change several times, and go in it."""
    for seed in range(runs):
        generator = random.Random(seed)
        scenario = generator.choice(list(Scenario)[:2])
        world = draw_world(generator, scenario, _LONG)
        if fallen := _fallen(algorithm, scenario, world, NETWORKS["fifo"], Batches(_LONG)):
            return f"seed {seed}: {fallen}"
    return ""


def _fallen(
    algorithm: str, scenario: Scenario, world: World, network: Network, schedule: Schedule
) -> Verdict | None:
    chosen = ALGORITHMS[algorithm]
    outcome = simulate_run(world, chosen, network, schedule)
    verdict = check(world, outcome.commits, outcome.publications, outcome.at_rest)
    return verdict if verdict.level < chosen.claims[scenario] else None
