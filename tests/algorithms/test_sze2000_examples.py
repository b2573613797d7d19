"""sze2000: the report's worked examples with its own values, and what §4 says is saved."""

from __future__ import annotations

from typing import Any

import pytest
from sze2000_worlds import ALGORITHM

from rollview.algorithms.algorithm import Level
from rollview.algorithms.sze2000 import self_maintenance
from rollview.lab.examples.example import Play, Played, values_of
from rollview.lab.examples.version_numbers import (
    APART,
    INTERFERING,
    LOST,
    MODIFICATION,
    MODIFIED,
    OVERTAKEN,
    R2,
    SENDING,
    TWO_INSERTIONS,
    answers,
    compensated,
    corrections,
    estimate,
    join_graph_world,
    relation,
    sent_in,
    shipped_bytes,
    three_relations,
    two_relations,
    watch_site,
    world_of,
)
from rollview.lab.simulator.network import NETWORKS
from rollview.lab.simulator.schedule import Scripted
from rollview.lab.simulator.simulation import Outcome, simulate_run
from rollview.lab.simulator.world import World

Rows = dict[tuple[Any, ...], int]


def _run(world: World, schedule: Scripted, network: str = "fifo") -> Outcome:
    return _judged(Play(world, ALGORITHM, network=network).run(schedule))


def _judged(played: Played) -> Outcome:
    assert (played.level, played.verdict.claims_hold) == (Level.COMPLETE, True)
    return played.outcome


def _states(outcome: Outcome) -> list[Rows]:
    return [dict(publication.contents["v"].counts) for publication in outcome.publications]


def _view(*rows: str) -> Rows:
    return {tuple(row.split(",")): 1 for row in rows}


def test_example_1_no_interference() -> None:
    outcome = _run(two_relations(), Scripted(APART))
    assert _states(outcome) == [{}, {}, {("c1",): 2}]
    assert outcome.costs.rows_compensated == 0


def test_example_2_an_interfering_insertion() -> None:
    outcome = _run(two_relations(), Scripted(INTERFERING))
    assert _states(outcome) == [{}, {}, {("c1",): 2}], "not 3, as without compensation"
    assert outcome.costs.rows_compensated == 1


def test_example_3_the_answer_overtakes_the_update() -> None:
    outcome = _run(two_relations(), Scripted(OVERTAKEN), "misordered")
    assert _states(outcome) == [{}, {}, {("c1",): 2}]


def test_example_4_the_update_is_lost() -> None:
    outcome = _run(two_relations(), Scripted(LOST), "lossy")
    assert _states(outcome) == [{}, {}, {("c1",): 2}]


def test_a_lost_update_that_nothing_follows_is_asked_for_in_time() -> None:
    """No later version and no answer shows it; only polling does."""
    steps = ("commit x", "fault", "lose x", "commit y", "fault", "lose y")
    outcome = _run(two_relations(), Scripted(steps), "lossy")
    assert _states(outcome)[-1] == {("c1",): 2}


def test_example_5_three_sub_queries_instead_of_five() -> None:
    """Figure 1; beside the rows that join there are rows that do not."""
    outcome = _run(join_graph_world(rows=2), Scripted(()))
    assert _states(outcome)[-1] == _view("a,b,c,d,e,f,g,h,i,j")
    assert (outcome.costs.questions, outcome.costs.rounds) == (3, 2)
    assert outcome.costs.rows_shipped == 5, "no product: one row of each relation"


def test_example_5_without_products_nothing_grows_with_the_relations() -> None:
    """The estimate is of left and right scans; along the join graph a million rows ship as much as one."""
    assert shipped_bytes("version-numbers", 20) == shipped_bytes("version-numbers", 40)
    assert estimate("version-numbers") == dict.fromkeys(estimate("agrawal-sweep"), "0 B")


def test_example_8_which_updates_keep_their_order() -> None:
    """(1) and (3) are of one source; (2) is sent between, before or behind them, as it arrives."""
    assert [sent_in(steps) for steps in SENDING.values()] == [
        ["(1)", "(2)", "(3)"],
        ["(1)", "(3)", "(2)"],
        ["(2)", "(1)", "(3)"],
        ["(1)", "(3)", "(2)"],
    ]


def test_example_6_the_view_is_asked_first() -> None:
    played, numbers, seen = watch_site(Play(three_relations(x=[TWO_INSERTIONS]), ALGORITHM))
    outcome = _judged(played)
    assert numbers == {"R1": [(2, 1, 1)], "V": [(2, 1, 1)]}
    assert corrections(seen) == {}, "the queried version numbers are the initial ones"
    assert _states(outcome) == [_view("b1,c1,f1"), _view("b1,c1,f1", "b3,c1,f1", "b2,c2,f2")]
    assert outcome.costs.questions == 1
    assert outcome.costs.rows_shipped == 2, "c1 was found in the view; only c2 and what joins it are shipped"


def test_example_7_a_modification_without_the_complete_tuple() -> None:
    world = three_relations(x=[TWO_INSERTIONS], y=[MODIFICATION])
    outcome = _run(world, Scripted(MODIFIED))
    assert _states(outcome)[-1] == _view("b1,c1,f2", "b3,c1,f2", "b2,c2,f2")
    assert outcome.costs.questions == 1 + 1, "one more sub-query, to R2 alone"
    assert outcome.costs.rows_shipped == 2 + 1


def test_examples_8_to_12() -> None:
    """Columns that the view does not need (A, D, G) are not shipped, so they are missing from the tables."""
    played, numbers, seen = watch_site(compensated(), R2)
    outcome = _judged(played)
    found = [(name, values_of(rows)) for name, rows in answers(seen)]
    assert found == [
        # Table 1: the deletion from R2.
        ("r1", "b1,c1; b3,c1"),
        ("r3", "e1,f1"),
        # Table 2: the insertions into R1; what joins e2 is gone already.
        ("r2", "c2,e2"),
        ("r3", "∅"),
        # Table 3: the deletion from R3 queries R2 only.
        ("r2", "c2,e2"),
    ]
    corrected = {name: [*rows.items()] for name, rows in corrections(seen).items()}
    assert corrected == {
        # Table 6: the interfering insertion of (a3,b3,c1) is dropped (Lemma 6).
        "R1": [(("b3", "c1"), 1)],
        # Table 4: c1 is found in the view, but its row was deleted (missing deletion, Lemma 2).
        "R2 and R3": [(("c1", None, None, "f1"), 1)],
        # Table 5: the interfering deletion of (e2,f2,g2) is added again (Lemma 5).
        "R3": [(("e2", "f2"), -1)],
    }
    assert _states(outcome) == [_view("b1,c1,f1"), {}, _view("b2,c2,f2"), {}]
    assert outcome.costs.questions == 4
    assert numbers == {
        "R2": [(1, 2, 1)],
        "R1": [(2, 2, 1)],
        "R3": [(2, 2, 2)],
        "V": [(1, 2, 1), (2, 2, 1), (2, 2, 2)],
    }


def _saved(
    sql: str, initial: dict[str, list[str]], *changes: tuple[str, str, int]
) -> tuple[int, int, list[Rows]]:
    """Sub-queries, rows shipped and states for one transaction at source y, where S refers to T."""
    relations = [
        relation("x", "r", "AB"),
        relation("y", "s", "BC", ("C", "y.t")),
        relation("y", "t", "CD"),
    ]
    world = world_of(relations, sql, initial, {"y": [list(changes)]})
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
    relations = [relation("x", "r", "ABX"), relation("y", "s", "KBY")]
    sql = "SELECT r.A, r.X, s.K, s.B, s.Y FROM x.r JOIN y.s ON r.B = s.B WHERE r.X <= s.Y"
    initial = {"x.r": ["a,b,3"], "y.s": ["k1,b,5", "k2,b,1"]}
    world = world_of(relations, sql, initial, {"x": [[("x.r", "a2,b,1", 1)]]})
    outcome = _run(world, Scripted(()))
    assert _states(outcome)[-1] == _view("a,3,k1,b,5", "a2,1,k1,b,5", "a2,1,k2,b,1")
    monkeypatch.setattr(self_maintenance, "_crossing", lambda block, relations, join_step: [])
    self_maintenance.view_access.cache_clear()
    mistaken = simulate_run(world, ALGORITHM, NETWORKS["fifo"], Scripted(()))
    self_maintenance.view_access.cache_clear()
    assert (mistaken.costs.questions, _states(mistaken)[-1]) == (0, _view("a,3,k1,b,5", "a2,1,k1,b,5"))
