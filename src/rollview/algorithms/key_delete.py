"""key_delete and key_delete*: tuples that stem from given base tuples are taken out.

**Source.** zhuge1996 §5.2 (key_delete), §6 (key_delete*), Algorithms 1 to 3 ("without adding duplicate
tuples"). **Assumes** that the view keeps the key of every relation (§5.1), which `admits` in the algorithms
that use it makes sure of, so that a view is a set.

**Deviations.** key_delete* compares key and non-key attributes, but a view tuple need not show the non-key
ones. Two versions of a base tuple can give equal view tuples (the join went through an attribute that is not
shown, and both ends were changed), so what is shown does not distinguish them. `unprojected` therefore gives
Delta's tuples before Π_proj: every attribute that the view reads. Attributes that it never reads cannot
matter, so tuples that agree on all others are the same tuple.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

from rollview.algebra.bag import Bag, keep
from rollview.algebra.expression import Column, call, columns_of, conjunction
from rollview.algebra.node import Block

B = TypeVar("B", bound=Bag)


def key_delete(block: Block, rows: B, position: int, deleted: B) -> B:
    """The rows of the view that do not stem from the deleted rows of one relation."""
    if rows.has_no_rows:
        return rows
    key = block.relations[position].key
    shown_as = {
        expression.name: name for name, expression in block.projection if isinstance(expression, Column)
    }
    deleted_keys = deleted.distinct(key)
    stem = rows.join(deleted_keys, [(shown_as[name], name) for name in key]).project(keep(rows.columns))
    return rows.plus(stem.negate()).net_effect().materialized()


def key_delete_star(block: Block, rows: B, position: int, deleted: B) -> B:
    """The unprojected rows that do not have exactly these tuples of one relation in them.

    A non-key attribute may be NULL, and then matches NULL.
    """
    if rows.has_no_rows:
        return rows
    names = attributes_read(block, position)
    marked = [(f"{name}'", Column(name)) for name in names]
    tuples = deleted.distinct(names).project(marked)
    key = [(name, f"{name}'") for name in block.relations[position].key]
    equal = conjunction(tuple(call("<=>", Column(name), Column(f"{name}'")) for name in names))
    stem = rows.join(tuples, key, equal).project(keep(rows.columns))
    return rows.plus(stem.negate()).net_effect().materialized()


def without_duplicates(rows: B, more: B) -> B:
    """Both together, no tuple twice."""
    return rows if more.has_no_rows else rows.plus(more).distinct(rows.columns).materialized()


@lru_cache(maxsize=1024)
def unprojected(block: Block) -> Block:
    """The same block, showing every attribute that it reads instead of its projection."""
    names = [name for position in range(len(block.relations)) for name in attributes_read(block, position)]
    return replace(block, projection=keep(names))


@lru_cache(maxsize=4096)
def attributes_read(block: Block, position: int) -> tuple[str, ...]:
    """The attributes of a relation that are joined on, tested or shown."""
    tested = {name for condition in block.local[position] for name in columns_of(condition)}
    tested.update(block.needed[position])
    return tuple(name for name in block.relations[position].columns if name in tested)
