"""The algorithms of salem2000 in the simulator: complete everywhere, and planted mistakes are caught."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from rollview.algebra.bag import Bag
from rollview.algebra.expression import Column, Expression, call
from rollview.algebra.node import Block
from rollview.algebra.view import View
from rollview.algorithms import sweep
from rollview.algorithms.algorithm import Algorithm, Level, Scenario
from rollview.algorithms.effects import Process
from rollview.algorithms.salem2000 import compute_delta, execute, propagate, rolling, synchronous
from rollview.algorithms.salem2000.execute import PropagationQuery, Times
from rollview.algorithms.salem2000.query_lists import Progress
from rollview.lab.examples.strobe import example_world
from rollview.lab.simulator import simulation
from rollview.lab.simulator.campaign import Campaign, Tally, run_campaign
from rollview.lab.simulator.generate import Size
from rollview.lab.simulator.network import NETWORKS

Patch = pytest.MonkeyPatch
COMPLETE = dict.fromkeys(Scenario, Level.COMPLETE)


def _sequenced(name: str, processes: Any, positions: Any) -> Algorithm:
    return Algorithm(name, processes, positions, COMPLETE, lambda view: "", True)


ALGORITHMS = {
    algorithm.name: algorithm
    for algorithm in (
        _sequenced("equation-1", synchronous.equation_one_processes, compute_delta.positions),
        _sequenced("equation-2", synchronous.equation_two_processes, compute_delta.positions),
        _sequenced("compute-delta", compute_delta.processes, compute_delta.positions),
        _sequenced("propagate", propagate.processes, compute_delta.positions),
        _sequenced("rolling", rolling.processes, sweep.forward_queries),
    )
}


def _assert_complete(tally: Tally) -> None:
    assert tally.failing_seed is None, f"seed {tally.failing_seed} falls short"
    assert tally.level is Level.COMPLETE


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("scenario", Scenario)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_oracle_seeded(name: str, scenario: Scenario, network: str) -> None:
    size = Size(relations=3, transactions=8)
    _assert_complete(run_campaign(Campaign(ALGORITHMS[name], NETWORKS[network], scenario, size, runs=5)))


@pytest.mark.parametrize("relations", [1, 2, 4])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_oracle_other_sizes(name: str, relations: int) -> None:
    size = Size(relations, transactions=6)
    _assert_complete(
        run_campaign(Campaign(ALGORITHMS[name], NETWORKS["hostile"], Scenario.GLOBAL, size, runs=5))
    )


@pytest.mark.parametrize("name", ALGORITHMS)
def test_oracle_views_published_together(name: str) -> None:
    size = Size(relations=2, transactions=6, views=3)
    _assert_complete(
        run_campaign(Campaign(ALGORITHMS[name], NETWORKS["hostile"], Scenario.GLOBAL, size, runs=5))
    )


@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.parametrize("runs", [20, pytest.param(250, marks=pytest.mark.soak)])
@pytest.mark.parametrize("relations", [1, 2, 3, 4])
@pytest.mark.parametrize("scenario", Scenario)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_oracle_many_runs(name: str, scenario: Scenario, relations: int, runs: int) -> None:
    for network in NETWORKS.values():
        size = Size(relations)
        _assert_complete(run_campaign(Campaign(ALGORITHMS[name], network, scenario, size, runs, 7_000)))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_oracle_every_schedule_of_small_worlds(name: str) -> None:
    size = Size(relations=2, transactions=2, initial_rows=2, snapshots=False)
    for seed in (0, 3, 6):
        tally = run_campaign(
            Campaign(
                ALGORITHMS[name],
                NETWORKS["fifo"],
                Scenario.SOURCE_LOCAL,
                size,
                runs=1_000,
                seed=seed,
                exhaustive=True,
            )
        )
        _assert_complete(tally)
        assert tally.finished


@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.parametrize("name", ALGORITHMS)
def test_oracle_schedules_of_the_anomaly(name: str) -> None:
    """zhuge1996 Example 1, whose anomaly is what compensation is for: the first thousands of schedules."""
    campaign = Campaign(
        ALGORITHMS[name],
        NETWORKS["misordered"],
        Scenario.SINGLE_UPDATE,
        runs=5_000,
        exhaustive=True,
        world=example_world(),
    )
    _assert_complete(run_campaign(campaign))


# Planted mistakes


def maximum_for_minimum(patch: Patch) -> None:
    """A row is stamped with the latest of its delta tuples, which looks more natural (§3.3)."""

    def latest(block: Block, query: PropagationQuery) -> Expression:
        stamps = [Column(execute._own_csn(block, position)) for position in query.delta_positions]
        stamp: Expression = stamps[0]
        for other in stamps[1:]:
            stamp = call("IF", call("<", stamp, other), other, stamp)
        return stamp

    patch.setattr(execute, "_timestamp", latest)


def answer_not_rolled(patch: Patch) -> None:
    """What the sources answer is taken for the state at the execution time."""
    patch.setattr(execute, "_as_of", lambda answer, log, saw, time: answer)


def sign_forgotten(patch: Patch) -> None:
    """Compensation is added."""
    patch.setattr(PropagationQuery, "negated", lambda self: self)


def compensation_left_out(patch: Patch) -> None:
    """Queries with base tables are not compensated for."""
    patch.setattr(PropagationQuery, "has_base_tables", property(lambda self: False))


def intended_times_mirrored(patch: Patch) -> None:
    """Tables on both sides of the delta table are meant as of t_new."""
    true_compute = compute_delta.compute_delta

    def mistaken(block: Block, query: PropagationQuery, old: Times, new: int) -> execute.Steps:
        if query.delta_positions:
            old = (max(old),) * len(old)
        return true_compute(block, query, old, new)

    patch.setattr(compute_delta, "compute_delta", mistaken)


def execution_time_too_late(patch: Patch) -> None:
    """Execute returns a time after the one at which its query saw the base tables."""
    true_read = execute._read

    def mistaken(block: Block, rows: Bag, join_steps: Any, times: Times) -> Any:
        return true_read(block, rows, join_steps, tuple(max(time - 1, 0) for time in times))

    patch.setattr(execute, "_read", mistaken)


def whole_intervals_of_equation_two(patch: Patch) -> None:
    """Equation 2 for an interval at once, which is right at its end only."""
    patch.setattr(synchronous, "equation_two_per_transaction", synchronous.equation_two)


def positions_at_t_fwd(patch: Patch) -> None:
    """The high-water mark is the least t_fwd instead of the least t_comp."""
    true_prune = rolling.prune_query_lists

    def mistaken(progress: Progress) -> Progress:
        pruned = true_prune(progress)
        return replace(pruned, compensated=pruned.forward)

    patch.setattr(rolling, "prune_query_lists", mistaken)


def lists_forgotten_in_a_crash(patch: Patch) -> None:
    """After a crash the forward queries continue from t_fwd, but what they owe is forgotten."""
    true_propagate = rolling.rolling_propagate

    def forgetful(view: View, number: int, control: dict[int, Progress], cut: Any) -> Process:
        process = true_propagate(view, number, control, cut)
        effect = next(process)
        recalled = yield effect
        kept = {
            block: replace(progress, lists=((),) * len(progress.lists))
            for block, progress in (recalled or {}).items()
        }
        effect = process.send(kept)
        while True:
            effect = process.send((yield effect))

    patch.setattr(rolling, "rolling_propagate", forgetful)


def blocks_overwrite_each_other(patch: Patch) -> None:
    """Each block of a view keeps its own control record under the view's name."""

    def mistaken(view: View) -> Iterator[Process]:
        for number in range(len(view.blocks)):
            yield rolling.rolling_propagate(view, number, {}, rolling.layers)

    patch.setattr(rolling, "processes", mistaken)


def one_layer(patch: Patch) -> None:
    """Figure 10 as printed, for three relations and more."""
    patch.setattr(rolling, "layers", rolling.one_layer)


def one_strip(patch: Patch) -> None:
    """Every region to compensate for is taken for a rectangle."""
    patch.setattr(rolling, "comp_interval", lambda progress, i, time: 2**62)


MISTAKES = [
    ("propagate", maximum_for_minimum),
    ("equation-1", maximum_for_minimum),
    ("compute-delta", answer_not_rolled),
    ("equation-1", sign_forgotten),
    ("propagate", sign_forgotten),
    ("propagate", compensation_left_out),
    ("propagate", intended_times_mirrored),
    ("compute-delta", execution_time_too_late),
    ("equation-2", execution_time_too_late),
    ("equation-2", whole_intervals_of_equation_two),
    ("rolling", positions_at_t_fwd),
    ("rolling", lists_forgotten_in_a_crash),
    ("rolling", blocks_overwrite_each_other),
    ("rolling", one_layer),
    ("rolling", one_strip),
]


@pytest.mark.parametrize(("name", "mistake"), MISTAKES, ids=lambda value: getattr(value, "__name__", value))
def test_the_checker_catches(name: str, mistake: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mistake(monkeypatch)
    monkeypatch.setattr(simulation, "_FINAL_ROUNDS", 8)
    # The entry is looked up again: a mistake may have replaced what starts the processes.
    algorithm = ALGORITHMS[name]
    if name == "rolling":
        algorithm = replace(algorithm, processes=rolling.processes)
    campaign = Campaign(algorithm, NETWORKS["hostile"], Scenario.GLOBAL, Size(relations=3, transactions=8))
    for seed in range(0, 400, 20):
        tally = run_campaign(replace(campaign, seed=seed, runs=20))
        if tally.levels[Level.COMPLETE] < tally.runs:
            return
    pytest.fail(f"{mistake.__name__} went unnoticed: {mistake.__doc__}")


@pytest.mark.parametrize("scenario", Scenario)
def test_rolling_as_printed_is_not_complete_for_three_relations(
    scenario: Scenario, monkeypatch: Patch
) -> None:
    """Even on a network in order. Theorem 4.3 holds for the printed form with two relations only."""
    one_layer(monkeypatch)
    printed = Campaign(ALGORITHMS["rolling"], NETWORKS["fifo"], scenario, Size(relations=3), runs=20)
    batches = (run_campaign(replace(printed, seed=seed)) for seed in range(0, 400, 20))
    assert any(tally.levels[Level.COMPLETE] < tally.runs for tally in batches)
    _assert_complete(run_campaign(replace(printed, size=Size(relations=2))))
