"""Realistic mistakes in each operator, planted one at a time: the judge of any query must catch each of them.

The unharmed code passes on the same queries (`test_oracle_any_query`), so a catch means the mistake. What
only Spark computes has its mistakes in `tests/conformance/test_operator_mistakes_on_spark.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from test_oracle_any_query import check

from rollview.algebra import change_points
from rollview.algebra.bag import keep
from rollview.algebra.expression import Column
from rollview.lab.memory.bag import MemoryBag
from rollview.operators.aggregate import Aggregate
from rollview.operators.draft import Draft
from rollview.operators.grouped_values import GroupedValues
from rollview.operators.multiset import LEFT, RIGHT, Multiset
from rollview.operators.negated import Negated
from rollview.operators.union_all import UnionAll
from rollview.sql.passes import layers

Patch = pytest.MonkeyPatch
QUERIES = 480


def conditions_forgotten(patch: Patch) -> None:
    """A block without the conditions of the query around it."""
    patch.setattr(Draft, "where", lambda draft, conditions: draft)


def subtracted_is_added(patch: Patch) -> None:
    """Rows of an outer join that have a match appear a second time, with NULLs."""
    patch.setattr(Negated, "absorb", lambda node, position, rows, *extra: rows)


def second_input_forgotten(patch: Patch) -> None:
    """Of a sum, the deltas of the first input alone."""
    true = UnionAll.absorb
    patch.setattr(
        UnionAll,
        "absorb",
        lambda node, position, rows, *extra: (
            true(node, position, rows, *extra)
            if position == 0
            else true(node, position, rows.plus(rows.negate()), *extra)
        ),
    )


def empty_groups_stay(patch: Patch) -> None:
    """A group whose last row went is still shown."""
    patch.setattr(Aggregate, "existing", lambda node, net: net)


def counts_of_groups_ignored(patch: Patch) -> None:
    """Equal rows count once."""
    true = Aggregate.absorb
    patch.setattr(
        Aggregate,
        "absorb",
        lambda node, position, rows, *extra: true(node, position, rows.distinct(rows.columns), *extra),
    )


def values_counted_once(patch: Patch) -> None:
    """The values of a group without how often they are there: gone with the first that goes."""
    true = GroupedValues.absorb
    patch.setattr(
        GroupedValues,
        "absorb",
        lambda node, position, rows, *extra: true(node, position, rows.distinct(rows.columns), *extra),
    )


def single_group_vanishes(patch: Patch) -> None:
    """Nothing keeps a single group there when its rows are gone."""

    def state_from(node: GroupedValues, inputs: Any) -> Any:
        return node.absorb(0, inputs[0]).net_effect()

    patch.setattr(GroupedValues, "state_from", state_from)


def left_over_for_shared(patch: Patch) -> None:
    """EXCEPT ALL and INTERSECT ALL, one for the other."""
    true = Multiset.present

    def present(node: Multiset, state: Any, *extra: str) -> Any:
        return true(Multiset(node.input, node.columns, not node.is_except), state, *extra)

    patch.setattr(Multiset, "present", present)


def sides_confused(patch: Patch) -> None:
    """What is on the right counts for the left, and the other way round."""
    true = Multiset.absorb

    def absorb(node: Multiset, position: int, rows: Any, *extra: str) -> Any:
        swapped = rows.project(
            (*keep((*node.key, *extra)), (LEFT, Column(RIGHT)), (RIGHT, Column(LEFT))),
        )
        return true(node, position, swapped, *extra)

    patch.setattr(Multiset, "absorb", absorb)


def before_means_now(patch: Patch) -> None:
    """A change point takes away what the operator shows after it, not before."""
    true = change_points._rows_at
    patch.setattr(change_points, "_rows_at", lambda node, points, pieces, _: true(node, points, pieces, "<="))


def totals_before_are_those_after(patch: Patch) -> None:
    """Running totals without the last summand have it all the same."""
    true = MemoryBag.running

    def running(bag: MemoryBag, keys: Any, order: str, sums: Any) -> MemoryBag:
        found = true(bag, keys, order, sums)
        after = {change_points.before_it(name): name for name in sums}
        return found.project([(name, Column(after.get(name, name))) for name in found.columns])

    patch.setattr(MemoryBag, "running", running)


def having_without_effect(patch: Patch) -> None:
    """HAVING is translated and not asked."""
    true = layers.having_above

    def having_above(select: Any, tables: Any) -> Any:
        above = true(select, tables)
        above.set("where", None)
        return above

    patch.setattr(layers, "having_above", having_above)


def duplicates_stay(patch: Patch) -> None:
    """DISTINCT and UNION keep all rows."""
    true = layers._distinct

    def distinct(select: Any) -> Any:
        above = true(select)
        above.set("group", None)
        return above

    patch.setattr(layers, "_distinct", distinct)


MISTAKES: list[Callable[[Patch], None]] = [
    conditions_forgotten,
    subtracted_is_added,
    second_input_forgotten,
    empty_groups_stay,
    counts_of_groups_ignored,
    values_counted_once,
    single_group_vanishes,
    left_over_for_shared,
    sides_confused,
    before_means_now,
    totals_before_are_those_after,
    having_without_effect,
    duplicates_stay,
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda each: each.__name__)
def test_mistakes_are_caught(mistake: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mistake(monkeypatch)
    assert any(_is_caught(seed) for seed in range(QUERIES)), "the queries are too tame, or the judge is blind"


def _is_caught(seed: int) -> bool:
    try:
        check(seed, 1 + seed % 4)
    except AssertionError:
        return True
    return False
