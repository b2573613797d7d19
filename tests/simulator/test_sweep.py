"""The sweep is complete: every scenario, every network, 1 to 5 relations, several views together."""

from __future__ import annotations

import pytest

from rollview.algorithms.algorithm import Level, Scenario
from rollview.algorithms.registry import ALGORITHMS
from rollview.lab.examples.strobe import example_world
from rollview.lab.simulator.campaign import Campaign, Tally, run_campaign
from rollview.lab.simulator.generate import Size
from rollview.lab.simulator.network import NETWORKS

SWEEP = ALGORITHMS["sweep"]


def _assert_complete(tally: Tally) -> None:
    assert tally.failing_seed is None, f"seed {tally.failing_seed} falls short"
    assert tally.level is Level.COMPLETE
    assert tally.false_claims == 0


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("scenario", Scenario)
def test_oracle_seeded(scenario: Scenario, network: str) -> None:
    size = Size(relations=3, transactions=8)
    _assert_complete(run_campaign(Campaign(SWEEP, NETWORKS[network], scenario, size, runs=60, seed=1_000)))


@pytest.mark.parametrize("relations", [1, 2, 4, 5])
def test_oracle_other_sizes(relations: int) -> None:
    size = Size(relations, transactions=8)
    _assert_complete(run_campaign(Campaign(SWEEP, NETWORKS["hostile"], Scenario.GLOBAL, size, runs=60)))


def test_oracle_views_published_together() -> None:
    size = Size(relations=3, transactions=6, views=3)
    _assert_complete(run_campaign(Campaign(SWEEP, NETWORKS["hostile"], Scenario.GLOBAL, size, runs=60)))


@pytest.mark.parametrize("seed", [0, 2, 11, 12])
def test_oracle_every_schedule_of_a_small_world(seed: int) -> None:
    """Two relations, two transactions: some hundreds to thousands of schedules, tried to the last."""
    size = Size(relations=2, transactions=2, initial_rows=2)
    campaign = Campaign(
        SWEEP, NETWORKS["fifo"], Scenario.SOURCE_LOCAL, size, runs=10_000, seed=seed, exhaustive=True
    )
    tally = run_campaign(campaign)
    _assert_complete(tally)
    assert tally.finished


@pytest.mark.slow
@pytest.mark.parametrize("scenario", Scenario)
@pytest.mark.parametrize("relations", [2, 3, 4, 5])
def test_oracle_slice_of_the_soak(relations: int, scenario: Scenario) -> None:
    """A slice of `make soak`, at seeds that it does not use."""
    size = Size(relations, transactions=10)
    _assert_complete(
        run_campaign(Campaign(SWEEP, NETWORKS["hostile"], scenario, size, runs=250, seed=50_000_000))
    )


@pytest.mark.slow
def test_oracle_every_schedule_of_the_papers_example() -> None:
    """zhuge1996 Example 1: all interleavings, on a network in order and on one that misorders."""
    for network in ("fifo", "misordered"):
        campaign = Campaign(
            SWEEP,
            NETWORKS[network],
            Scenario.SINGLE_UPDATE,
            runs=100_000,
            exhaustive=True,
            world=example_world(),
        )
        tally = run_campaign(campaign)
        _assert_complete(tally)
        assert tally.finished
