"""Worked examples that concern the baselines, with the papers' own values, and what each update costs."""

from __future__ import annotations

from typing import Any

import pytest

from rollview.algorithms.algorithm import Algorithm, Level, Scenario
from rollview.algorithms.baselines import agrawal_sweep, conventional, eca, eca_key, nested_sweep
from rollview.lab.examples.strobe import DELETION_AFTER_FIRST_ANSWER, example_world
from rollview.lab.examples.version_numbers import INTERFERING, LOST, OVERTAKEN, two_relations
from rollview.lab.simulator.campaign import Campaign, run_one, seeded_run
from rollview.lab.simulator.checker import check
from rollview.lab.simulator.generate import Size
from rollview.lab.simulator.network import NETWORKS
from rollview.lab.simulator.schedule import Schedule, Scripted
from rollview.lab.simulator.simulation import Outcome, simulate_run
from rollview.lab.simulator.world import World, from_json, to_json


def _algorithm(module: Any) -> Algorithm:
    return Algorithm(module.__name__, module.processes, lambda _: iter(()), {}, lambda _: "", sequenced=False)


def _run(
    world: World, module: Any, schedule: Schedule, network: str = "fifo"
) -> tuple[dict[tuple[Any, ...], int], Level, Outcome]:
    """The rows that readers see in the end, and the level that was reached."""
    outcome = simulate_run(world, _algorithm(module), NETWORKS[network], schedule)
    verdict = check(world, outcome.commits, outcome.publications, outcome.at_rest)
    return dict(outcome.publications[-1].contents["v"].counts), verdict.level, outcome


@pytest.mark.parametrize("module", [eca, eca_key])
def test_on_several_sources_the_anomaly_of_strobes_example_1_is_back(module: Any) -> None:
    """zhuge1996 §1: ECA and ECA-Key, let loose on three sources, end with the same wrong row."""
    world = example_world()
    assert "several sources" in module.refusal(world.views[0])
    rows, level, _ = _run(world, module, Scripted(DELETION_AFTER_FIRST_ANSWER))
    assert (rows, level) == ({(1, 2, 3, 4): 1}, Level.NONE)


@pytest.mark.parametrize(("module", "level"), [(agrawal_sweep, Level.COMPLETE), (nested_sweep, Level.STRONG)])
def test_sweeps_in_strobes_example_1(module: Any, level: Level) -> None:
    """The same updates; SWEEP shows the row before it is gone, Nested SWEEP may not."""
    rows, reached, outcome = _run(example_world(), module, Scripted(DELETION_AFTER_FIRST_ANSWER))
    shown = [dict(publication.contents["v"].counts) for publication in outcome.publications]
    assert rows == {}
    assert reached >= level
    assert shown == [{}, {(1, 2, 3, 4): 1}, {}], "the deletion came after r1's answer: nothing interferes"


@pytest.mark.parametrize("module", [agrawal_sweep, nested_sweep])
def test_half_a_global_transaction_is_shown(module: Any) -> None:
    """The insertions into r1 and r2 are one transaction; r2's part is installed before r1's has happened."""
    record = to_json(example_world()) | {"scenario": "global"}
    parts = {"x": ["x.r1", [5, 2], 1], "y": ["y.r2", [2, 3], 1]}
    record["scripts"] = {
        source: [{"changes": [change], "global_id": "g", "participants": ["x", "y"]}]
        for source, change in parts.items()
    }
    steps = ("commit y", "deliver y", "ask x", "deliver x", "ask z", "deliver z", "commit x")
    rows, level, _ = _run(from_json(record), module, Scripted(steps))
    assert (rows, level) == ({(1, 2, 3, 4): 1, (5, 2, 3, 4): 1}, Level.WEAK)


def _joined(
    sources: str, key: list[str], select: str, initial: list[list[list[Any]]], scripts: dict[str, list[Any]]
) -> World:
    """r1(W, X) ⋈ r2(X, Y) at these sources."""
    one, two = f"{sources[0]}.r1", f"{sources[1]}.r2"
    return from_json(
        {
            "scenario": "single-update",
            "relations": [
                {"source": sources[0], "name": "r1", "columns": ["W", "X"], "key": key[:1]},
                {"source": sources[1], "name": "r2", "columns": ["X", "Y"], "key": key[1:]},
            ],
            "views": [{"name": "v", "sql": f"SELECT {select} FROM {one} JOIN {two} ON r1.X = r2.X"}],
            "initial": dict(zip((one, two), initial, strict=True)),
            "scripts": {
                source: [{"changes": [change]} for change in changes] for source, changes in scripts.items()
            },
        }
    )


BOTH_BEFORE_THE_ANSWERS = ("commit x", "deliver x", "commit x", "deliver x")


def test_eca_avoids_the_insertion_anomaly() -> None:
    """Its paper's first example: both insertions happen before the first query is answered."""
    changes = [["x.r2", [2, 3], 1], ["x.r1", [4, 2], 1]]
    world = _joined("xx", [], "r1.W", [[[1, 2]], []], {"x": changes})
    rows, level, outcome = _run(world, eca, Scripted(BOTH_BEFORE_THE_ANSWERS))
    assert (rows, level) == ({(1,): 1, (4,): 1}, Level.STRONG)
    # Q2 = V⟨U2⟩ − Q1⟨U2⟩: the second term has no relation left, so it is no question.
    assert outcome.costs.questions == 2
    rows, level, _ = _run(world, conventional, Scripted(BOTH_BEFORE_THE_ANSWERS))
    assert (rows, level) == ({(1,): 1, (4,): 2}, Level.NONE)


def test_eca_avoids_the_deletion_anomaly() -> None:
    """Both deletions happen before the first query is answered; neither query finds the row."""
    changes = [["x.r1", [1, 2], -1], ["x.r2", [2, 3], -1]]
    world = _joined("xx", [], "r1.W, r2.Y", [[[1, 2]], [[2, 3]]], {"x": changes})
    rows, level, _ = _run(world, eca, Scripted(BOTH_BEFORE_THE_ANSWERS))
    assert (rows, level) == ({}, Level.STRONG)


def test_eca_key_takes_duplicates_for_one_row_and_asks_nothing_for_a_deletion() -> None:
    """Two insertions and a deletion before the first answer: [3, 4] is found twice."""
    changes = [["x.r2", [2, 4], 1], ["x.r1", [3, 2], 1], ["x.r1", [1, 2], -1]]
    world = _joined("xx", ["W", "Y"], "r1.W, r2.Y", [[[1, 2]], [[2, 3]]], {"x": changes})
    rows, level, outcome = _run(world, eca_key, Scripted((*BOTH_BEFORE_THE_ANSWERS, "commit x", "deliver x")))
    assert (rows, level) == ({(3, 3): 1, (3, 4): 1}, Level.STRONG)
    assert outcome.costs.questions == 2


def test_eca_key_must_withdraw_the_query_of_a_deleted_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """As usually described, the answer brings the deleted row back (see the module's Deviations)."""
    changes = [["x.r1", [1, 2], 1], ["x.r1", [1, 2], -1]]
    world = _joined("xx", ["W", "Y"], "r1.W, r2.Y", [[], [[2, 3]]], {"x": changes})
    assert _run(world, eca_key, Scripted(BOTH_BEFORE_THE_ANSWERS))[:2] == ({}, Level.STRONG)
    monkeypatch.setattr(eca_key, "withdraw", lambda *_: None)
    assert _run(world, eca_key, Scripted(BOTH_BEFORE_THE_ANSWERS))[:2] == ({(1, 3): 1}, Level.NONE)


@pytest.mark.parametrize("module", [agrawal_sweep, nested_sweep])
def test_interference_is_corrected_on_fifo(module: Any) -> None:
    """sze2000 report Example 3, first part: the notification comes before the answer, c1 is counted twice."""
    rows, level, outcome = _run(two_relations(), module, Scripted(INTERFERING))
    assert rows == {("c1",): 2}
    assert level >= Level.STRONG
    assert outcome.costs.rows_compensated == 1


@pytest.mark.parametrize("module", [agrawal_sweep, nested_sweep])
def test_interference_is_overlooked_when_messages_are_misordered(module: Any) -> None:
    """sze2000 report Example 3, second part: the answer overtakes the notification, c1 is counted 3 times."""
    rows, level, _ = _run(two_relations(), module, Scripted(OVERTAKEN), "misordered")
    assert (rows, level) == ({("c1",): 3}, Level.NONE)


@pytest.mark.parametrize("module", [agrawal_sweep, nested_sweep])
def test_a_lost_notification_is_never_noticed(module: Any) -> None:
    """sze2000 report Example 4: c1 is counted once, and not for the update that brought it."""
    rows, level, _ = _run(two_relations(), module, Scripted(LOST), "lossy")
    assert (rows, level) == ({("c1",): 1}, Level.NONE)


@pytest.mark.parametrize("relations", [2, 3, 4])
def test_sweep_asks_n_minus_1_questions_for_each_update(relations: int) -> None:
    size = Size(relations, 6, keyed=True, snapshots=False)
    for seed in range(15):
        swept, nested = (
            Campaign(_algorithm(module), NETWORKS["fifo"], Scenario.SINGLE_UPDATE, size)
            for module in (agrawal_sweep, nested_sweep)
        )
        outcome, _ = run_one(swept, *seeded_run(swept, seed))
        assert outcome.costs.questions == (relations - 1) * len(outcome.commits)
        outcome, _ = run_one(nested, *seeded_run(nested, seed))
        assert outcome.costs.questions <= (relations - 1) * len(outcome.commits)


def test_eca_key_asks_one_question_for_each_insertion() -> None:
    size = Size(3, 6, keyed=True, snapshots=False, sources=1)
    campaign = Campaign(_algorithm(eca_key), NETWORKS["fifo"], Scenario.SINGLE_UPDATE, size)
    for seed in range(15):
        outcome, _ = run_one(campaign, *seeded_run(campaign, seed))
        insertions = sum(change.count > 0 for commit in outcome.commits for change in commit.changes)
        assert outcome.costs.executions == insertions
        assert outcome.costs.questions <= insertions, "a row that fails its local condition asks nothing"


@pytest.mark.parametrize(("module", "questions", "states"), [(agrawal_sweep, 4, 3), (nested_sweep, 3, 2)])
def test_nested_sweep_sends_interfering_updates_on_together(module: Any, questions: int, states: int) -> None:
    """r1's deletion meets r2's insertion at r2: swept back over r1 alone, it reaches r3 with the other."""
    steps = ("commit x", "deliver x", "commit y", "deliver y")
    _, level, outcome = _run(example_world(), module, Scripted(steps))
    assert level >= Level.STRONG
    assert (outcome.costs.questions, len(outcome.publications)) == (questions, states)


def test_sweep_goes_by_the_views_order_even_where_that_is_a_product() -> None:
    """sze2000 report §4.1: r1 and r2 share no column, r3 is joined with both."""
    record = {
        "relations": [
            {"source": "x", "name": name, "columns": columns}
            for name, columns in (("r1", ["a"]), ("r2", ["b"]), ("r3", ["a", "b"]))
        ],
        "views": [
            {"name": "v", "sql": "SELECT r1.a FROM x.r1, x.r2, x.r3 WHERE r1.a = r3.a AND r2.b = r3.b"}
        ],
    }
    block = from_json(record).views[0].blocks[0]
    first, second = agrawal_sweep.left_then_right(block, 0, 0, 2)
    assert (first.relation, first.parent, first.on) == (1, None, ())
    assert (second.relation, set(second.on)) == (2, {("r1.a", "r3.a"), ("r2.b", "r3.b")})
