"""The Strobe family as the registry enters it, and hand-made worlds that its tests share."""

from __future__ import annotations

from typing import Any

from rollview.algorithms.registry import ALGORITHMS
from rollview.lab.simulator.world import World, from_json

FAMILY = {
    name: ALGORITHMS[name]
    for name in ("strobe", "t-strobe", "g-strobe", "c-strobe", "c-strobe-3", "c-t-strobe")
}
"""zhuge1996 Figure 2: the level that each reaches in each scenario, and no more."""


def key_used_again(second: list[Any]) -> World:
    """r1's key 1 is deleted and inserted again, as `second`, while y inserts what joins [1, 2]."""
    return from_json(
        {
            "scenario": "single-update",
            "relations": [
                {"source": "x", "name": "r1", "columns": ["A", "B"], "key": ["A"]},
                {"source": "y", "name": "r2", "columns": ["B", "C"], "key": ["B"]},
            ],
            "views": [
                {"name": "v", "sql": "SELECT r1.A, r2.B, r2.C FROM x.r1 JOIN y.r2 ON r1.B = r2.B"},
            ],
            "initial": {"x.r1": [[1, 2]], "y.r2": [[5, 6]]},
            "scripts": {
                "x": [{"changes": [["x.r1", [1, 2], -1]]}, {"changes": [["x.r1", second, 1]]}],
                "y": [{"changes": [["y.r2", [2, 3], 1]]}],
            },
        }
    )


def self_joins(occurrences: int) -> World:
    """One table joined with itself, and one of another source; all of it changes."""
    names = [f"r{index + 1}" for index in range(occurrences)]
    columns = ", ".join(f"{name}.k AS k{index + 1}" for index, name in enumerate(names))
    joins = " ".join(f"JOIN x.t {name} ON {name}.a = r1.b" for name in names[1:])
    changes: list[tuple[list[Any], int]] = [
        ([1, 1, 1], -1),
        ([3, 1, 1], 1),
        ([2, 1, 2], -1),
        ([1, None, 1], 1),
        ([3, 1, 1], -1),
        ([2, 1, 1], 1),
    ]
    return from_json(
        {
            "scenario": "single-update",
            "relations": [
                {"source": "x", "name": "t", "columns": ["k", "a", "b"], "key": ["k"]},
                {"source": "y", "name": "s", "columns": ["c", "d"], "key": ["c"]},
            ],
            "views": [
                {"name": "v", "sql": f"SELECT {columns}, s.c FROM x.t r1 {joins} JOIN y.s ON s.d = r1.b"}
            ],
            "initial": {"x.t": [[1, 1, 1], [2, 1, 2]]},
            "scripts": {
                "x": [{"changes": [["x.t", row, count]]} for row, count in changes],
                "y": [{"changes": [["y.s", [1, 1], 1]]}, {"changes": [["y.s", [2, 1], 1]]}],
            },
        }
    )
