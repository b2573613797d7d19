"""Routes: what a query can be read from, and how many rows that is (beyer2000 §1: the cheapest tables).

A route reads stored states, views and base tables. The rows of what is stored are known from the statistics
of its files. Those of a base table are what its source says without counting, or as many as the keys that
the query names; a table whose source does not say counts as larger than all others. The route that reads
the fewest rows is taken; of two that read as many, the one that asks fewer sources.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice, product
from math import prod

from rollview.algebra.derivation import OTHER_TABLES
from rollview.algebra.expression import TRUE, Expression, conjunction, rename
from rollview.algebra.node import Block
from rollview.algebra.relation import Table
from rollview.algebra.view import View, owner
from rollview.answer.rewriting import ParsedQuery, Rewritten, StoredState, obstacle, ways_of_parts
from rollview.errors import RollviewError
from rollview.planning import occurrences
from rollview.runtime.sites import Sites
from rollview.sources.source import IN, Comparison, EstimatesRows
from rollview.storage.stored_view import StoredViews
from rollview.views.lookup import comparisons_of, used_tables

_MOST_ROUTES = 512
"""So many combinations of the ways of a query's parts are compared."""


# What a query asks of base tables: the columns that it names and, where it says so, some of their rows.
#
# A query is read as a view is. Where a table stands in it once, the conditions on that table alone come
# before everything else that is done with it, so other rows of it need not be read.


@dataclass(frozen=True)
class AskedTable:
    """A base table with the columns that are needed, and what is known of the rows that are."""

    table: Table
    comparisons: tuple[Comparison, ...] = ()
    condition: Expression = TRUE

    @property
    def most_rows(self) -> int | None:
        """No more rows than this have the keys that are asked for; None if no keys are."""
        values = {each.column: len(each.values) for each in self.comparisons if each.operator in ("=", IN)}
        key = self.table.key
        return prod(values[name] for name in key) if key and values.keys() >= set(key) else None


def asked_as_written(
    view: View | None, names: Iterable[str], known: Mapping[str, Table]
) -> dict[str, AskedTable]:
    """For each of these base tables what a query asks of it; all, where the query could not be read."""
    tables = {name: known[name] for name in names}
    if view is None:
        return {name: AskedTable(table) for name, table in tables.items()}
    tables |= {name: table for name, table in used_tables(view, known.values()).items() if name in tables}
    written = Counter(occurrences(view.sql))
    once = {name for name in tables if written[name.lower()] == 1}
    return _asked([block for part in view.parts for block in part.blocks], tables, once)


def _asked(
    blocks: Iterable[Block], tables: Mapping[str, Table], once: Iterable[str]
) -> dict[str, AskedTable]:
    """What blocks ask of base tables: of one that is read in one place, rows that meet its conditions."""
    blocks = tuple(blocks)
    found = {name: AskedTable(table) for name, table in tables.items()}
    times = Counter(relation.table.qualified for block in blocks for relation in block.relations)
    for block in blocks:
        for position, relation in enumerate(block.relations):
            name = relation.table.qualified
            if name not in found or name not in once or times[name] != 1:
                continue
            own = dict(zip(relation.columns, relation.table.columns, strict=True))
            condition = rename(conjunction(block.local[position]), own.__getitem__)
            found[name] = AskedTable(found[name].table, comparisons_of(block, position), condition)
    return found


@dataclass(frozen=True)
class Estimates:
    """How many rows there are to read, without reading them."""

    stored: StoredViews
    sites: Sites
    _known: dict[str, int | None] = field(default_factory=dict)

    def of_view(self, name: str) -> int | None:
        """The rows of a view as it is stored; a state's, where that is what is read."""
        if name not in self._known:
            view = self.stored.open(name)
            bag = view.rows_bag if view.state_bag is None else view.state_bag
            self._known[name] = None if bag is None else sum(file.rows for file in bag.files())
        return self._known[name]

    def of_table(self, asked: AskedTable) -> int | None:
        """What the source of a table says; None if it does not know, or cannot be asked."""
        name = asked.table.qualified
        if name not in self._known:
            self._known[name] = self._reported(asked.table)
        estimate, most = self._known[name], asked.most_rows
        return most if estimate is None else estimate if most is None else min(estimate, most)

    def _reported(self, table: Table) -> int | None:
        with suppress(RollviewError):
            source = self.sites.source_at(table.site)
            if isinstance(source, EstimatesRows):
                # None of them distinguishes an empty table from one that it has not analyzed yet.
                return source.estimated_rows(table.name) or None
        return None


@dataclass(frozen=True)
class Route:
    """What is read for a query: views, or their states, and base tables."""

    views: tuple[str, ...]
    tables: Mapping[str, AskedTable]
    rewritten: Rewritten | None
    estimates: Estimates = field(repr=False, compare=False)

    @cached_property
    def rows(self) -> Mapping[str, int | None]:
        """The estimated rows of each input; sources are asked only if somebody wants to know."""
        rows = {name: self.estimates.of_view(name) for name in self.views}
        return rows | {name: self.estimates.of_table(asked) for name, asked in self.tables.items()}

    @cached_property
    def cost(self) -> tuple[int, int, int]:
        """Less is better: tables of unknown size, rows, tables."""
        known = [each for each in self.rows.values() if each is not None]
        return len(self.rows) - len(known), sum(known), len(self.tables)

    @property
    def uses(self) -> frozenset[str]:
        """The views that stand for tables."""
        return frozenset(owner(use.stored) for use in self.rewritten.uses) if self.rewritten else frozenset()

    @property
    def described(self) -> str:
        """How many rows it reads, for people."""
        unknown, rows, _ = self.cost
        text = f"{rows:,} row{'' if rows == 1 else 's'}"
        return text + (
            f" and {unknown} table{'' if unknown == 1 else 's'} of unknown size" if unknown else ""
        )

    def compared(self, taken: Route) -> str:
        """Why another one is taken."""
        return f"it reads {self.described}, the one that is taken {taken.described}"


@dataclass(frozen=True)
class Candidate:
    """A stored view, whether it stands for tables of a query, and why or why not."""

    view: str
    is_taken: bool
    why: str


def route_as_written(
    view: View | None, names: Iterable[str], known: Mapping[str, Table], estimates: Estimates
) -> Route:
    """Everything that the query names, as it names it."""
    names = tuple(names)
    asked = asked_as_written(view, [name for name in names if known[name].source], known)
    views = tuple(name for name in names if not known[name].source)
    return Route(views, asked, None, estimates)


def routes_of(query: ParsedQuery, stored: Sequence[StoredState], estimates: Estimates) -> list[Route]:
    """The routes that read stored states."""
    ways = ways_of_parts(query, stored)
    found: dict[tuple[object, ...], Route] = {}
    for chosen in islice(product(*ways.values()), _MOST_ROUTES):
        rewritten = Rewritten(query, dict(zip(ways, chosen, strict=True)))
        if rewritten.uses:
            route = _rewritten_route(rewritten, estimates)
            found.setdefault((rewritten.uses, route.views, tuple(route.tables)), route)
    return list(found.values())


def candidates(
    taken: Route, others: Iterable[tuple[Route, str]], query: View, stored: Iterable[StoredState]
) -> tuple[Candidate, ...]:
    """The stored views that have a table in common with a query, and why each is taken or not."""
    read = {table.qualified for part in query.parts for table in part.tables}
    why_not: dict[str, str] = {}
    for route, why in others:
        for name in route.uses:
            why_not.setdefault(name, why)
    found: dict[str, Candidate] = {}
    for state in stored:
        name = owner(state.name)
        if read.isdisjoint(table.qualified for table in state.view.named_tables):
            continue
        stands = [use for use in taken.rewritten.uses if owner(use.stored) == name] if taken.rewritten else []
        if stands:
            tables = " and ".join(dict.fromkeys(table for use in stands for table in use.tables))
            found[name] = Candidate(name, True, f"it stands for {tables}")
        elif name in why_not:
            found[name] = Candidate(name, False, why_not[name])
        else:
            obstacles = (obstacle(part.root, state) for part in query.parts)
            # That it joins other tables says less than anything else.
            reason = min(obstacles, key=lambda each: each.startswith(OTHER_TABLES))
            before = found.get(name)
            if before is None or before.why.startswith(OTHER_TABLES):
                found[name] = Candidate(name, False, reason or "it fits, and no route with it was considered")
    return tuple(found.values())


def _rewritten_route(rewritten: Rewritten, estimates: Estimates) -> Route:
    read = {table.qualified: table for table in rewritten.read}
    tables = {name: table for name, table in read.items() if table.source}
    views = [use.stored for use in rewritten.uses]
    views += [name for name, table in read.items() if not table.source]
    asked = _asked(rewritten.blocks, tables, tables)
    return Route(tuple(dict.fromkeys(views)), asked, rewritten, estimates)
