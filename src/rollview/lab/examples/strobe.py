"""zhuge1996: Examples 1 to 6, and what its text counts and classifies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import factorial
from typing import Any

from rollview.algebra.history import Seen
from rollview.algebra.node import Block
from rollview.algorithms.algorithm import Level, Scenario
from rollview.algorithms.effects import Answer, Ask, Compensated
from rollview.algorithms.registry import ALGORITHMS
from rollview.algorithms.source_evaluate import source_evaluate
from rollview.algorithms.zhuge1996 import strobe
from rollview.algorithms.zhuge1996.update_list import ActionList, StateVector
from rollview.lab.examples.example import Difference, Example, Play, Played, Replay
from rollview.lab.memory.bag import MemoryBag
from rollview.lab.simulator.campaign import Campaign, Tally, run_campaign
from rollview.lab.simulator.generate import Size
from rollview.lab.simulator.network import NETWORKS
from rollview.lab.simulator.schedule import Action, Scripted
from rollview.lab.simulator.world import World, from_json

DELETION_AFTER_FIRST_ANSWER = (
    *("commit y", "deliver y", "ask x", "deliver x"),
    *("commit x", "deliver x", "ask z", "deliver z"),
)
"""Examples 1, 3 and 5: U2 is received after x has answered and before z has."""

DELETION_BEFORE_FIRST_ANSWER = ("commit y", "deliver y", "commit x", "deliver x", "ask x", "deliver x")
"""Example 6: x has deleted the tuple before it is asked."""

SWEEP_STEPS = (*DELETION_AFTER_FIRST_ANSWER[:2], "propagate v.r2", *DELETION_AFTER_FIRST_ANSWER[2:])
"""The same for an algorithm that takes intervals of the history."""

AT_ONCE = Difference(
    "006", "both neighbours are asked in one round; neither question needs the other's answer"
)


def example_world() -> World:
    """V = r1 ⋈ r2 ⋈ r3 at sources x, y, z; one insertion into r2 and one deletion from r1."""
    return from_json(
        {
            "scenario": "single-update",
            "relations": [
                {"source": "x", "name": "r1", "columns": ["A", "B"], "key": ["A"]},
                {"source": "y", "name": "r2", "columns": ["B", "C"], "key": ["B"]},
                {"source": "z", "name": "r3", "columns": ["C", "D"], "key": ["C"]},
            ],
            "views": [
                {
                    "name": "v",
                    "sql": "SELECT r1.A, r2.B, r3.C, r3.D FROM x.r1 "
                    "JOIN y.r2 ON r1.B = r2.B JOIN z.r3 ON r2.C = r3.C",
                }
            ],
            "initial": {"x.r1": [[1, 2]], "z.r3": [[3, 4]]},
            "scripts": {
                "x": [{"changes": [["x.r1", [1, 2], -1]]}],
                "y": [{"changes": [["y.r2", [2, 3], 1]]}],
            },
        }
    )


def transaction_world() -> World:
    """Example 4: V = r1, and one transaction that deletes a tuple and inserts another."""
    return from_json(
        {
            "scenario": "source-local",
            "relations": [{"source": "x", "name": "r1", "columns": ["A", "B"], "key": ["A"]}],
            "views": [{"name": "v", "sql": "SELECT A, B FROM x.r1"}],
            "initial": {"x.r1": [[1, 2]]},
            "scripts": {"x": [{"changes": [["x.r1", [1, 2], -1], ["x.r1", [3, 4], 1]]}]},
        }
    )


def star_world(relations: int, deletions: int) -> World:
    """r1 joined with all others, each at its own source; one insertion, and deletions of all the others."""
    names = "xyzuvw"[:relations]
    joins = " ".join(f"JOIN {name}.t {name} ON {name}.a = x.a" for name in names[1:])
    columns = ", ".join(f"{name}.k AS k{name}" for name in names)
    scripts = {
        name: [{"changes": [[f"{name}.t", [key, 1], -1]]} for key in range(1, deletions + 1)]
        for name in names[1:]
    }
    return from_json(
        {
            "scenario": "single-update",
            "relations": [
                {"source": name, "name": "t", "columns": ["k", "a"], "key": ["k"]} for name in names
            ],
            "views": [{"name": "v", "sql": f"SELECT {columns} FROM x.t x {joins}"}],
            "initial": {f"{name}.t": [[key, 1] for key in range(1, deletions + 1)] for name in names[1:]},
            "scripts": {"x": [{"changes": [["x.t", [1, 1], 1]]}], **scripts},
        }
    )


def in_turn(world: World) -> tuple[str, ...]:
    """The insertion, then the deletions of all sources in turn, all received before the first answer."""
    longest = max(map(len, world.scripts.values()))
    turns = [
        source for place in range(longest) for source, script in world.scripts.items() if place < len(script)
    ]
    return tuple(f"{step} {source}" for source in turns for step in ("commit", "deliver"))


def one_after_each(world: World) -> tuple[str, ...]:
    """The insertion; then, for each query, one deletion at another source before it is answered (K = 1)."""
    first, *others = world.sources
    steps = [f"commit {first}", f"deliver {first}"]
    for place, source in enumerate(others):
        asked = others[place:]
        steps += [f"commit {source}", f"deliver {source}"]
        steps += [f"{step} {each}" for step in ("ask", "deliver") for each in asked]
    return tuple(steps)


class Watched(Scripted):
    """A script that looks at something before every step."""

    def __init__(self, steps: Sequence[str], look: Callable[[], Any]) -> None:
        super().__init__(steps)
        self._look = look
        self.seen: list[Any] = []

    def choose(self, actions: Sequence[Action]) -> int:
        self.seen.append(self._look())
        return super().choose(actions)


Asked = list[list[tuple[str, str]]]


def sources_asked(block: Block, relation: int, row: tuple[int, int]) -> tuple[Asked, str]:
    """For every round the sources asked with the values sent, and the final answer, of `source_evaluate`."""
    stored = {0: (1, 2), 1: (2, 3), 2: (3, 4)}
    query = source_evaluate(block, {relation: MemoryBag.of(block.relations[relation].columns, [row])})
    rounds: Asked = []
    effect: Any = next(query)
    while True:
        try:
            if not isinstance(effect, Ask):
                effect = query.send(None)
                continue
            rounds.append([(each.sub_query.source, str(each.keys[0])) for each in effect.questions])
            effect = query.send(tuple(_answer(block, each, stored) for each in effect.questions))
        except StopIteration as done:
            return rounds, str(done.value)


def _answer(block: Block, question: Any, stored: Mapping[int, tuple[int, int]]) -> Answer[MemoryBag]:
    places = [join_step.relation for join_step in question.sub_query.join_steps]
    rows = (MemoryBag.of(block.relations[place].columns, [stored[place]]) for place in places)
    return Answer(question.sub_query.source, tuple(rows), Seen(0))


def example_1() -> Example:
    """The anomaly, of the conventional algorithm and, by §1, of ECA and ECA-Key."""
    play = Play(example_world(), ALGORITHMS["conventional"], DELETION_AFTER_FIRST_ANSWER)
    names = ("conventional", "eca", "eca-key")

    def replay() -> Replay:
        played = {name: play.by(name).run() for name in names}
        values = {f"states of MV, {name}": each.course() for name, each in played.items()}
        right = play.by("sweep")
        correct = replace(right, steps=SWEEP_STEPS).run()
        values["the correct view in the end"] = str(correct.states[-1])
        return Replay(values, played["conventional"].outcome.story)

    wrong = {f"states of MV, {name}": "∅ → [1, 2, 3, 4]" for name in names}
    printed = {**wrong, "the correct view in the end": "∅"}
    return Example(
        "zhuge1996/1",
        "View maintenance anomaly over multiple sources",
        play.describe(),
        printed,
        replay,
        play=play,
    )


def example_2() -> Example:
    """Which source `next_source` names for an update of r2."""

    def replay() -> Replay:
        rounds, _ = sources_asked(example_world().views[0].blocks[0], 1, (2, 3))
        asked = ", then ".join(" and ".join(source for source, _ in each) for each in rounds)
        return Replay({"sources asked": asked}, tuple(f"asked at once: {each}" for each in rounds))

    relations = Play(example_world(), ALGORITHMS["strobe"]).describe()[:4]
    data = (*relations, "U2 = insert(r2, [2, 3])")
    printed = {"sources asked": "x, then z"}
    return Example("zhuge1996/2", "next_source", data, printed, replay, {"sources asked": AT_ONCE})


def example_3() -> Example:
    """Strobe remembers the deletion; with the deletion received earlier there is nothing to do."""
    world = example_world()
    play = Play(world, ALGORITHMS["strobe"], DELETION_AFTER_FIRST_ANSWER)

    def replay() -> Replay:
        played, seen, warehouse = watch_strobe(play)
        pending, actions = seen[-1]
        earlier = replace(play, steps=DELETION_BEFORE_FIRST_ANSWER).run()
        values = {
            "pending(Q1) after step 3": ", ".join(pending[0]),
            "AL after step 3": ", ".join(actions),
            "tuples taken from A1 by key_delete": str(played.outcome.costs.rows_compensated),
            "MV in the end": str(played.states[-1]),
            "level": str(played.level),
            "extra actions if U2 had been received before": str(earlier.outcome.costs.rows_compensated),
        }
        assert not warehouse.unanswered
        return Replay(values, played.outcome.story)

    printed = {
        "pending(Q1) after step 3": "[1, 2]",
        "AL after step 3": "key_delete(MV, [1, 2])",
        "tuples taken from A1 by key_delete": "1",
        "MV in the end": "∅",
        "level": "at least strong",
        "extra actions if U2 had been received before": "0",
    }
    title = "Strobe avoids deletion anomaly"
    return Example("zhuge1996/3", title, play.describe(), printed, replay, play=play)


Watching = list[tuple[list[list[str]], list[str]]]


def watch_strobe(play: Play) -> tuple[Played, Watching, ActionList]:
    """A run of Strobe with, before every step, the deletions pending for each query and the action list."""
    view = play.world.views[0]
    warehouse = ActionList(view, StateVector.of(view))

    def look() -> tuple[list[list[str]], list[str]]:
        pending = [[str(deletion.rows) for deletion in query.pending] for query in warehouse.unanswered]
        return pending, [_action(action) for action in warehouse.actions]

    schedule = Watched(play.steps, look)
    algorithm = replace(play.algorithm, processes=lambda _: iter([strobe.maintain(warehouse)]))
    return replace(play, algorithm=algorithm).run(schedule), schedule.seen, warehouse


def _action(action: Any) -> str:
    name = {"Deletion": "key_delete", "Insertion": "insert"}[type(action).__name__]
    return f"{name}(MV, {action.rows})"


TRANSACTIONS = {
    "strobe": ("[1, 2] → ∅ → [3, 4]", "convergence"),
    "t-strobe": ("[1, 2] → [3, 4]", "at least strong"),
}
"""Example 4: the states and the level of each, as the paper has them."""


def example_4() -> Example:
    """A transaction of two updates, update by update and as a whole."""
    play = Play(transaction_world(), ALGORITHMS["t-strobe"], ("commit x", "deliver x"))

    def replay() -> Replay:
        played = {name: play.by(name).run() for name in TRANSACTIONS}
        values = {f"states of MV, {name}": each.course() for name, each in played.items()}
        levels = {f"level, {name}": str(each.level) for name, each in played.items()}
        return Replay({**values, **levels}, played["t-strobe"].outcome.story)

    printed = {f"states of MV, {name}": states for name, (states, _) in TRANSACTIONS.items()}
    printed |= {f"level, {name}": level for name, (_, level) in TRANSACTIONS.items()}
    title = "T-Strobe provides stronger consistency than Strobe"
    return Example("zhuge1996/4", title, play.describe(), printed, replay, play=play)


COMPLETE_STROBE = {
    "answer to Q1,2,1": "[1, 2, 3, 4]",
    "queries": "2",
    "states of MV": "∅ → [1, 2, 3, 4] → ∅",
    "level": "at least complete",
}
"""Printed by both Example 5 and Example 6."""


def example_5() -> Example:
    """The compensating query finds a duplicate."""
    steps = (*DELETION_AFTER_FIRST_ANSWER, "ask z", "deliver z")
    play = Play(example_world(), ALGORITHMS["c-strobe"], steps)
    printed = {**COMPLETE_STROBE, "sub-queries": "3"}
    return Example(
        "zhuge1996/5", "Complete Strobe", play.describe(), printed, lambda: _complete(play), play=play
    )


def example_6() -> Example:
    """The compensating query finds what was deleted before x was asked."""
    # z is asked together with x, so its first answer is on the way although x has found nothing.
    steps = (*DELETION_BEFORE_FIRST_ANSWER, *("ask z", "deliver z") * 2)
    play = Play(example_world(), ALGORITHMS["c-strobe"], steps)
    printed = {**COMPLETE_STROBE, "sub-queries": "2"}
    title = "C-Strobe applied again, with different timing of the updates"
    differs = {"sub-queries": AT_ONCE}
    return Example(
        "zhuge1996/6", title, play.describe(), printed, lambda: _complete(play), differs, play=play
    )


def _complete(play: Play) -> Replay:
    seen: list[tuple[object, object]] = []
    played = play.watched(seen).run()
    projection = play.world.views[0].blocks[0].projection
    found = [effect.rows.project(projection) for effect, _ in seen if isinstance(effect, Compensated)]
    values = {
        "answer to Q1,2,1": ", ".join(map(str, found)),
        "queries": str(played.outcome.costs.executions),
        "states of MV": played.course(),
        "level": str(played.level),
        "sub-queries": str(played.outcome.costs.questions),
    }
    return Replay(values, played.outcome.story)


BOUND = Difference("006", "the bound counts one level of the recursion of compensating queries, not all")


def compensating_queries(relations: int, steps: Callable[[World], tuple[str, ...]], deletions: int) -> Played:
    """A run of C-Strobe in which deletions interfere with the query of one insertion."""
    world = star_world(relations, deletions)
    return Play(world, ALGORITHMS["c-strobe"], steps(world)).run()


def grouped() -> Example:
    """§6: at most (n − 1)! compensating queries if those of one base relation share one."""

    def replay() -> Replay:
        played = {n: compensating_queries(n, in_turn, 3) for n in (2, 3, 4)}
        values = {f"n = {n}": str(each.outcome.costs.executions - 1) for n, each in played.items()}
        return Replay(values, played[3].outcome.story)

    data = (
        "r1 joined with all others, each at its own source; an insertion into r1, and three deletions",
        "from each other relation, all received before the first answer",
    )
    printed = {f"n = {n}": f"at most {factorial(n - 1)}" for n in (2, 3, 4)}
    return Example("zhuge1996/6-grouped", "(n − 1)! queries", data, printed, replay, {"n = 4": BOUND})


def ungrouped() -> Example:
    """§6: no more than K^(n − 2) compensating queries, K the updates that arrive while one is answered."""

    def replay() -> Replay:
        played = {n: compensating_queries(n, one_after_each, 1) for n in (3, 4, 5)}
        values = {f"n = {n}": str(each.outcome.costs.executions - 1) for n, each in played.items()}
        return Replay(values, played[4].outcome.story)

    data = ("r1 joined with all others; while a query is answered, one deletion elsewhere arrives: K = 1",)
    printed = {f"n = {n}": "at most 1" for n in (3, 4, 5)}
    differs = {"n = 4": BOUND, "n = 5": BOUND}
    return Example("zhuge1996/6-ungrouped", "K^(n − 2) queries", data, printed, replay, differs)


FIGURE_2 = {
    ("strobe", Scenario.SINGLE_UPDATE): Level.STRONG,
    ("strobe", Scenario.SOURCE_LOCAL): Level.CONVERGENCE,
    ("t-strobe", Scenario.SINGLE_UPDATE): Level.STRONG,
    ("t-strobe", Scenario.SOURCE_LOCAL): Level.STRONG,
    ("t-strobe", Scenario.GLOBAL): Level.WEAK,
    ("g-strobe", Scenario.SINGLE_UPDATE): Level.STRONG,
    ("g-strobe", Scenario.SOURCE_LOCAL): Level.STRONG,
    ("g-strobe", Scenario.GLOBAL): Level.STRONG,
    ("c-strobe", Scenario.SINGLE_UPDATE): Level.COMPLETE,
    ("c-strobe-3", Scenario.SINGLE_UPDATE): Level.STRONG,
    ("c-t-strobe", Scenario.SINGLE_UPDATE): Level.COMPLETE,
    ("c-t-strobe", Scenario.SOURCE_LOCAL): Level.COMPLETE,
}
"""Figure 2 as the text states it, for our copy lacks the picture: §5.2 and §7 of Strobe, Example 4 of it on
transactions, §5.3 of T-Strobe, §5.4 of T-Strobe and G-Strobe on global ones, §6 of C-Strobe, its periodic
extension and C-TStrobe; §7: an algorithm reaches its level in all less restrictive scenarios."""


def measured(name: str, scenario: Scenario, runs: int = 60) -> Tally:
    """The levels of runs in worlds such as the paper assumes."""
    size = Size(relations=2, transactions=7, keyed=True, snapshots=False)
    algorithm = ALGORITHMS[name]
    return run_campaign(Campaign(algorithm, NETWORKS["fifo"], scenario, size, runs))


def figure_2() -> Example:
    """The consistency spectrum, as far as the text states it."""

    def name_of(name: str, scenario: Scenario) -> str:
        return f"{name}, {scenario}"

    def replay() -> Replay:
        return Replay({name_of(*cell): str(measured(*cell).level) for cell in FIGURE_2})

    data = ("60 random worlds of two keyed relations and seven transactions for each cell",)
    printed = {name_of(*cell): str(level) for cell, level in FIGURE_2.items()}
    return Example("zhuge1996/figure-2", "Consistency spectrum", data, printed, replay)


def examples() -> Iterator[Example]:
    """All of the paper's."""
    for make in (
        *(example_1, example_2, example_3, example_4, example_5, example_6),
        *(grouped, ungrouped, figure_2),
    ):
        yield make()
