"""Readings of zhuge1996 that do not work, and slips that are easy to make: the checker must catch each.

The unharmed code is run on the same seeds by `test_zhuge1996_levels`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from zhuge1996_family import FAMILY

from rollview.algebra.bag import keep
from rollview.algebra.expression import Column, call, conjunction
from rollview.algebra.node import Block
from rollview.algorithms.algorithm import Scenario
from rollview.algorithms.key_delete import key_delete_star, unprojected
from rollview.algorithms.zhuge1996 import c_strobe, g_strobe, t_strobe, update_list
from rollview.algorithms.zhuge1996.c_strobe import HeldUpdate, Query
from rollview.lab.examples.strobe import example_world
from rollview.lab.memory.bag import MemoryBag
from rollview.lab.simulator.campaign import Campaign, run_campaign
from rollview.lab.simulator.generate import Size
from rollview.lab.simulator.network import NETWORKS
from rollview.planning import parse_view

Patch = pytest.MonkeyPatch
RUNS = 600


def pending_forgotten(patch: Patch) -> None:
    """A deletion is applied to MV only, not to the answers that are under way."""
    patch.setattr(
        update_list.ActionList,
        "delete",
        lambda self, relation, rows: self.actions.append(update_list.Deletion(relation, rows)),
    )


def pending_of_all_queries(patch: Patch) -> None:
    """A query begins with the deletions of the queries before it, so it loses re-inserted tuples."""
    true_query = update_list.Query

    def mistaken(warehouse: update_list.ActionList, inserted: Any) -> Any:
        query = true_query(inserted, [each for other in warehouse.unanswered for each in other.pending])
        warehouse.unanswered.append(query)
        yield update_list.Spawn(update_list._evaluate(warehouse, query))

    for module in ("strobe", "t_strobe"):
        patch.setattr(f"rollview.algorithms.zhuge1996.{module}.begin_query", mistaken)


def applied_while_queries_are_open(patch: Patch) -> None:
    """MV is updated with every action, although some queries are unanswered."""
    patch.setattr(update_list.ActionList, "may_update", lambda self: True)


def duplicates_added(patch: Patch) -> None:
    """What two queries found is counted twice."""
    for module in (update_list, c_strobe):
        patch.setattr(module, "without_duplicates", lambda rows, more: rows.plus(more))


def pairs_not_removed(patch: Patch) -> None:
    """§5.3 calls it an optimization; but the answer to the insertion brings the deleted tuple back."""
    patch.setattr(t_strobe, "without_pairs", lambda block, changes: list(changes))


def modified_tuple_taken_for_a_pair(patch: Patch) -> None:
    """A deletion followed by an insertion of the same key is removed as well."""

    def mistaken(block: Block, changes: Sequence[Any]) -> list[Any]:
        kept = update_list.without_pairs(block, changes)
        backwards = update_list.without_pairs(block, kept[::-1])
        return backwards[::-1]

    patch.setattr(t_strobe, "without_pairs", mistaken)


def parts_not_awaited(patch: Patch) -> None:
    """G-Strobe without its third condition is T-Strobe."""
    patch.setattr(g_strobe.GlobalActionList, "_has_all_parts", lambda self: True)


def dependencies_by_the_letter(patch: Patch) -> None:
    """What a transaction depends on must be in TT itself, also if MV shows it already."""
    patch.setattr(
        g_strobe.GlobalActionList,
        "_has_dependencies",
        lambda self: all(
            part.version == 1
            or any((o.source, o.version) == (part.source, part.version - 1) for o in self.transactions)
            for part in self.transactions
        ),
    )


def same_tuple_by_key(patch: Patch) -> None:
    """ "The same tuple" as §5.3 defines it, by key: a modified tuple is not subtracted from Delta."""
    true_attributes = c_strobe.attributes_read

    def key_only(block: Block, position: int) -> tuple[str, ...]:
        return block.relations[position].key or true_attributes(block, position)

    patch.setattr(c_strobe, "attributes_read", key_only)


def subtracted_by_key(patch: Patch) -> None:
    """key_delete in place of key_delete*: the old tuple goes with the new one."""

    def by_key(block: Block, rows: MemoryBag, position: int, deleted: MemoryBag) -> MemoryBag:
        key = block.relations[position].key
        marked = deleted.distinct(key).project([(f"{name}'", Column(name)) for name in key])
        stem = rows.join(marked, [(name, f"{name}'") for name in key]).project(keep(rows.columns))
        return rows.plus(stem.negate())

    patch.setattr(c_strobe, "key_delete_star", by_key)


def subtracted_by_what_the_view_shows(patch: Patch) -> None:
    """key_delete* compares only the attributes that a view tuple shows."""

    def by_shown(block: Block, rows: MemoryBag, position: int, deleted: MemoryBag) -> MemoryBag:
        shown, key = _shown(block, position), block.relations[position].key
        marked = deleted.distinct(shown).project([(f"{name}'", Column(name)) for name in shown])
        equal = conjunction(tuple(call("<=>", Column(name), Column(f"{name}'")) for name in shown))
        stem = rows.join(marked, [(name, f"{name}'") for name in key], equal).project(keep(rows.columns))
        return rows.plus(stem.negate())

    patch.setattr(c_strobe, "key_delete_star", by_shown)


def null_is_not_null(patch: Patch) -> None:
    """key_delete* as a plain equi-join: tuples with NULL in them are never subtracted."""
    true_call = key_delete_star.__globals__["call"]
    patch.setitem(
        key_delete_star.__globals__,
        "call",
        lambda function, *arguments: true_call("=" if function == "<=>" else function, *arguments),
    )


def insertions_not_subtracted(patch: Patch) -> None:
    """Answers are used with what was inserted too late."""
    patch.setattr(c_strobe, "first_inserted", lambda block, position, held: [])


def deletions_not_compensated(patch: Patch) -> None:
    """No compensating queries."""

    def none(block: Block, query: Query, held: Sequence[HeldUpdate]) -> Any:
        return []
        yield

    patch.setattr(c_strobe, "_compensating", none)


def compensated_one_level_deep(patch: Patch) -> None:
    """Compensating queries are taken for exact, and are not compensated themselves."""
    true_compensating = c_strobe._compensating

    def first_level(block: Block, query: Query, held: Sequence[HeldUpdate]) -> Any:
        if len(query.known) > 1:
            return []
        return (yield from true_compensating(block, query, held))

    patch.setattr(c_strobe, "_compensating", first_level)


def queue_read_when_the_query_begins(patch: Patch) -> None:
    """Updates received while a query is under way are not noticed."""
    true_delta = c_strobe.compensated_delta

    def mistaken(block: Block, inserted: Any, held: Callable[[], Any]) -> Any:
        early = held()
        return (yield from true_delta(block, inserted, lambda: early))

    patch.setattr(c_strobe, "compensated_delta", mistaken)


def only_what_arrives_during_the_query(patch: Patch) -> None:
    """Updates that waited behind U_i when its query was sent are taken for harmless."""
    true_delta = c_strobe.compensated_delta

    def mistaken(block: Block, inserted: Any, held: Callable[[], Any]) -> Any:
        early = set(held())
        return (yield from true_delta(block, inserted, lambda: [u for u in held() if u not in early]))

    patch.setattr(c_strobe, "compensated_delta", mistaken)


def _shown(block: Block, position: int) -> list[str]:
    """In a generated view: the key, and `b` of the last relation."""
    relation = block.relations[position]
    last = position == len(block.relations) - 1
    return [*relation.key, relation.column("b")] if last else list(relation.key)


LOCAL, GLOBAL, SINGLE = Scenario.SOURCE_LOCAL, Scenario.GLOBAL, Scenario.SINGLE_UPDATE
MISTAKES: list[tuple[Callable[[Patch], None], str, Scenario]] = [
    (pending_forgotten, "strobe", SINGLE),
    (pending_forgotten, "t-strobe", LOCAL),
    (pending_of_all_queries, "strobe", SINGLE),
    (applied_while_queries_are_open, "strobe", SINGLE),
    (duplicates_added, "strobe", SINGLE),
    (duplicates_added, "t-strobe", LOCAL),
    (duplicates_added, "c-strobe", SINGLE),
    (pairs_not_removed, "t-strobe", LOCAL),
    (modified_tuple_taken_for_a_pair, "t-strobe", LOCAL),
    (parts_not_awaited, "g-strobe", GLOBAL),
    (dependencies_by_the_letter, "g-strobe", GLOBAL),
    (same_tuple_by_key, "c-strobe", SINGLE),
    (subtracted_by_key, "c-t-strobe", LOCAL),
    (subtracted_by_what_the_view_shows, "c-strobe", SINGLE),
    (null_is_not_null, "c-strobe", SINGLE),
    (insertions_not_subtracted, "c-strobe", SINGLE),
    (deletions_not_compensated, "c-strobe", SINGLE),
    (compensated_one_level_deep, "c-strobe", SINGLE),
    (queue_read_when_the_query_begins, "c-strobe-3", SINGLE),
    (only_what_arrives_during_the_query, "c-strobe", SINGLE),
]


@pytest.mark.parametrize(
    ("mistake", "name", "scenario"), MISTAKES, ids=lambda value: getattr(value, "__name__", str(value))
)
def test_the_checker_catches(
    mistake: Callable[[Patch], None], name: str, scenario: Scenario, monkeypatch: Patch
) -> None:
    mistake(monkeypatch)
    algorithm = FAMILY[name]
    size = Size(relations=3, transactions=8, keyed=True, snapshots=False)
    tried = Campaign(algorithm, NETWORKS["fifo"], scenario, size, required=algorithm.claims[scenario])
    for seed in range(0, RUNS, 10):
        tally = run_campaign(replace(tried, seed=seed, runs=10))
        if sum(count for level, count in tally.levels.items() if level < tried.required):
            return
    pytest.fail(f"{mistake.__name__} went unnoticed: {mistake.__doc__}")


def test_delta_is_not_projected() -> None:
    """Every attribute that the view reads is there, the others are not."""
    world = example_world()
    view = parse_view("SELECT r1.A, r2.B FROM x.r1 JOIN y.r2 ON r1.B = r2.C", world.tables, "v")
    assert unprojected(view.blocks[0]).output_columns == ("r1.A", "r1.B", "r2.B", "r2.C")
