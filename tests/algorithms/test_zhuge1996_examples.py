"""zhuge1996 Examples 1 to 6, step by step, with the paper's own values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from zhuge1996_family import FAMILY

from rollview.algebra.bag import Bag, MemoryBag
from rollview.algebra.block import Block
from rollview.algebra.history import Seen
from rollview.algebra.levels import Level
from rollview.algorithms.algorithm import Algorithm
from rollview.algorithms.effects import Answer, Ask
from rollview.algorithms.registry import ALGORITHMS
from rollview.algorithms.source_evaluate import source_evaluate
from rollview.algorithms.zhuge1996 import compensating_query, strobe
from rollview.algorithms.zhuge1996.action_list import ActionList
from rollview.algorithms.zhuge1996.update_list import StateVector
from rollview.simulator.checker import check
from rollview.simulator.example import EXAMPLE_STEPS, example_world
from rollview.simulator.network import NETWORKS
from rollview.simulator.schedule import Action, Scripted
from rollview.simulator.simulation import Outcome, simulate_run
from rollview.simulator.world import World, from_json, to_json

DELETION_AFTER_FIRST_ANSWER = EXAMPLE_STEPS["conventional"]
"""Examples 1, 3 and 5: U2 is received after x has answered and before z has."""

DELETION_BEFORE_FIRST_ANSWER = ("commit y", "deliver y", "commit x", "deliver x", "ask x", "deliver x")
"""Example 6: x has deleted the tuple before it is asked."""


class Watched(Scripted):
    """A script that looks at something before every step."""

    def __init__(self, script: Sequence[str], look: Callable[[], Any]) -> None:
        super().__init__(script)
        self._look = look
        self.seen: list[Any] = []

    def choose(self, actions: Sequence[Action]) -> int:
        self.seen.append(self._look())
        return super().choose(actions)


def play(algorithm: Algorithm, world: World, steps: Sequence[str]) -> tuple[list[str], Outcome, Level]:
    """The states of MV, in order, and the level."""
    outcome = simulate_run(world, algorithm, NETWORKS["fifo"], Scripted(steps))
    verdict = check(world, outcome.commits, outcome.publications, outcome.at_rest)
    assert verdict.claims_hold or verdict.level is Level.NONE
    return [str(shown.contents["v"]) for shown in outcome.publications], outcome, verdict.level


def test_example_1_conventional_maintenance_keeps_a_deleted_tuple() -> None:
    states, _, level = play(ALGORITHMS["conventional"], example_world(), DELETION_AFTER_FIRST_ANSWER)
    assert states == ["∅", "∅", "[1, 2, 3, 4]"]
    assert level is Level.NONE


def _asked(block: Block, relation: int, row: tuple[int, int]) -> tuple[list[list[tuple[str, str]]], str]:
    """For every round the sources asked with the values sent, and the final answer, from r1, r2, r3."""
    stored = {0: (1, 2), 1: (2, 3), 2: (3, 4)}
    query = source_evaluate(block, {relation: MemoryBag.of(block.relations[relation].columns, [row])})
    rounds = []
    effect: Any = next(query)
    while True:
        try:
            if not isinstance(effect, Ask):
                effect = query.send(None)
                continue
            rounds.append([(q.sub_query.source, str(q.keys[0])) for q in effect.questions])
            effect = query.send(
                tuple(
                    Answer(
                        question.sub_query.source,
                        tuple(
                            MemoryBag.of(
                                block.relations[join_step.relation].columns, [stored[join_step.relation]]
                            )
                            for join_step in question.sub_query.join_steps
                        ),
                        Seen(0),
                    )
                    for question in effect.questions
                )
            )
        except StopIteration as done:
            return rounds, str(done.value)


def test_example_2_next_source_goes_where_the_known_part_joins() -> None:
    """U2 joins both its neighbours, so they are asked at once; U1 reaches z only through y."""
    block = example_world().views[0].blocks[0]
    assert _asked(block, 1, (2, 3)) == ([[("x", "[2]"), ("z", "[3]")]], "[1, 2, 3, 4]")
    assert _asked(block, 0, (1, 2)) == ([[("y", "[2]")], [("z", "[3]")]], "[1, 2, 3, 4]")


def test_example_3_strobe_avoids_the_deletion_anomaly() -> None:
    world = example_world()
    warehouse = ActionList(world.views[0], StateVector.of(world.views[0]))

    def look() -> tuple[list[list[str]], list[str]]:
        pending = [[str(deletion.rows) for deletion in query.pending] for query in warehouse.unanswered]
        actions = [f"{type(action).__name__} {action.rows}" for action in warehouse.actions]
        return pending, actions

    watched = Watched(DELETION_AFTER_FIRST_ANSWER, look)
    base = FAMILY["strobe"]
    algorithm = replace(base, processes=lambda _: iter([strobe.maintain(warehouse)]))
    outcome = simulate_run(world, algorithm, NETWORKS["fifo"], watched)
    # Before each step: commit y, deliver y, ask x, deliver x, commit x, deliver x, ask z, deliver z.
    nothing: tuple[list[list[str]], list[str]] = ([], [])
    running: tuple[list[list[str]], list[str]] = ([[]], [])
    deleted = ([["[1, 2]"]], ["Deletion [1, 2]"])
    assert watched.seen == [nothing, nothing, *[running] * 4, deleted, deleted]
    assert [str(shown.contents["v"]) for shown in outcome.publications] == ["∅", "∅"]
    assert outcome.publications[-1].versions == {"x": 1, "y": 1, "z": 0}
    assert outcome.costs.rows_compensated == 1
    assert not warehouse.actions and not warehouse.unanswered


def test_example_3_a_deletion_received_earlier_needs_no_action() -> None:
    states, outcome, level = play(FAMILY["strobe"], example_world(), DELETION_BEFORE_FIRST_ANSWER)
    assert states == ["∅", "∅"]
    assert outcome.costs.rows_compensated == 0
    assert level is Level.STRONG


def _example_4() -> World:
    return from_json(
        {
            "scenario": "source-local",
            "relations": [{"source": "x", "name": "r1", "columns": ["A", "B"], "key": ["A"]}],
            "views": [{"name": "v", "sql": "SELECT A, B FROM x.r1"}],
            "initial": {"x.r1": [[1, 2]]},
            "scripts": {"x": [{"changes": [["x.r1", [1, 2], -1], ["x.r1", [3, 4], 1]]}]},
        }
    )


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
    shown, outcome, reached = play(FAMILY[name], _example_4(), ["commit x", "deliver x"])
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

    monkeypatch.setattr(compensating_query, "source_evaluate", evaluate)
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
