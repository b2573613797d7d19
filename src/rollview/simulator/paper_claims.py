"""The papers' counted claims, counted: how many queries and sub-queries they say, and how many there are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import factorial

from rollview.algorithms.registry import ALGORITHMS
from rollview.simulator.costs import Costs
from rollview.simulator.measured_costs import measure_cost
from rollview.simulator.network import NETWORKS
from rollview.simulator.schedule import Recorded, Schedule, Scripted
from rollview.simulator.simulation import simulate_run
from rollview.simulator.world import World, from_json


@dataclass(frozen=True)
class PaperClaim:
    """A number in a paper, and the number measured."""

    source: str
    what: str
    says: str
    measured: str
    holds: bool


def paper_claims() -> list[PaperClaim]:
    """All of them."""
    return [*_expansions(), *_sub_queries(), *_compensating_queries()]


def _expansions() -> Iterator[PaperClaim]:
    for relations in range(2, 7):
        one = round(measure_cost("equation-1", relations, 0, worlds=1).queries)
        two = round(measure_cost("equation-2", relations, 0, worlds=1).queries)
        says = 2**relations - 1
        what = f"queries for a delta of {relations} relations"
        yield PaperClaim("salem2000 eq. 1", what, f"2ⁿ − 1 = {says}", str(one), one == says)
        yield PaperClaim("salem2000 eq. 2", what, f"n = {relations}", str(two), two == relations)


def _sub_queries() -> Iterator[PaperClaim]:
    shared = _costs("version-numbers", join_graph_world(), Recorded([])).questions
    scans = _costs("agrawal-sweep", join_graph_world(), Recorded([])).questions
    yield PaperClaim(
        "sze2000 Example 5",
        "sub-queries along the join graph, against left and right scans",
        "3 instead of 5",
        f"{shared} instead of {scans}",
        (shared, scans) == (3, 5),
    )


def _compensating_queries() -> Iterator[PaperClaim]:
    for relations in (2, 3, 4):
        world = star_world(relations, deletions=3)
        most = _costs("c-strobe", world, in_turn(world)).executions - 1
        bound = factorial(relations - 1)
        yield PaperClaim(
            "zhuge1996 §6",
            f"compensating queries of C-Strobe for {relations} relations, grouped",
            f"at most (n − 1)! = {bound}",
            str(most),
            most <= bound,
        )


def _costs(name: str, world: World, schedule: Schedule) -> Costs:
    return simulate_run(world, ALGORITHMS[name], NETWORKS["fifo"], schedule).costs


def join_graph_world() -> World:
    """sze2000 report Example 5: R4 joins R1, R2, R3 and R6; R5 joins R1; one insertion into R1."""
    columns = {
        "w.r1": "ABC",
        "x.r2": "DE",
        "x.r3": "FG",
        "x.r4": "BDFH",
        "y.r5": "CI",
        "y.r6": "HJ",
    }
    relations = [
        {"source": name[0], "name": name[2:], "columns": list(letters), "key": [letters[0]]}
        for name, letters in columns.items()
    ]
    sql = (
        "SELECT r1.A, r4.B, r5.C, r2.D, r3.F, r6.H FROM w.r1, x.r2, x.r3, x.r4, y.r5, y.r6 "
        "WHERE r1.B = r4.B AND r4.D = r2.D AND r4.F = r3.F AND r1.C = r5.C AND r4.H = r6.H"
    )
    initial = {
        name: [[letter.lower() for letter in letters]] for name, letters in columns.items() if name != "w.r1"
    }
    return from_json(
        {
            "scenario": "single-update",
            "relations": relations,
            "views": [{"name": "v", "sql": sql}],
            "initial": initial,
            "scripts": {"w": [{"changes": [["w.r1", ["a", "b", "c"], 1]]}]},
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


def in_turn(world: World) -> Scripted:
    """The insertion, then the deletions of all sources in turn, all received before the first answer."""
    longest = max(map(len, world.scripts.values()))
    turns = [
        source for place in range(longest) for source, script in world.scripts.items() if place < len(script)
    ]
    return Scripted([f"{step} {source}" for source in turns for step in ("commit", "deliver")])
