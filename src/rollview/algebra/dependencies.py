"""Functional dependencies inside a block: which columns fix which others in every row of the join.

They come from declared keys (a key fixes its relation's row), from edges and equalities (equal columns fix
each other), and from conditions `column = constant` (fixed by nothing). sze2000 (report §4.2, §4.3) decides
with them when the view itself can answer a sub-query; zhuge1996 (§5.1) demands keys in the projection.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from functools import lru_cache
from typing import Protocol

from rollview.algebra.bag import Output
from rollview.algebra.expression import Call, Column, Expression, Literal
from rollview.algebra.relation import Edge, Relation

Dependency = tuple[frozenset[str], frozenset[str]]
"""The first columns fix the second ones."""


class Joined(Hashable, Protocol):
    """The facts about a block: relations, the equalities that join them, conditions, shown columns."""

    @property
    def relations(self) -> tuple[Relation, ...]: ...
    @property
    def edges(self) -> tuple[Edge, ...]: ...
    @property
    def local(self) -> tuple[tuple[Expression, ...], ...]: ...
    @property
    def projection(self) -> tuple[Output, ...]: ...


def closure(block: Joined, columns: Iterable[str]) -> frozenset[str]:
    """All columns of the block whose values the given columns fix, themselves included."""
    known = set(columns)
    waiting = list(_dependencies(block))
    grows = True
    while grows:
        ready = [fixed for fixing, fixed in waiting if fixing <= known]
        waiting = [dependency for dependency in waiting if not dependency[0] <= known]
        grows = bool(ready)
        known.update(*ready)
    return frozenset(known)


def determines(block: Joined, i: int, j: int) -> bool:
    """Whether a row of relation `i` fixes the row of relation `j` that it is joined with.

    Both need a declared key: without one, equal rows of `j` could not be distinguished.
    """
    key, other = block.relations[i].key, block.relations[j].key
    return bool(key) and bool(other) and closure(block, key).issuperset(other)


def view_key(block: Joined) -> tuple[str, ...] | None:
    """Output columns, none of them needless, that fix a row of every relation; None if there are none such.

    A view row then comes from exactly one combination of rows. Columns of declared keys are preferred.
    """
    keys = {column for relation in block.relations for column in relation.key}
    if not all(relation.key for relation in block.relations):
        return None
    chosen: dict[str, str] = {}
    for name, expression in block.projection:
        if isinstance(expression, Column) and expression.name not in chosen.values():
            chosen[name] = expression.name
    if not keys <= closure(block, chosen.values()):
        return None
    # Later columns are dropped first, and columns of keys only after all others.
    latest_first = list(chosen)[::-1]
    latest_first.sort(key=lambda name: chosen[name] in keys)
    for name in latest_first:
        rest = [column for other, column in chosen.items() if other != name]
        if keys <= closure(block, rest):
            del chosen[name]
    return tuple(chosen)


def keeps_keys(block: Joined) -> bool:
    """Whether the projection itself has the key of every relation, as zhuge1996 §5.1 demands.

    A column that the join makes equal to a key column does not count: key_delete reads the key by name.
    """
    shown = {expression.name for _, expression in block.projection if isinstance(expression, Column)}
    return all(relation.key and shown.issuperset(relation.key) for relation in block.relations)


@lru_cache(maxsize=1024)
def shown_as(block: Joined) -> dict[str, str]:
    """For every column whose value the view shows, the name it has there; equal columns share one."""
    names = {expression.name: name for name, expression in block.projection if isinstance(expression, Column)}
    grows = True
    while grows:
        grows = False
        for edge in block.edges:
            for one, other in (
                (edge.left_column, edge.right_column),
                (edge.right_column, edge.left_column),
            ):
                if one in names and other not in names:
                    names[other] = names[one]
                    grows = True
    return names


def refers(block: Joined, i: int, j: int) -> bool:
    """Whether `i` is joined with `j` along a declared foreign key and by nothing else.

    Then a row of `i` finds exactly one row of `j` (none, if a column of the foreign key is NULL), and a
    new row of `j` finds no row of `i` yet (sze2000 report §4.2). Local conditions on `j` may still drop it.
    """
    one, other = block.relations[i], block.relations[j]
    joined = {
        (edge.left_column, edge.right_column) for edge in block.edges if (edge.left, edge.right) == (i, j)
    }
    joined |= {
        (edge.right_column, edge.left_column) for edge in block.edges if (edge.right, edge.left) == (i, j)
    }
    return any(
        foreign_key.references == other.table.qualified
        and len(foreign_key.columns) == len(other.key) > 0
        and joined == set(zip(map(one.column, foreign_key.columns), other.key, strict=True))
        for foreign_key in one.table.foreign_keys
    )


@lru_cache(maxsize=1024)
def _dependencies(block: Joined) -> tuple[Dependency, ...]:
    found: list[Dependency] = []
    for relation in block.relations:
        if relation.key:
            found.append((frozenset(relation.key), frozenset(relation.columns)))
    for one, other in _equalities(block):
        found += [(frozenset((one,)), frozenset((other,))), (frozenset((other,)), frozenset((one,)))]
    found += [(frozenset(), frozenset((column,))) for column in _constants(block)]
    return tuple(found)


def _equalities(block: Joined) -> Iterator[tuple[str, str]]:
    """Pairs of columns that are equal in every row of the join."""
    for edge in block.edges:
        yield edge.left_column, edge.right_column
    for condition in (condition for conditions in block.local for condition in conditions):
        match condition:
            case Call(function="=", arguments=(Column(name=one), Column(name=other))):
                yield one, other


def _constants(block: Joined) -> Iterator[str]:
    """Columns that a local condition equates with a constant. `= NULL` lets no row pass, so it fixes too."""
    for condition in (condition for conditions in block.local for condition in conditions):
        match condition:
            case Call(
                function="=", arguments=(Column(name=name), Literal()) | (Literal(), Column(name=name))
            ):
                yield name
