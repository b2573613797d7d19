"""zhuge1996 Examples 1 to 6, step by step, with the paper's own values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from zhuge1996_family import FAMILY

from rollview.algebra.bag import Bag
from rollview.algebra.node import Block
from rollview.algorithms.algorithm import Algorithm, Level
from rollview.algorithms.registry import ALGORITHMS
from rollview.algorithms.source_evaluate import source_evaluate
from rollview.algorithms.zhuge1996 import c_strobe
from rollview.lab.examples.example import Play
from rollview.lab.examples.strobe import (
    DELETION_AFTER_FIRST_ANSWER,
    DELETION_BEFORE_FIRST_ANSWER,
    example_world,
    sources_asked,
    transaction_world,
    watch_strobe,
)
from rollview.lab.simulator.simulation import Outcome
from rollview.lab.simulator.world import World, from_json, to_json


def play(algorithm: Algorithm, world: World, steps: Sequence[str]) -> tuple[list[str], Outcome, Level]:
    """The states of MV, in order, and the level."""
    played = Play(world, algorithm, steps).run()
    assert played.verdict.claims_hold or played.level is Level.NONE
    return list(map(str, played.states)), played.outcome, played.level


def test_example_1_conventional_maintenance_keeps_a_deleted_tuple() -> None:
    states, _, level = play(ALGORITHMS["conventional"], example_world(), DELETION_AFTER_FIRST_ANSWER)
    assert states == ["∅", "∅", "[1, 2, 3, 4]"]
    assert level is Level.NONE


def test_example_2_next_source_goes_where_the_known_part_joins() -> None:
    """U2 joins both its neighbours, so they are asked at once; U1 reaches z only through y."""
    block = example_world().views[0].blocks[0]
    assert sources_asked(block, 1, (2, 3)) == ([[("x", "[2]"), ("z", "[3]")]], "[1, 2, 3, 4]")
    assert sources_asked(block, 0, (1, 2)) == ([[("y", "[2]")], [("z", "[3]")]], "[1, 2, 3, 4]")


def test_example_3_strobe_avoids_the_deletion_anomaly() -> None:
    played, seen, warehouse = watch_strobe(
        Play(example_world(), FAMILY["strobe"], DELETION_AFTER_FIRST_ANSWER)
    )
    # Before each step: commit y, deliver y, ask x, deliver x, commit x, deliver x, ask z, deliver z.
    nothing: tuple[list[list[str]], list[str]] = ([], [])
    running: tuple[list[list[str]], list[str]] = ([[]], [])
    deleted = ([["[1, 2]"]], ["key_delete(MV, [1, 2])"])
    assert seen == [nothing, nothing, *[running] * 4, deleted, deleted]
    assert list(map(str, played.states)) == ["∅", "∅"]
    assert played.outcome.publications[-1].versions == {"x": 1, "y": 1, "z": 0}
    assert played.outcome.costs.rows_compensated == 1
    assert not warehouse.actions and not warehouse.unanswered


def test_example_3_a_deletion_received_earlier_needs_no_action() -> None:
    states, outcome, level = play(FAMILY["strobe"], example_world(), DELETION_BEFORE_FIRST_ANSWER)
    assert states == ["∅", "∅"]
    assert outcome.costs.rows_compensated == 0
    assert level is Level.STRONG


@pytest.mark.parametrize(
    ("name", "states", "level"),
    [
        ("strobe", ["[1, 2]", "∅", "[3, 4]"], Level.CONVERGENCE),
        ("c-strobe", ["[1, 2]", "∅", "[3, 4]"], Level.CONVERGENCE),
        ("t-strobe", ["[1, 2]", "[3, 4]"], Level.COMPLETE),
        ("g-strobe", ["[1, 2]", "[3, 4]"], Level.COMPLETE),
        ("c-t-strobe", ["[1, 2]", "[3, 4]"], Level.COMPLETE),
    ],
)
def test_example_4_a_transaction_is_shown_whole_or_in_halves(
    name: str, states: list[str], level: Level
) -> None:
    shown, outcome, reached = play(FAMILY[name], transaction_world(), ["commit x", "deliver x"])
    assert (shown, reached) == (states, level)
    assert outcome.costs.questions == 0


def _recorded(monkeypatch: pytest.MonkeyPatch, block: Block) -> list[tuple[dict[int, str], str]]:
    """For every query of C-Strobe the relations that were replaced, and the answer as the view shows it."""
    queries: list[tuple[dict[int, str], str]] = []

    def evaluate(whole: Block, known: Mapping[int, Bag]) -> Any:
        answer = yield from source_evaluate(whole, known)
        replaced = {relation: str(rows) for relation, rows in known.items()}
        queries.append((replaced, str(answer.project(block.projection))))
        return answer

    monkeypatch.setattr(c_strobe, "source_evaluate", evaluate)
    return queries


@pytest.mark.parametrize("name", ["c-strobe", "c-t-strobe"])
def test_example_5_the_compensating_query_finds_a_duplicate(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = example_world()
    queries = _recorded(monkeypatch, world.views[0].blocks[0])
    steps = (*DELETION_AFTER_FIRST_ANSWER, "ask z", "deliver z")
    states, outcome, level = play(FAMILY[name], world, steps)
    assert queries == [({1: "[2, 3]"}, "[1, 2, 3, 4]"), ({1: "[2, 3]", 0: "[1, 2]"}, "[1, 2, 3, 4]")]
    assert states == ["∅", "[1, 2, 3, 4]", "∅"]
    assert level is Level.COMPLETE
    assert (outcome.costs.executions, outcome.costs.questions) == (2, 3)


@pytest.mark.parametrize("name", ["c-strobe", "c-t-strobe"])
def test_example_6_the_compensating_query_finds_what_was_deleted(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = example_world()
    queries = _recorded(monkeypatch, world.views[0].blocks[0])
    # z is asked together with x, so its first answer is on the way although x has found nothing.
    steps = (*DELETION_BEFORE_FIRST_ANSWER, "ask z", "deliver z", "ask z", "deliver z")
    states, _, level = play(FAMILY[name], world, steps)
    assert queries == [({1: "[2, 3]"}, "∅"), ({1: "[2, 3]", 0: "[1, 2]"}, "[1, 2, 3, 4]")]
    assert states == ["∅", "[1, 2, 3, 4]", "∅"]
    assert level is Level.COMPLETE


def test_the_periodic_variant_shows_updates_that_waited_together() -> None:
    """An insertion at z keeps the warehouse busy while the paper's two updates arrive."""
    record = to_json(example_world())
    record["scripts"]["z"] = [{"changes": [["z.r3", [9, 9], 1]]}]
    steps = ("commit z", "deliver z", "commit y", "commit x", "deliver y", "deliver x")
    states, _, level = play(FAMILY["c-strobe-3"], from_json(record), steps)
    assert (states, level) == (["∅", "∅", "∅"], Level.STRONG)
    states, _, level = play(FAMILY["c-strobe"], from_json(record), steps)
    assert (states, level) == (["∅", "∅", "[1, 2, 3, 4]", "∅"], Level.COMPLETE)
