"""Runs: the same choices are the same run, failing ones shrink, kept seeds stay right."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from rollview.algorithms.algorithm import Level, Scenario
from rollview.algorithms.registry import ALGORITHMS
from rollview.errors import WorldError
from rollview.lab.examples.strobe import DELETION_AFTER_FIRST_ANSWER, SWEEP_STEPS, example_world
from rollview.lab.simulator.campaign import Campaign, run_campaign, run_one, seeded_run
from rollview.lab.simulator.checker import check
from rollview.lab.simulator.generate import Size, generate
from rollview.lab.simulator.network import NETWORKS
from rollview.lab.simulator.schedule import Recorded, Scripted, every_schedule
from rollview.lab.simulator.shrink import Failing, shrink
from rollview.lab.simulator.simulation import simulate_run
from rollview.lab.simulator.world import validate

REGRESSIONS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "regressions.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("seed", range(20))
def test_recorded_choices_replay_a_run(seed: int) -> None:
    campaign = Campaign(ALGORITHMS["sweep"], NETWORKS["hostile"], Scenario.GLOBAL, Size(3, 6))
    world, schedule = seeded_run(campaign, seed)
    first = simulate_run(world, campaign.algorithm, campaign.network, schedule, narrated=True)
    again = simulate_run(
        world, campaign.algorithm, campaign.network, Recorded(schedule.choices), narrated=True
    )
    assert first.story == again.story


@pytest.mark.parametrize("scenario", Scenario)
def test_generated_worlds_can_exist(scenario: Scenario) -> None:
    for seed in range(50):
        validate(generate(random.Random(seed), scenario, Size(3, 10)))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_seed_does_not_depend_on_the_number_of_processes(name: str) -> None:
    size = Size(2, 4, keyed=True)
    campaign = Campaign(ALGORITHMS[name], NETWORKS["fifo"], Scenario.SINGLE_UPDATE, size, runs=600)
    one, two = run_campaign(campaign), run_campaign(campaign, jobs=2)
    assert (one.levels, one.failing_seed) == (two.levels, two.failing_seed)


def test_every_view_gets_every_message() -> None:
    """Strobe keeps each of two views; as they are installed one by one, together they only converge."""
    size = Size(3, 6, views=2, keyed=True, snapshots=False)
    strobe = ALGORITHMS["strobe"]
    tally = run_campaign(Campaign(strobe, NETWORKS["fifo"], Scenario.SINGLE_UPDATE, size, runs=100))
    assert Level.CONVERGENCE <= tally.level < Level.STRONG


def test_every_schedule_is_visited_once() -> None:
    """Two binary choices, the second only after a 1: three schedules."""
    visited = []
    for schedule in every_schedule():
        path = [schedule.choose([("a", "", 0), ("b", "", 0)])]
        if path[0] == 1:
            path.append(schedule.choose([("c", "", 0), ("d", "", 0)]))
        visited.append(path)
    assert visited == [[0], [1, 0], [1, 1]]


def test_the_papers_anomaly() -> None:
    """zhuge1996 Example 1, step by step: one ends with [1, 2, 3, 4], the other with nothing."""
    world = example_world()
    ends = {}
    for name, steps in {"conventional": DELETION_AFTER_FIRST_ANSWER, "sweep": SWEEP_STEPS}.items():
        outcome = simulate_run(world, ALGORITHMS[name], NETWORKS["fifo"], Scripted(steps))
        verdict = check(world, outcome.commits, outcome.publications, outcome.at_rest)
        ends[name] = (dict(outcome.publications[-1].contents["v"].counts), verdict.level)
    assert ends == {"conventional": ({(1, 2, 3, 4): 1}, Level.NONE), "sweep": ({}, Level.COMPLETE)}


def test_a_script_that_cannot_happen_is_refused() -> None:
    with pytest.raises(WorldError, match="`deliver x` cannot happen here; these can: commit x, commit y"):
        simulate_run(example_world(), ALGORITHMS["sweep"], NETWORKS["fifo"], Scripted(["deliver x"]))


def test_a_failing_run_shrinks_to_its_core() -> None:
    campaign = Campaign(
        ALGORITHMS["conventional"],
        NETWORKS["fifo"],
        Scenario.SINGLE_UPDATE,
        Size(3, 10, keyed=True),
        runs=200,
        required=Level.CONVERGENCE,
    )
    tally = run_campaign(campaign)
    assert tally.failing is not None
    small = shrink(tally.failing, campaign.algorithm, campaign.network, campaign.required)
    assert sum(map(len, small.world.scripts.values())) == 2, "an anomaly needs two transactions"
    assert sum(map(len, small.world.initial.values())) <= 3
    _, verdict = run_one(campaign, small.world, Recorded(small.choices))
    assert verdict.level is Level.NONE


def test_shrinking_gives_up_in_time() -> None:
    world = example_world()
    failing = Failing(world, (1, 2, 3))
    assert shrink(failing, ALGORITHMS["sweep"], NETWORKS["fifo"], Level.COMPLETE, most_runs=5) == failing


@pytest.mark.parametrize("case", REGRESSIONS, ids=lambda case: case["found"])
def test_seeds_that_once_failed(case: dict[str, Any]) -> None:
    campaign = Campaign(
        ALGORITHMS[case["algorithm"]],
        NETWORKS[case["network"]],
        Scenario(case["scenario"]),
        Size(case["relations"], case["transactions"]),
        runs=case.get("runs", 1),
        seed=case["seed"],
    )
    assert run_campaign(campaign).level is Level.COMPLETE
