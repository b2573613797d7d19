"""zhuge1996 Example 1: the view maintenance anomaly over multiple sources, with the paper's own values."""

from __future__ import annotations

from rollview.simulator.world import World, from_json

EXAMPLE_STEPS = {
    "conventional": (
        "commit y",
        "deliver y",
        "ask x",
        "deliver x",
        "commit x",
        "deliver x",
        "ask z",
        "deliver z",
    ),
    "sweep": (
        "commit y",
        "deliver y",
        "propagate v.r2",
        "ask x",
        "deliver x",
        "commit x",
        "deliver x",
        "ask z",
        "deliver z",
    ),
}
"""The order of events in the paper: the deletion at x comes after x has answered, before z has."""


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
