"""The Strobe family's levels, measured: zhuge1996 Figure 2 from runs, with witnesses for "no more"."""

from __future__ import annotations

import json
from dataclasses import replace
from math import factorial

import pytest
from zhuge1996_family import FAMILY, key_used_again, self_joins

from rollview.algorithms.algorithm import Level, Scenario
from rollview.algorithms.registry import ALGORITHMS
from rollview.lab.examples.strobe import (
    FIGURE_2,
    compensating_queries,
    in_turn,
    measured,
    one_after_each,
)
from rollview.lab.simulator.campaign import Campaign, run_campaign, run_one
from rollview.lab.simulator.generate import Size
from rollview.lab.simulator.network import NETWORKS
from rollview.lab.simulator.schedule import Recorded
from rollview.lab.simulator.shrink import shrink
from rollview.lab.simulator.simulation import simulate_run
from rollview.lab.simulator.world import from_json, to_json

SMALL = Size(relations=2, transactions=7, keyed=True, snapshots=False)
CELLS = [(name, scenario) for name in FAMILY for scenario in Scenario]


def campaign(name: str, scenario: Scenario, network: str = "fifo", size: Size = SMALL) -> Campaign:
    """Held to what the algorithm claims."""
    algorithm = FAMILY[name]
    return Campaign(
        algorithm, NETWORKS[network], scenario, size, runs=60, required=algorithm.claims[scenario]
    )


@pytest.mark.parametrize(("name", "scenario"), CELLS)
def test_the_spectrum_of_figure_2(name: str, scenario: Scenario) -> None:
    """Every run reaches the level that the paper states, some run no more; and every claimed version is true.

    Of cells that it does not state, our registry says what they reach.
    """
    tally = measured(name, scenario)
    assert tally.level is FIGURE_2.get((name, scenario), FAMILY[name].claims[scenario])
    assert tally.level is FAMILY[name].claims[scenario]
    assert tally.false_claims == 0


@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.parametrize(("name", "scenario"), CELLS)
@pytest.mark.parametrize("relations", [3, 4])
@pytest.mark.parametrize("runs", [80, pytest.param(400, marks=pytest.mark.soak)])
def test_the_claims_hold_in_larger_worlds(name: str, scenario: Scenario, relations: int, runs: int) -> None:
    size = Size(relations=relations, transactions=8, keyed=True, snapshots=False)
    assert run_campaign(replace(campaign(name, scenario, size=size), runs=runs)).failing is None


@pytest.mark.parametrize("name", FAMILY)
@pytest.mark.parametrize("second", [[1, 2], [1, 5], [1, None]], ids=str)
def test_every_schedule_while_a_key_is_used_again(name: str, second: list[int | None]) -> None:
    """pending(Q) takes a re-inserted tuple away from an answer; the query of its own brings it back."""
    tried = replace(campaign(name, Scenario.SINGLE_UPDATE), world=key_used_again(second), exhaustive=True)
    tally = run_campaign(replace(tried, runs=5_000))
    assert tally.finished and tally.runs > 50
    assert tally.failing is None


@pytest.mark.parametrize("name", FAMILY)
@pytest.mark.parametrize("occurrences", [2, 3])
def test_a_table_that_occurs_twice(name: str, occurrences: int) -> None:
    """An update is then one of several relations, and a deleted tuple may be needed in all of them."""
    tried = replace(campaign(name, Scenario.SINGLE_UPDATE), world=self_joins(occurrences), runs=40)
    assert run_campaign(tried).failing is None


@pytest.mark.parametrize("name", FAMILY)
@pytest.mark.parametrize("network", ["misordered", "lossy", "hostile"])
def test_it_needs_the_network_that_the_paper_assumes(name: str, network: str) -> None:
    """An answer that overtakes an update, a lost update, a crash: any of them breaks the view for good."""
    tried = replace(campaign(name, Scenario.SINGLE_UPDATE, network), runs=25)
    levels = (run_campaign(replace(tried, seed=seed)).level for seed in range(0, 500, 25))
    assert any(level is Level.NONE for level in levels)


@pytest.mark.parametrize(
    ("name", "scenario", "missed", "most"),
    [
        ("strobe", Scenario.SOURCE_LOCAL, Level.WEAK, 2),
        ("c-strobe", Scenario.SOURCE_LOCAL, Level.WEAK, 2),
        ("t-strobe", Scenario.GLOBAL, Level.STRONG, 4),
        ("c-t-strobe", Scenario.GLOBAL, Level.STRONG, 4),
        ("t-strobe", Scenario.SOURCE_LOCAL, Level.COMPLETE, 3),
    ],
)
def test_a_witness_shrinks_to_its_core(name: str, scenario: Scenario, missed: Level, most: int) -> None:
    """Half a transaction is shown; half a global transaction is shown; a state is skipped."""
    tried = replace(campaign(name, scenario), required=missed)
    tally = run_campaign(tried)
    assert tally.failing is not None
    small = shrink(tally.failing, tried.algorithm, tried.network, missed, most_runs=600)
    _, verdict = run_one(tried, small.world, Recorded(small.choices))
    assert verdict.level == missed - 1
    assert sum(map(len, small.world.scripts.values())) <= most


@pytest.mark.parametrize("name", FAMILY)
def test_it_costs_nothing_more_than_conventional_maintenance_without_concurrency(name: str) -> None:
    """§7: when updates come one at a time, there is nothing to compensate."""
    world = key_used_again([1, 5])
    calm = simulate_run(world, FAMILY[name], NETWORKS["fifo"], Recorded([]))
    conventional = simulate_run(world, ALGORITHMS["conventional"], NETWORKS["fifo"], Recorded([]))
    assert calm.costs == conventional.costs


@pytest.mark.parametrize("relations", [2, 3, 4])
def test_compensating_queries_are_grouped_by_base_relation(relations: int) -> None:
    """§6 bounds them by (n − 1)!, which is one level of the recursion; all levels can be more for n > 3."""
    outcome = compensating_queries(relations, in_turn, 3).outcome
    others = relations - 1
    levels = [factorial(others) // factorial(others - depth) for depth in range(1, others)]
    assert outcome.costs.executions - 1 == sum(levels) == {2: 0, 3: 2, 4: 9}[relations]
    assert max(levels, default=0) <= factorial(others)


@pytest.mark.parametrize("relations", [3, 4, 5])
def test_ungrouped_compensating_queries_are_more_than_one_level(relations: int) -> None:
    """§6 bounds them by K^(n − 2). With K = 1 each of the n − 2 levels has a query: n − 2 in all, not 1."""
    played = compensating_queries(relations, one_after_each, 1)
    assert played.outcome.costs.executions - 1 == relations - 2
    assert played.level is Level.COMPLETE


@pytest.mark.parametrize("name", ["g-strobe", "c-strobe", "c-t-strobe"])
def test_updates_of_a_table_that_the_view_does_not_read(name: str) -> None:
    """They change nothing, but completeness wants a state for each."""
    record = to_json(key_used_again([1, 5]))
    text = json.dumps(record).replace('"source": "y"', '"source": "x"').replace("y.r2", "x.r2")
    record = json.loads(text)
    record["views"] = [{"name": "v", "sql": "SELECT A, B FROM x.r1"}]
    record["scripts"] = {"x": record["scripts"]["x"] + record["scripts"]["y"]}
    tried = replace(campaign(name, Scenario.SINGLE_UPDATE), world=from_json(record), runs=10)
    assert run_campaign(tried).failing is None
