"""The checker on hand-made runs: each level of zhuge1996 §4.2, separated from the one above by one flaw."""

from __future__ import annotations

from typing import Any

import pytest

from rollview.algebra.history import Transaction
from rollview.algorithms.algorithm import Level
from rollview.lab.memory.bag import MemoryBag
from rollview.lab.simulator.checker import Verdict, check
from rollview.lab.simulator.store import Publication
from rollview.lab.simulator.world import World, from_json


def _world(scripts: dict[str, list[Any]], scenario: str = "single-update") -> World:
    """Two sources with a table each; the view shows both tables' rows side by side."""
    return from_json(
        {
            "scenario": scenario,
            "relations": [
                {"source": "x", "name": "t", "columns": ["a"]},
                {"source": "y", "name": "t", "columns": ["b"]},
            ],
            "views": [{"name": "v", "sql": "SELECT x.a AS n FROM x.t x UNION ALL SELECT y.b FROM y.t y"}],
            "scripts": scripts,
        }
    )


def _insert(source: str, *values: int, name: str = "") -> dict[str, Any]:
    changes = [[f"{source}.t", [value], 1] for value in values]
    return {"changes": changes, "global_id": name, "participants": ["x", "y"] if name else []}


def _judge(world: World, *states: set[int], versions: list[dict[str, int] | None] | None = None) -> Verdict:
    """The verdict on these states, shown after all commits had happened (x before y)."""
    commits: list[Transaction] = [t for script in world.scripts.values() for t in script]
    claimed = versions or [None] * len(states)
    shown = [
        Publication({"v": MemoryBag.of(("n",), [(value,) for value in state])}, claim)
        for state, claim in zip(states, claimed, strict=True)
    ]
    return check(world, commits, shown, at_rest=True)


LOCAL = _world({"x": [_insert("x", 1), _insert("x", 2)], "y": [_insert("y", 10)]})
GLOBAL = _world({"x": [_insert("x", 1, name="g")], "y": [_insert("y", 10, name="g")]}, "global")


def test_complete_in_any_order_that_keeps_each_sources_own() -> None:
    assert _judge(LOCAL, set(), {1}, {1, 2}, {1, 2, 10}).level is Level.COMPLETE
    assert _judge(LOCAL, set(), {10}, {1, 10}, {1, 2, 10}).level is Level.COMPLETE


def test_a_repeated_state_is_no_new_state() -> None:
    assert _judge(LOCAL, set(), {1}, {1}, {1, 2}, {1, 2, 10}).level is Level.COMPLETE


def test_a_skipped_state_is_strong_only() -> None:
    verdict = _judge(LOCAL, set(), {1, 2}, {1, 2, 10})
    assert verdict.level is Level.STRONG
    assert verdict.witness is not None
    assert (verdict.witness.missed, verdict.witness.state) == (Level.COMPLETE, 1)


def test_the_last_step_may_not_be_skipped_either() -> None:
    assert _judge(LOCAL, set(), {1}, {1, 2, 10}).level is Level.STRONG


def test_going_back_is_weak_only() -> None:
    verdict = _judge(LOCAL, set(), {1, 2}, {1}, {1, 2, 10})
    assert verdict.level is Level.WEAK
    assert verdict.witness is not None and verdict.witness.state == 2


def test_a_state_that_never_was_converges_only() -> None:
    verdict = _judge(LOCAL, set(), {2}, {1, 2, 10})
    assert verdict.level is Level.CONVERGENCE
    assert verdict.witness is not None and verdict.witness.state == 1
    assert {tuple(versions.values()) for versions, _ in verdict.witness.closest} >= {(0, 0), (2, 0)}


def test_a_wrong_end_is_nothing() -> None:
    assert _judge(LOCAL, set(), {1}, {1, 2}).level is Level.NONE
    assert _judge(LOCAL, set(), {1, 2, 10, 11}).level is Level.NONE


def test_never_at_rest_is_nothing() -> None:
    world = LOCAL
    commits = [t for script in world.scripts.values() for t in script]
    final = Publication({"v": MemoryBag.of(("n",), [(1,), (2,), (10,)])}, None)
    assert check(world, commits, [final], at_rest=False).level is Level.NONE


def test_half_a_global_transaction_is_weak_only() -> None:
    assert _judge(GLOBAL, set(), {1, 10}).level is Level.COMPLETE
    assert _judge(GLOBAL, set(), {1}, {1, 10}).level is Level.WEAK
    assert _judge(GLOBAL, set(), {10}, {1, 10}).level is Level.WEAK


def test_a_source_local_transaction_is_atomic() -> None:
    world = _world({"x": [_insert("x", 1, 2)], "y": []}, "source-local")
    assert _judge(world, set(), {1, 2}).level is Level.COMPLETE
    assert _judge(world, set(), {1}, {1, 2}).level is Level.CONVERGENCE


@pytest.mark.parametrize(("x", "y", "hold"), [(1, 0, True), (2, 0, False), (1, 1, False), (9, 0, False)])
def test_a_claimed_version_must_be_what_is_shown(x: int, y: int, hold: bool) -> None:
    claims: list[dict[str, int] | None] = [{"x": 0, "y": 0}, {"x": x, "y": y}, None, {"x": 2, "y": 1}]
    verdict = _judge(LOCAL, set(), {1}, {1, 2}, {1, 2, 10}, versions=claims)
    assert verdict.level is Level.COMPLETE
    assert verdict.claims_hold is hold


def test_views_published_together_are_judged_together() -> None:
    """Each view alone is strong, but at no moment did both contents hold at once."""
    world = from_json(
        {
            "relations": [
                {"source": "x", "name": "t", "columns": ["a"]},
                {"source": "y", "name": "t", "columns": ["b"]},
            ],
            "views": [
                {"name": "v", "sql": "SELECT a FROM x.t"},
                {"name": "w", "sql": "SELECT count(*) AS n FROM x.t"},
            ],
            "scripts": {"x": [_insert("x", 1), _insert("x", 2)], "y": []},
        }
    )
    commits = [t for script in world.scripts.values() for t in script]

    def shown(rows: list[int], number: int) -> Publication:
        contents = {
            "v": MemoryBag.of(("a",), [(row,) for row in rows]),
            "w": MemoryBag.of(("n",), [(number,)]),
        }
        return Publication(contents, None)

    together = [shown([], 0), shown([1], 1), shown([1, 2], 2)]
    apart = [shown([], 0), shown([1], 0), shown([1], 1), shown([1, 2], 2)]
    assert check(world, commits, together, at_rest=True).level is Level.COMPLETE
    assert check(world, commits, apart, at_rest=True).level is Level.CONVERGENCE
