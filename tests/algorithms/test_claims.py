"""Every algorithm is held to every level it claims, in each scenario, on each network it claims it for."""

from __future__ import annotations

import random

import pytest

from rollview.algorithms.algorithm import Level, Scenario
from rollview.algorithms.registry import ALGORITHMS
from rollview.lab.simulator.campaign import Campaign, run_campaign, size_for
from rollview.lab.simulator.checker import check
from rollview.lab.simulator.generate import Size, generate_over
from rollview.lab.simulator.network import NETWORKS
from rollview.lab.simulator.schedule import Seeded
from rollview.lab.simulator.simulation import simulate_run
from rollview.lab.tables.measured_costs import chain

CLAIMS = [
    (name, scenario, network)
    for name, algorithm in ALGORITHMS.items()
    for scenario, level in algorithm.claims.items()
    for network in algorithm.networks
    if level > Level.NONE
]


def _hold(name: str, scenario: Scenario, network: str, runs: int, seed: int) -> None:
    algorithm = ALGORITHMS[name]
    size = size_for(algorithm, relations=3, transactions=8)
    required = algorithm.claims[scenario]
    tally = run_campaign(Campaign(algorithm, NETWORKS[network], scenario, size, runs, seed, required))
    assert tally.failing_seed is None, f"seed {tally.failing_seed} falls short of {required}"


@pytest.mark.parametrize(("name", "scenario", "network"), CLAIMS)
def test_a_claim_holds(name: str, scenario: Scenario, network: str) -> None:
    _hold(name, scenario, network, runs=10, seed=7_000)


@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.parametrize("runs", [40, pytest.param(500, marks=pytest.mark.soak)])
@pytest.mark.parametrize(("name", "scenario", "network"), CLAIMS)
def test_a_claim_holds_at_length(name: str, scenario: Scenario, network: str, runs: int) -> None:
    _hold(name, scenario, network, runs, seed=8_000)


def test_names_are_the_contract() -> None:
    """The names of the design's property `rollview.algorithm` are all there."""
    fixed = "sweep compute-delta propagate rolling strobe t-strobe g-strobe c-strobe version-numbers"
    assert set(fixed.split()) <= set(ALGORITHMS)


def test_every_published_algorithm_maintains_views_on_live_sources() -> None:
    """Of one table with its key, that is; the two that are left out say why."""
    (view,) = chain(1, 1).views
    refused = {name for name, each in ALGORITHMS.items() if each.refusal(view) or each.live_refusal(view)}
    assert refused == {"ipda", "rolling-as-printed"}


def test_conventional_maintenance_converges_exactly_where_it_is_allowed() -> None:
    conventional = ALGORITHMS["conventional"]

    def converges(relations: int) -> bool:
        shape = chain(relations, 0)
        worlds = [
            generate_over(shape, random.Random(seed), Scenario.SINGLE_UPDATE, Size(relations, 6))
            for seed in range(40)
        ]
        runs = [
            (world, simulate_run(world, conventional, NETWORKS["fifo"], Seeded(random.Random(seed))))
            for seed, world in enumerate(worlds)
        ]
        levels = [check(world, run.commits, run.publications, run.at_rest).level for world, run in runs]
        return min(levels) >= conventional.level

    for relations in (1, 2, 3):
        (view,) = chain(relations, 0).views
        assert converges(relations) == (not conventional.live_refusal(view)), relations
