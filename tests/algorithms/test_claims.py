"""Every algorithm is held to every level it claims, in each scenario, on each network it claims it for."""

from __future__ import annotations

import pytest

from rollview.algebra.levels import Level, Scenario
from rollview.algorithms.registry import ALGORITHMS
from rollview.simulator.campaign import Campaign, run_campaign, size_for
from rollview.simulator.network import NETWORKS

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
