"""sze2000: the report's worked examples with its own values, and what §4 says is saved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from sze2000_worlds import ALGORITHM

from rollview.algebra.bag import MemoryBag
from rollview.algebra.levels import Level
from rollview.algorithms.sze2000 import incremental, self_maintenance, version_numbers, without_tuple
from rollview.algorithms.sze2000.versions import ViewSite
from rollview.simulator.checker import check
from rollview.simulator.network import NETWORKS
from rollview.simulator.schedule import Action, Schedule, Scripted
from rollview.simulator.simulation import Outcome, simulate_run
from rollview.simulator.world import World, from_json

Rows = dict[tuple[Any, ...], int]


class Picked:
    """Actions by kind, place and number, one after the other; then the calmest ones."""

    def __init__(self, *actions: Action) -> None:
        self._actions = list(actions)
        self.choices: list[int] = []

    def choose(self, actions: Sequence[Action]) -> int:
        position = list(actions).index(self._actions.pop(0)) if self._actions else 0
        self.choices.append(position)
        return position


def _relation(source: str, name: str, columns: str, *references: tuple[str, str]) -> dict[str, Any]:
    """A relation whose first column is its key."""
    keys = [{"columns": [column], "references": other} for column, other in references]
    return {
        "source": source,
        "name": name,
        "columns": list(columns),
        "key": [columns[0]],
        "foreign_keys": keys,
    }


def _world(
    relations: list[dict[str, Any]],
    sql: str,
    initial: dict[str, list[str]],
    scripts: dict[str, list[list[tuple[str, str, int]]]],
) -> World:
    """Rows are written as in the paper: `a1,b1`."""
    return from_json(
        {
            "scenario": "source-local",
            "relations": relations,
            "views": [{"name": "v", "sql": sql}],
            "initial": {name: [row.split(",") for row in rows] for name, rows in initial.items()},
            "scripts": {
                source: [
                    {"changes": [[table, row.split(","), count] for table, row, count in changes]}
                    for changes in script
                ]
                for source, script in scripts.items()
            },
        }
    )


def _run(world: World, schedule: Schedule, network: str = "fifo") -> Outcome:
    outcome = simulate_run(world, ALGORITHM, NETWORKS[network], schedule)
    verdict = check(world, outcome.commits, outcome.publications, outcome.at_rest)
    assert (verdict.level, verdict.claims_hold) == (Level.COMPLETE, True)
    return outcome


def _states(outcome: Outcome) -> list[Rows]:
    return [dict(publication.contents["v"].counts) for publication in outcome.publications]


def _view(*rows: str) -> Rows:
    return {tuple(row.split(",")): 1 for row in rows}


def _two_relations() -> World:
    return _world(
        [_relation("x", "r1", "AB"), _relation("y", "r2", "BC")],
        "SELECT r2.C FROM x.r1 JOIN y.r2 ON r1.B = r2.B",
        {"x.r1": ["a1,b1"]},
        {"x": [[("x.r1", "a2,b1", 1)]], "y": [[("y.r2", "b1,c1", 1)]]},
    )


def test_example_1_no_interference() -> None:
    steps = ("commit x", "deliver x", "ask y", "deliver y", "commit y", "deliver y", "ask x", "deliver x")
    outcome = _run(_two_relations(), Scripted(steps))
    assert _states(outcome) == [{}, {}, {("c1",): 2}]
    assert outcome.costs.rows_compensated == 0


def test_example_2_an_interfering_insertion() -> None:
    outcome = _run(_two_relations(), Scripted(("commit x", "deliver x", "commit y", "ask y", "deliver y")))
    assert _states(outcome) == [{}, {}, {("c1",): 2}], "not 3, as without compensation"
    assert outcome.costs.rows_compensated == 1


def test_example_3_the_answer_overtakes_the_update() -> None:
    schedule = Picked(
        ("commit", "x", 0), ("deliver", "x", 0), ("commit", "y", 0), ("ask", "y", 0), ("deliver", "y", 1)
    )
    outcome = _run(_two_relations(), schedule, "misordered")
    assert _states(outcome) == [{}, {}, {("c1",): 2}]


def test_example_4_the_update_is_lost() -> None:
    schedule = Picked(
        ("commit", "x", 0),
        ("deliver", "x", 0),
        ("commit", "y", 0),
        ("fault", "", 0),
        ("lose", "y", 0),
        ("ask", "y", 0),
        ("deliver", "y", 0),
    )
    outcome = _run(_two_relations(), schedule, "lossy")
    assert _states(outcome) == [{}, {}, {("c1",): 2}]


def test_a_lost_update_that_nothing_follows_is_asked_for_in_time() -> None:
    """No later version and no answer tells of it; only looking after it does."""
    schedule = Picked(
        ("commit", "x", 0),
        ("fault", "", 0),
        ("lose", "x", 0),
        ("commit", "y", 0),
        ("fault", "", 0),
        ("lose", "y", 0),
    )
    outcome = _run(_two_relations(), schedule, "lossy")
    assert _states(outcome)[-1] == {("c1",): 2}


def test_example_5_three_sub_queries_instead_of_five() -> None:
    """Figure 1: R4 joins R1, R2, R3 and R6; R5 joins R1. R2 to R4 are at one source, R5 and R6 at another."""
    relations = [
        _relation("w", "r1", "ABC"),
        _relation("x", "r2", "DE"),
        _relation("x", "r3", "FG"),
        _relation("x", "r4", "BDFH"),
        _relation("y", "r5", "CI"),
        _relation("y", "r6", "HJ"),
    ]
    sql = (
        "SELECT * FROM w.r1 JOIN x.r4 ON r1.B = r4.B JOIN x.r2 ON r4.D = r2.D JOIN x.r3 ON r4.F = r3.F "
        "JOIN y.r5 ON r1.C = r5.C JOIN y.r6 ON r4.H = r6.H"
    ).replace("*", "r1.A, r4.B, r5.C, r2.D, r3.F, r6.H, r2.E, r3.G, r5.I, r6.J")
    initial = {
        "x.r2": ["d,e", "d2,e"],
        "x.r3": ["f,g"],
        "x.r4": ["b,d,f,h"],
        "y.r5": ["c,i", "c2,i"],
        "y.r6": ["h,j"],
    }
    outcome = _run(_world(relations, sql, initial, {"w": [[("w.r1", "a,b,c", 1)]]}), Scripted(()))
    assert _states(outcome)[-1] == _view("a,b,c,d,f,h,e,g,i,j")
    assert (outcome.costs.questions, outcome.costs.rounds) == (3, 2)
    assert outcome.costs.rows_shipped == 5, "no product: one row of each relation"


RELATIONS = [_relation("x", "r1", "ABC"), _relation("y", "r2", "CDE"), _relation("y", "r3", "EFG")]
SQL = "SELECT r1.B, r2.C, r3.F FROM x.r1 JOIN y.r2 ON r1.C = r2.C JOIN y.r3 ON r2.E = r3.E"
INITIAL = {"x.r1": ["a1,b1,c1"], "y.r2": ["c1,d1,e1", "c2,d2,e2"], "y.r3": ["e1,f1,g1", "e2,f2,g2"]}
TWO_INSERTIONS = [("x.r1", "a2,b2,c2", 1), ("x.r1", "a3,b3,c1", 1)]


@pytest.fixture
def numbers(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[tuple[int, ...]]]:
    """Version numbers as the report prints them: every relation begins at 1, here at 0.

    By updated relation its initial ones, then the queried ones of the answers; under V the refreshed ones.
    """
    seen: dict[str, list[tuple[int, ...]]] = {}
    true_send, true_applied, true_compensate = ViewSite._send, ViewSite.was_applied, incremental.compensate

    def send(site: ViewSite, transaction: Any) -> Any:
        transit = true_send(site, transaction)
        for sent in transit.updates:
            initial = tuple(number + 1 for number in sent.initial)
            seen.setdefault(f"r{sent.update.position + 1}", []).append(initial)
        return transit

    def compensate(computation: Any, rows: Any, join_step: Any, found: Any, saw: Any) -> Any:
        captured = computation.site.captured(0, join_step.relation)
        asked = (join_step.relation + 1, captured.queried(saw.upto) + 1)
        seen.setdefault(f"r{computation.sent.update.position + 1} queried", []).append(asked)
        return (yield from true_compensate(computation, rows, join_step, found, saw))

    def was_applied(site: ViewSite, transit: Any) -> None:
        true_applied(site, transit)
        refreshed = tuple(site.refreshed(0, position) + 1 for position in range(3))
        seen.setdefault("V", []).append(refreshed)

    monkeypatch.setattr(ViewSite, "_send", send)
    monkeypatch.setattr(ViewSite, "was_applied", was_applied)
    monkeypatch.setattr(incremental, "compensate", compensate)
    return seen


def test_example_6_the_view_is_asked_first(numbers: dict[str, list[tuple[int, ...]]]) -> None:
    outcome = _run(_world(RELATIONS, SQL, INITIAL, {"x": [TWO_INSERTIONS]}), Scripted(()))
    assert numbers == {"r1": [(2, 1, 1)], "r1 queried": [(2, 1), (3, 1)], "V": [(2, 1, 1)]}
    assert _states(outcome) == [_view("b1,c1,f1"), _view("b1,c1,f1", "b3,c1,f1", "b2,c2,f2")]
    assert outcome.costs.questions == 1
    assert outcome.costs.rows_shipped == 2, "c1 was found in the view; only c2 and what joins it are shipped"


def test_example_7_a_modification_without_the_complete_tuple() -> None:
    modification = [("y.r3", "e1,f1,g1", -1), ("y.r3", "e1,f2,g1", 1)]
    world = _world(RELATIONS, SQL, INITIAL, {"x": [TWO_INSERTIONS], "y": [modification]})
    first = ("commit x", "deliver x", "ask y", "deliver y")
    outcome = _run(world, Scripted((*first, "commit y", "deliver y", "ask y", "deliver y")))
    assert _states(outcome)[-1] == _view("b1,c1,f2", "b3,c1,f2", "b2,c2,f2")
    assert outcome.costs.questions == 1 + 1, "one more sub-query, to R2 alone"
    assert outcome.costs.rows_shipped == 2 + 1


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, list[Any]]]:
    """Query results before and after compensation; the deletion from R2 is made to query, as in Example 8."""
    seen: dict[str, list[Any]] = {}
    true_compensate, true_view = incremental.compensate, incremental.ask_the_view

    def rows(bag: MemoryBag) -> list[str]:
        return [",".join(row) for row, count in bag.items() for _ in range(count)]

    def compensate(computation: Any, so_far: Any, join_step: Any, found: MemoryBag, saw: Any) -> Any:
        result = yield from true_compensate(computation, so_far, join_step, found, saw)
        name = f"r{computation.sent.update.position + 1} μr{join_step.relation + 1}"
        seen[name] = [rows(found), rows(result[0])]
        return result

    def ask_the_view(computation: Any, join_step: Any, access: Any) -> Any:
        result = yield from true_view(computation, join_step, access)
        seen[f"r{computation.sent.update.position + 1} view"] = [rows(bag) for bag in result]
        return result

    def by_key(block: Any, position: int) -> Any:
        return None if position == 1 else without_tuple.by_key(block, position)

    monkeypatch.setattr(incremental, "compensate", compensate)
    monkeypatch.setattr(incremental, "ask_the_view", ask_the_view)
    monkeypatch.setattr(version_numbers, "by_key", by_key)
    return seen


def test_examples_8_to_12(numbers: dict[str, list[tuple[int, ...]]], tables: dict[str, list[Any]]) -> None:
    """Columns that the view does not need (A, D, G) are not shipped, so they are missing from the tables."""
    scripts = {
        "x": [[("x.r1", "a3,b3,c1", 1), ("x.r1", "a2,b2,c2", 1)]],
        "y": [[("y.r2", "c1,d1,e1", -1)], [("y.r3", "e2,f2,g2", -1)]],
    }
    steps = [
        "commit y",
        "deliver y",
        "commit x",
        "commit y",
        "deliver x",
        "deliver y",
        "ask x",
        *["ask y"] * 3,
    ]
    outcome = _run(_world(RELATIONS, SQL, INITIAL, scripts), Scripted(steps))
    assert tables == {
        # Tables 1 and 6: the deletion from R2; the interfering insertion of (a3,b3,c1) is dropped (Lemma 6).
        "r2 μr1": [["b1,c1", "b3,c1"], ["b1,c1"]],
        "r2 μr3": [["e1,f1"], ["e1,f1"]],
        # Tables 2 and 4: c1 is found in the view, but its row was deleted (missing deletion, Lemma 2).
        "r1 view": [["c1"], []],
        # Tables 4 and 5: the interfering deletion of (e2,f2,g2) is added again (Lemma 5).
        "r1 μr2": [["c2,e2"], ["c2,e2"]],
        "r1 μr3": [[], ["e2,f2"]],
        # Table 3: the deletion from R3 queries R2 only.
        "r3 μr2": [["c2,e2"], ["c2,e2"]],
    }
    assert _states(outcome) == [_view("b1,c1,f1"), {}, _view("b2,c2,f2"), {}]
    assert outcome.costs.questions == 4
    # Initial ones in the text of Example 8; queried ones in Tables 1 to 3: relation and number.
    assert [numbers["r2"], numbers["r1"], numbers["r3"]] == [[(1, 2, 1)], [(2, 2, 1)], [(2, 2, 2)]]
    assert sorted(numbers["r2 queried"]) == [(1, 2), (3, 2)]
    assert (numbers["r1 queried"], numbers["r3 queried"]) == ([(2, 2), (3, 2)], [(2, 2)])
    assert numbers["V"] == [(1, 2, 1), (2, 2, 1), (2, 2, 2)]


def _saved(
    sql: str, initial: dict[str, list[str]], *changes: tuple[str, str, int]
) -> tuple[int, int, list[Rows]]:
    """Sub-queries, rows shipped and states for one transaction at source y, where S refers to T."""
    relations = [
        _relation("x", "r", "AB"),
        _relation("y", "s", "BC", ("C", "y.t")),
        _relation("y", "t", "CD"),
    ]
    world = _world(relations, sql, initial, {"y": [list(changes)]})
    outcome = _run(world, Scripted(()))
    return outcome.costs.questions, outcome.costs.rows_shipped, _states(outcome)


JOINED = "SELECT r.A, t.D FROM x.r JOIN y.s ON r.B = s.B JOIN y.t ON s.C = t.C"
FILLED = {"x.r": ["a,b"], "y.s": ["b,c"], "y.t": ["c,d", "c2,d2"]}


def test_insertions_and_deletions_of_a_referenced_relation_are_irrelevant() -> None:
    assert _saved(JOINED, FILLED, ("y.t", "c3,d3", 1))[0] == 0
    assert _saved(JOINED, FILLED, ("y.t", "c2,d2", -1))[0] == 0


def test_an_insertion_beside_its_reference_is_irrelevant_too() -> None:
    """T's row is sent first and finds nothing; S's row, sent second, finds it."""
    questions, _, states = _saved(JOINED, FILLED, ("y.s", "b2,c3", 1), ("y.t", "c3,d3", 1))
    assert (questions, states[-1]) == (2, _view("a,d")), "one for R and one for T, both for S's row"


def test_a_disconnected_part_is_read_from_the_view_unless_it_is_empty() -> None:
    sql = "SELECT r.A, r.B, s.B AS sb, s.C FROM x.r, y.s"
    filled = {"x.r": ["a,b", "a2,b"], "y.s": ["b,c"]}
    questions, _, states = _saved(sql, filled, ("y.s", "b2,c", 1))
    assert (questions, len(states[-1])) == (0, 4)
    questions, shipped, states = _saved(sql, {"x.r": ["a,b", "a2,b"]}, ("y.s", "b2,c", 1))
    assert (questions, shipped, len(states[-1])) == (1, 2, 2)


def test_a_modification_that_the_view_does_not_show_costs_nothing() -> None:
    sql = "SELECT r.A, s.C FROM x.r JOIN y.s ON r.B = s.B JOIN y.t ON s.C = t.C"
    assert _saved(sql, FILLED, ("y.t", "c,d", -1), ("y.t", "c,d9", 1))[0] == 0


def test_some_matches_in_the_view_are_not_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """The report's two conditions hold (K is shown, nothing lies beyond S), yet the view hides (k2,b,1)."""
    relations = [_relation("x", "r", "ABX"), _relation("y", "s", "KBY")]
    sql = "SELECT r.A, r.X, s.K, s.B, s.Y FROM x.r JOIN y.s ON r.B = s.B WHERE r.X <= s.Y"
    initial = {"x.r": ["a,b,3"], "y.s": ["k1,b,5", "k2,b,1"]}
    world = _world(relations, sql, initial, {"x": [[("x.r", "a2,b,1", 1)]]})
    outcome = _run(world, Scripted(()))
    assert _states(outcome)[-1] == _view("a,3,k1,b,5", "a2,1,k1,b,5", "a2,1,k2,b,1")
    monkeypatch.setattr(self_maintenance, "_crossing", lambda block, relations, join_step: [])
    self_maintenance.view_access.cache_clear()
    mistaken = simulate_run(world, ALGORITHM, NETWORKS["fifo"], Scripted(()))
    self_maintenance.view_access.cache_clear()
    assert (mistaken.costs.questions, _states(mistaken)[-1]) == (0, _view("a,3,k1,b,5", "a2,1,k1,b,5"))
