"""version-numbers held to its claims: which level on which network, in which scenario, and where it ends."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from sze2000_worlds import ALGORITHM, judge

from rollview.algorithms.algorithm import Level, Scenario
from rollview.lab.memory.bag import MemoryBag
from rollview.lab.simulator.campaign import Campaign, run_campaign, run_one, seeded_run
from rollview.lab.simulator.generate import Size, generate
from rollview.lab.simulator.network import NETWORKS, Network
from rollview.lab.simulator.store import Store
from rollview.lab.simulator.world import from_json
from rollview.planning import parse_view

LOCAL = (Scenario.SINGLE_UPDATE, Scenario.SOURCE_LOCAL)
WITHOUT_CRASHES = replace(NETWORKS["hostile"], name="hostile without crashes", crashes=0)
FAULTY = (NETWORKS["fifo"], NETWORKS["misordered"], NETWORKS["lossy"], WITHOUT_CRASHES)


def _levels(campaign: Campaign, claims_hold: bool = True) -> Counter[Level]:
    """How many runs reached which level; worlds with an aggregate are left out."""
    levels: Counter[Level] = Counter()
    for seed in range(campaign.seed, campaign.seed + campaign.runs):
        world, schedule = seeded_run(campaign, seed)
        if not any(ALGORITHM.refusal(view) for view in world.views):
            _, verdict = run_one(campaign, world, schedule)
            assert verdict.claims_hold or not claims_hold
            levels[verdict.level] += 1
    return levels


@pytest.mark.parametrize("scenario", LOCAL)
@pytest.mark.parametrize("network", FAULTY, ids=lambda network: network.name)
@pytest.mark.parametrize("keyed", [True, False])
def test_complete(scenario: Scenario, network: Network, keyed: bool) -> None:
    """With all keys in the view and with none; UNION ALL, self-joins, products and cycles are among these."""
    size = Size(3, 8, keyed=keyed, snapshots=False)
    assert min(_levels(Campaign(ALGORITHM, network, scenario, size, runs=60))) is Level.COMPLETE


@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.parametrize("scenario", LOCAL)
@pytest.mark.parametrize("network", FAULTY, ids=lambda network: network.name)
@pytest.mark.parametrize("relations", [2, 3, 4])
@pytest.mark.parametrize("runs", [60, pytest.param(300, marks=pytest.mark.soak)])
def test_complete_in_many_runs(scenario: Scenario, network: Network, relations: int, runs: int) -> None:
    size = Size(relations, 8, snapshots=False)
    campaign = Campaign(ALGORITHM, network, scenario, size, runs=runs, seed=10_000)
    assert min(_levels(campaign)) is Level.COMPLETE
    for seed in range(20_000, 20_000 + runs):
        assert judge(seed, scenario, network).level is Level.COMPLETE


@pytest.mark.parametrize(("network", "deletions"), [("fifo", 2), ("misordered", 1)])
def test_complete_in_every_interleaving(network: str, deletions: int) -> None:
    """An insertion at one source and deletions at the other, in every order of all events."""
    script = [{"changes": [["y.s", [2, 1], -1]]}, {"changes": [["y.t", [1, 1], -1]]}]
    world = from_json(
        {
            "scenario": "single-update",
            "relations": [
                {"source": "x", "name": "r", "columns": ["a", "b"], "key": ["a"]},
                {"source": "y", "name": "s", "columns": ["b", "c"], "key": ["b"]},
                {"source": "y", "name": "t", "columns": ["c", "d"], "key": ["c"]},
            ],
            "views": [
                {"name": "v", "sql": "SELECT r.b, t.d FROM x.r, y.s, y.t WHERE r.b = s.b AND s.c = t.c"}
            ],
            "initial": {"x.r": [[1, 1]], "y.s": [[1, 1], [2, 1]], "y.t": [[1, 1]]},
            "scripts": {
                "x": [{"changes": [["x.r", [2, 2], 1]]}],
                "y": script[:deletions],
            },
        }
    )
    campaign = Campaign(
        ALGORITHM, NETWORKS[network], Scenario.SINGLE_UPDATE, runs=20_000, exhaustive=True, world=world
    )
    tally = run_campaign(campaign)
    assert (tally.level, tally.false_claims, tally.finished) == (Level.COMPLETE, 0, True)


def test_parts_of_a_global_transaction_are_shown_one_by_one() -> None:
    """The paper rules global transactions out: the view stays weak, and is no more than that."""
    size = Size(3, 8, keyed=True, snapshots=False)
    campaign = Campaign(ALGORITHM, NETWORKS["fifo"], Scenario.GLOBAL, size, runs=40)
    assert min(_levels(campaign)) is Level.WEAK


def test_a_version_number_cannot_name_a_snapshot() -> None:
    """Where what an answer saw is no prefix, compensation by numbers goes wrong."""
    size = Size(2, 8, keyed=True)
    campaign = Campaign(ALGORITHM, NETWORKS["fifo"], Scenario.SINGLE_UPDATE, size, runs=100)
    assert run_campaign(campaign).level < Level.COMPLETE


@pytest.mark.parametrize("scenario", LOCAL)
def test_crashes_are_survived_through_the_installed_versions(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = Size(3, 8, snapshots=False)
    campaign = Campaign(ALGORITHM, NETWORKS["hostile"], scenario, size, runs=120)
    assert min(_levels(campaign)) is Level.COMPLETE
    kept = Store.install

    def forget(self: Store, view: str, state: MemoryBag, versions: dict[str, int] | None) -> None:
        kept(self, view, state, versions)
        self.controls.clear()

    monkeypatch.setattr(Store, "install", forget)
    assert min(_levels(replace(campaign, runs=40), claims_hold=False)) < Level.COMPLETE


def test_a_source_that_the_view_does_not_read_counts_too() -> None:
    world = from_json(
        {
            "scenario": "single-update",
            "relations": [
                {"source": "x", "name": "r", "columns": ["a"], "key": ["a"]},
                {"source": "z", "name": "s", "columns": ["a"], "key": ["a"]},
            ],
            "views": [{"name": "v", "sql": "SELECT r.a FROM x.r"}],
            "scripts": {"x": [{"changes": [["x.r", [1], 1]]}], "z": [{"changes": [["z.s", [1], 1]]}]},
        }
    )
    campaign = Campaign(ALGORITHM, NETWORKS["fifo"], Scenario.SINGLE_UPDATE, exhaustive=True, world=world)
    tally = run_campaign(campaign)
    assert (tally.level, tally.finished) == (Level.COMPLETE, True)


def test_aggregates_are_refused() -> None:
    tables = generate(random.Random(0), Scenario.SINGLE_UPDATE, Size(1, 1)).tables
    refused = parse_view(f"SELECT count(*) AS n FROM {tables[0].qualified} t", tables, "v")
    served: Any = parse_view(f"SELECT t.k FROM {tables[0].qualified} t", tables, "v")
    assert (ALGORITHM.refusal(refused), ALGORITHM.refusal(served)) == (
        "it maintains no operators above blocks such as aggregate",
        "",
    )
