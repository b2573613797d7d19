"""Copies of relations that would make a view self-maintaining, and what they would save.

**Source:** zhuge1996 §7, improvement 3 (copies of the relations that are asked for most, or of portions of
them); sze2000 report §3 (auxiliary views, at the expense of their storage and upkeep).

A change of a relation looks up the relations that it is joined with. Where all that can be looked up is
copied, the columns that the view needs of the rows that pass its local conditions, no source is asked any
more. The copies are priced by what was measured since the view was loaded: a sub-query is saved if every
table that it asked for is copied, and a copy takes as long for a changed row, and for a step, as the view's
own stored rows took. Nothing is copied yet: this is the choice alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations

from rollview.algebra.expression import to_sql
from rollview.algebra.node import Block
from rollview.algebra.relation import Table
from rollview.algebra.view import View
from rollview.catalog import Catalog, CostLine, Lookups
from rollview.errors import RollviewError
from rollview.runtime.sites import Sites
from rollview.sources.source import EstimatesRows
from rollview.views.lookup import columns_to_read
from rollview.views.properties import is_full

_MOST_PATTERNS = 10
"""Of more kinds of sub-queries only those that took longest are weighed against each other."""
_REFRESHES = 100
_BYTES = {"boolean": 1, "smallint": 2, "int": 4, "date": 4, "float": 4, "decimal": 16, "string": 20}
_USUAL_BYTES = 8


@dataclass(frozen=True)
class Copy:
    """A part of a table: the columns that a view needs, of rows that pass the condition (empty: of all).

    `rows` is at most how many that are, and `bytes` about their size; None if the source does not say.
    `changes` is how many rows of the table changed since the view was loaded.
    """

    table: str
    columns: tuple[str, ...]
    condition: str = ""
    rows: int | None = None
    bytes: int | None = None
    changes: int = 0


@dataclass(frozen=True)
class Saving:
    """What copies of these tables would have saved since the view was loaded, and what they would have cost.

    `rows` were sent or found, `seconds` is the time of the sources, `upkeep_seconds` ours.
    """

    tables: tuple[str, ...]
    lookups: int = 0
    rows: int = 0
    seconds: float = 0.0
    upkeep_seconds: float = 0.0

    @property
    def net_seconds(self) -> float:
        return self.seconds - self.upkeep_seconds


@dataclass(frozen=True)
class CopyAdvice:
    """The copies that make a view self-maintaining, and by what was measured which of them pay.

    `together` is None as long as no look-up was measured; `cheapest` has no tables where no copy pays.
    """

    copies: tuple[Copy, ...]
    measured: int = 0
    together: Saving | None = None
    cheapest: Saving | None = None


def copies_of(view: View) -> tuple[Copy, ...]:
    """The parts of base tables that changes of other relations look up; none for a view that asks nobody."""
    if is_full(view):
        return ()
    relations: dict[str, list[tuple[Block, int]]] = {}
    for block in (block for part in view.parts for block in part.blocks if len(block.relations) > 1):
        for position, relation in enumerate(block.relations):
            if relation.table.source:
                relations.setdefault(relation.table.qualified, []).append((block, position))
    return tuple(_copy(name, places) for name, places in relations.items())


def _copy(table: str, places: Iterable[tuple[Block, int]]) -> Copy:
    """The part of a table that the relations at some places of blocks need."""
    conditions: dict[str, None] = {}
    needed: dict[str, None] = {}
    read: dict[str, None] = {}
    for block, position in places:
        relation = block.relations[position]
        own = dict(zip(relation.columns, relation.table.columns, strict=True))
        conditions[" AND ".join(to_sql(each) for each in block.local[position])] = None
        needed |= dict.fromkeys(own[name] for name in block.needed[position])
        read |= dict.fromkeys(columns_to_read(block, position))
    if len(conditions) == 1:
        # All rows of the copy pass, so that nothing has to be tested again.
        return Copy(table, tuple(needed), next(iter(conditions)))
    # Where one relation needs all rows, so does the copy.
    return Copy(table, tuple(read), "" if "" in conditions else " OR ".join(conditions))


def copy_advice(catalog: Catalog, sites: Sites, view: View) -> CopyAdvice | None:
    """The copies of a view that is set up, with their sizes as the sources estimate them, and their price."""
    if not (found := copies_of(view)):
        return None
    tables = {table.qualified: table for part in view.parts for table in part.tables if table.source}
    copies = tuple(_measured(catalog, sites, view, tables[each.table], each) for each in found)
    lookups = [each for part in view.stored_parts for each in catalog.works.lookups(part.name)]
    steps = sum(catalog.works.of_view(part.name).steps for part in view.stored_parts)
    return priced(copies, lookups, _apply_cost(catalog, view), steps)


def priced(copies: tuple[Copy, ...], lookups: Iterable[Lookups], apply: CostLine, steps: int) -> CopyAdvice:
    """What copies would have saved, by the sub-queries, the cost of applying rows, and the steps."""
    lookups = [each for each in lookups if each.number]
    if not lookups:
        return CopyAdvice(copies)
    upkeep = {
        each.table: apply.row_seconds * each.changes + apply.fixed_seconds * min(steps, each.changes)
        for each in copies
    }
    longest = sorted(lookups, key=lambda each: -each.seconds)[:_MOST_PATTERNS]
    choices = {
        frozenset[str]().union(*(each.tables for each in chosen))
        for number in range(len(longest) + 1)
        for chosen in combinations(longest, number)
    }
    savings = [_saving(sorted(choice), lookups, upkeep) for choice in choices]
    together = _saving([each.table for each in copies], lookups, upkeep)
    best = max([*savings, together], key=lambda each: (each.net_seconds, -len(each.tables)))
    return CopyAdvice(copies, sum(each.number for each in lookups), together, best)


def _saving(tables: Iterable[str], lookups: Iterable[Lookups], upkeep: Mapping[str, float]) -> Saving:
    tables = tuple(tables)
    saved = [each for each in lookups if set(each.tables) <= set(tables)]
    return Saving(
        tables,
        sum(each.number for each in saved),
        sum(each.rows_sent + each.rows_found for each in saved),
        sum(each.seconds for each in saved),
        sum(upkeep.get(each, 0.0) for each in tables),
    )


def _measured(catalog: Catalog, sites: Sites, view: View, table: Table, copy: Copy) -> Copy:
    """A copy with its estimated size and the changes that it would have followed."""
    rows = None
    with suppress(RollviewError):
        source = sites.source_at(table.site)
        if isinstance(source, EstimatesRows):
            # None of them distinguishes an empty table from one that it has not analyzed yet.
            rows = source.estimated_rows(table.name) or None
    types = dict(zip(table.columns, table.types, strict=False))
    width = sum(_width(types.get(name, "")) for name in copy.columns)
    loaded, last = catalog.views.get(view.name).loaded_csn, catalog.history.last_csn()
    kept = max(loaded, catalog.standing().first_csn)
    changes = catalog.history.touched(table.qualified, kept, last)
    if last > kept > loaded:
        # The oldest transactions are forgotten; they are taken to have been like the others.
        changes = changes * (last - loaded) // (last - kept)
    size = None if rows is None else rows * width
    return Copy(copy.table, copy.columns, copy.condition, rows, size, changes)


def _width(spark_type: str) -> int:
    """About how many bytes a value of a Spark SQL type takes."""
    return _BYTES.get(spark_type.partition("(")[0].lower(), _USUAL_BYTES)


def _apply_cost(catalog: Catalog, view: View) -> CostLine:
    """What applying rows to the view has cost, by its last refreshes."""
    cost = CostLine()
    for each in reversed(catalog.views.refreshes(view.name, _REFRESHES, ("incremental",))):
        if each.rows >= 0:
            cost = cost.with_sample(each.rows, each.seconds)
    return cost
