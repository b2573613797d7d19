"""ECA, ECA-Key, SWEEP and Nested SWEEP: each at its level, in many runs, in every order of tiny worlds."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from rollview.algorithms.algorithm import Algorithm, Level, Scenario
from rollview.algorithms.baselines import agrawal_sweep, eca, eca_key, nested_sweep
from rollview.lab.simulator.campaign import Campaign, run_campaign, run_one
from rollview.lab.simulator.generate import Size, generate
from rollview.lab.simulator.network import NETWORKS
from rollview.lab.simulator.schedule import Seeded
from rollview.lab.simulator.world import World, from_json

STRONG = dict.fromkeys(Scenario, Level.STRONG)
COMPLETE = dict.fromkeys(Scenario, Level.COMPLETE)
BASELINES = {
    name: Algorithm(name, module.processes, lambda _: iter(()), claims, module.refusal, sequenced=False)
    for name, module, claims in (
        ("eca", eca, STRONG),
        ("eca-key", eca_key, STRONG),
        ("agrawal-sweep", agrawal_sweep, {**COMPLETE, Scenario.GLOBAL: Level.WEAK}),
        ("nested-sweep", nested_sweep, {**STRONG, Scenario.GLOBAL: Level.WEAK}),
    )
}
MANY_SOURCES = ("agrawal-sweep", "nested-sweep")


def _size(name: str, relations: int, transactions: int, keyed: bool = True) -> Size:
    sources = 0 if name in MANY_SOURCES else 1
    return Size(relations, transactions, keyed=keyed, snapshots=False, sources=sources)


def _campaign(name: str, network: str, scenario: Scenario, runs: int) -> Campaign:
    algorithm = BASELINES[name]
    required = algorithm.claims[scenario]
    return Campaign(algorithm, NETWORKS[network], scenario, _size(name, 3, 8), runs=runs, required=required)


@pytest.mark.parametrize("scenario", Scenario)
@pytest.mark.parametrize("name", BASELINES)
def test_claims_hold_on_fifo(name: str, scenario: Scenario) -> None:
    tally = run_campaign(_campaign(name, "fifo", scenario, 120))
    assert tally.level >= BASELINES[name].claims[scenario], f"seed {tally.failing_seed}"


@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.parametrize("scenario", Scenario)
@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize("runs", [250, pytest.param(1_200, marks=pytest.mark.soak)])
def test_claims_hold_on_fifo_in_many_runs(name: str, scenario: Scenario, runs: int) -> None:
    tally = run_campaign(_campaign(name, "fifo", scenario, runs))
    assert tally.level >= BASELINES[name].claims[scenario], f"seed {tally.failing_seed}"


@pytest.mark.parametrize("scenario", [Scenario.SINGLE_UPDATE, Scenario.SOURCE_LOCAL])
@pytest.mark.parametrize("name", BASELINES)
def test_claims_hold_without_keys_and_with_self_joins(name: str, scenario: Scenario) -> None:
    """Whatever is not refused: projections that make rows equal, products, a table joined with itself."""
    algorithm, levels, self_joins = BASELINES[name], Counter[Level](), 0
    for relations in (1, 2, 3, 4):
        size = _size(name, relations, 6, keyed=False)
        for seed in range(25):
            generator = random.Random(seed)
            world = generate(generator, scenario, size)
            if algorithm.refusal(world.views[0]):
                continue
            self_joins += len(world.tables) < relations
            campaign = Campaign(algorithm, NETWORKS["fifo"], scenario, size)
            levels[run_one(campaign, world, Seeded(generator))[1].level] += 1
    assert self_joins
    assert min(levels) >= algorithm.claims[scenario]


@pytest.mark.parametrize("network", ["misordered", "lossy", "hostile"])
@pytest.mark.parametrize("name", BASELINES)
def test_no_baseline_stands_another_network(name: str, network: str) -> None:
    """sze2000 report §2.3.2 and §2.3.3: they go by the order of arrival, and miss nothing lost."""
    levels = set()
    for seed in range(0, 1_000, 50):
        campaign = _campaign(name, network, Scenario.SINGLE_UPDATE, 50)
        levels.add(run_campaign(replace(campaign, seed=seed)).level)
        if Level.NONE in levels:
            break
    assert Level.NONE in levels


@pytest.mark.parametrize("name", ["eca", "eca-key", "nested-sweep"])
def test_updates_that_interfere_are_installed_together(name: str) -> None:
    assert run_campaign(_campaign(name, "fifo", Scenario.SINGLE_UPDATE, 20)).level is Level.STRONG


def _chain(sources: str, scripts: dict[str, list[list[Any]]], scenario: str = "single-update") -> World:
    """zhuge1996 Example 1's view r1 ⋈ r2 ⋈ r3 and first rows, with the relations at these three sources."""
    columns = (["A", "B"], ["B", "C"], ["C", "D"])
    tables = [f"{source}.r{number}" for number, source in enumerate(sources, 1)]
    return from_json(
        {
            "scenario": scenario,
            "relations": [
                {"source": table[0], "name": table[2:], "columns": names, "key": names[:1]}
                for table, names in zip(tables, columns, strict=True)
            ],
            "views": [
                {
                    "name": "v",
                    "sql": "SELECT r1.A, r2.B, r3.C, r3.D "
                    f"FROM {tables[0]} JOIN {tables[1]} ON r1.B = r2.B JOIN {tables[2]} ON r2.C = r3.C",
                }
            ],
            "initial": {tables[0]: [[1, 2]], tables[2]: [[3, 4]]},
            "scripts": {
                source: [{"changes": changes} for changes in transactions]
                for source, transactions in scripts.items()
            },
        }
    )


ONE_SOURCE = _chain("xxx", {"x": [[["x.r2", [2, 3], 1]], [["x.r1", [1, 2], -1]], [["x.r3", [3, 4], -1]]]})
TRANSACTIONS = _chain(
    "xxx",
    {"x": [[["x.r2", [2, 3], 1], ["x.r1", [5, 2], 1]], [["x.r2", [2, 3], -1], ["x.r2", [2, 4], 1]]]},
    "source-local",
)
TWO_SOURCES = _chain(
    "xyx", {"x": [[["x.r1", [1, 2], -1]], [["x.r3", [3, 4], -1]]], "y": [[["y.r2", [2, 3], 1]]]}
)
THREE_SOURCES = _chain(
    "xyz", {"x": [[["x.r1", [1, 2], -1]]], "y": [[["y.r2", [2, 3], 1]]], "z": [[["z.r3", [3, 4], -1]]]}
)


def _explore(name: str, world: World) -> None:
    campaign = Campaign(
        BASELINES[name], NETWORKS["fifo"], world.scenario, runs=20_000, exhaustive=True, world=world
    )
    tally = run_campaign(campaign)
    assert tally.finished
    assert tally.level is BASELINES[name].claims[world.scenario]


@pytest.mark.parametrize(
    ("name", "world"),
    [
        ("eca", TRANSACTIONS),
        ("eca-key", ONE_SOURCE),
        ("eca-key", TRANSACTIONS),
        ("agrawal-sweep", ONE_SOURCE),
        ("agrawal-sweep", TRANSACTIONS),
        ("nested-sweep", ONE_SOURCE),
        ("nested-sweep", TRANSACTIONS),
        ("nested-sweep", TWO_SOURCES),
    ],
)
def test_claims_hold_in_every_order_of_events(name: str, world: World) -> None:
    _explore(name, world)


@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.parametrize(
    ("name", "world"),
    [
        ("eca", ONE_SOURCE),
        ("agrawal-sweep", TWO_SOURCES),
        ("agrawal-sweep", THREE_SOURCES),
        ("nested-sweep", THREE_SOURCES),
    ],
)
def test_claims_hold_in_every_order_of_more_events(name: str, world: World) -> None:
    _explore(name, world)
