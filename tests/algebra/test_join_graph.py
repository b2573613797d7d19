"""Access paths: few sub-queries, parents first, products only where nothing connects."""

from __future__ import annotations

from rollview.algebra.expression import Column, call
from rollview.algebra.join_graph import access_path
from rollview.algebra.node import Block
from rollview.algebra.relation import Table
from rollview.lab.examples.version_numbers import join_graph_world
from rollview.planning import parse_view


def _block(sql: str, **sources: str) -> Block:
    """A block over tables t1, t2, …; each keyword gives a table's source."""
    tables = [Table(source, name, ("k", "a", "b"), ("k",)) for name, source in sources.items()]
    return parse_view(sql, tables).blocks[0]


def _shape(block: Block, start: int) -> list[list[tuple[str, list[str]]]]:
    return [
        [
            (query.source, [block.relations[join_step.relation].alias for join_step in query.join_steps])
            for query in round_
        ]
        for round_ in access_path(block, start).rounds
    ]


def test_three_sub_queries_instead_of_five() -> None:
    """sze2000 report Example 5: R2, R3, R4 share a source, R5 and R6 another one."""
    block = join_graph_world().views[0].blocks[0]
    assert _shape(block, 0) == [[("x", ["r4", "r2", "r3"]), ("y", ["r5"])], [("y", ["r6"])]]


def test_a_relation_of_the_same_source_behind_another_source_needs_its_own_sub_query() -> None:
    block = _block(
        "SELECT t1.k FROM x.t1, y.t2, x.t3 WHERE t1.a = t2.a AND t2.b = t3.a", t1="x", t2="y", t3="x"
    )
    assert _shape(block, 0) == [[("y", ["t2"])], [("x", ["t3"])]]
    assert _shape(block, 1) == [[("x", ["t1", "t3"])]]


def test_edges_that_close_a_cycle_become_conditions() -> None:
    block = _block(
        "SELECT t1.k FROM x.t1, y.t2, z.t3 WHERE t1.a = t2.a AND t2.b = t3.a AND t3.b = t1.b",
        t1="x", t2="y", t3="z",
    )  # fmt: skip
    (round_,) = access_path(block, 0).rounds
    join_steps = [join_step for query in round_ for join_step in query.join_steps]
    assert [join_step.relation for join_step in join_steps] == [1, 2]
    assert len(join_steps[0].conditions) == 0
    assert len(join_steps[1].conditions) == 1


def test_a_column_that_equals_two_others_is_looked_up_by_one_of_them() -> None:
    block = _block(
        "SELECT t1.k FROM x.t1, x.t2 WHERE t1.a = t2.a AND t1.a = t2.b AND t1.b = t2.b AND t1.k = t2.k",
        t1="x", t2="x",
    )  # fmt: skip
    ((query,),) = access_path(block, 0).rounds
    (join_step,) = query.join_steps
    assert join_step.on == (("t1.a", "t2.a"), ("t1.b", "t2.b"), ("t1.k", "t2.k"))
    assert join_step.conditions == (call("=", Column("t1.a"), Column("t2.b")),)
    (_, second) = access_path(block, 0, 1).known
    assert (second.on, second.conditions) == (join_step.on, join_step.conditions)


def test_a_product_ships_nothing() -> None:
    block = _block("SELECT t1.k FROM x.t1, y.t2, y.t3 WHERE t2.a = t3.a", t1="x", t2="y", t3="y")
    first, second = access_path(block, 0).rounds
    assert first[0].join_steps[0].parent is None
    assert second[0].join_steps[0].parent == 1


def test_every_condition_is_tested_exactly_once() -> None:
    block = _block(
        "SELECT t1.k FROM x.t1, y.t2, z.t3 WHERE t1.a = t2.a AND t1.b < t3.b AND t2.b + t3.a > 1",
        t1="x", t2="y", t3="z",
    )  # fmt: skip
    for start in range(3):
        join_steps = [
            join_step
            for round_ in access_path(block, start).rounds
            for query in round_
            for join_step in query.join_steps
        ]
        conditions = [condition for join_step in join_steps for condition in join_step.conditions]
        assert sorted(map(str, conditions)) == sorted(map(str, block.residual))


def test_known_relations_are_joined_before_anything_is_asked() -> None:
    block = _block(
        "SELECT t1.k FROM x.t1, y.t2, z.t3 WHERE t1.a = t2.a AND t1.b = t3.b AND t2.b = t3.a AND t1.k < t3.k",
        t1="x", t2="y", t3="z",
    )  # fmt: skip
    path = access_path(block, 0, 2)
    assert [join_step.on for join_step in path.known] == [(), (("t1.b", "t3.b"),)]
    assert len(path.known[1].conditions) == 1
    ((query,),) = path.rounds
    assert query.join_steps[0].relation == 1
    assert len(query.join_steps[0].conditions) == 1, "the edge to the other known relation closes a cycle"
    assert access_path(block, 0, 1, 2).rounds == ()
