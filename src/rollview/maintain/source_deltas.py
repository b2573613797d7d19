"""View deltas that sources make themselves (policy ipda): what they are asked for, and what came of it.

The delta of a block that joins tables of one source is made there, in the transactions of the writers, and
captured as a table beside theirs. A statement's snapshot is translated to transactions by csn here, so
that the algorithm knows what it did not see.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rollview.algebra.expression import Column, call
from rollview.algebra.history import CSN
from rollview.algebra.node import Block
from rollview.algebra.relation import Table
from rollview.algebra.view import View
from rollview.algorithms.beyer2000 import source_propagation
from rollview.algorithms.beyer2000.source_propagation import is_made_at_source
from rollview.algorithms.effects import MadeDelta, Statement
from rollview.bags import PlacedBag
from rollview.catalog import Catalog
from rollview.maintain.kept_at_source import applied_obstacle, applied_views
from rollview.runtime.session import Session
from rollview.runtime.sites import Sites
from rollview.sources.deltas import (
    MARK,
    RELATION,
    SIGN,
    DeltaDefinition,
    DeltaRelation,
    EqualColumns,
    MakesDeltas,
    column_at,
)
from rollview.sources.source import Comparison, Source
from rollview.storage.lake_rows import read_range
from rollview.storage.lake_tables import LakeTables
from rollview.views.lookup import columns_to_read, comparisons_of
from rollview.views.properties import AT_SOURCE, policy_of


def definitions_of(views: Iterable[View], sources: Mapping[str, Source]) -> dict[str, list[DeltaDefinition]]:
    """The deltas that sources make for views, by source."""
    found: dict[str, list[DeltaDefinition]] = {}
    for view in views:
        for number, block in enumerate(view.blocks if policy_of(view) in AT_SOURCE else ()):
            name = block.relations[0].table.source
            is_wanted = policy_of(view) == "immediate" or is_made_at_source(block)
            # A source may have left the project.
            if is_wanted and name in sources:
                found.setdefault(name, []).append(definition_of(view, number, sources[name]))
    return found


def definition_of(view: View, number: int, source: Source) -> DeltaDefinition:
    """The definition of the join that a source makes for one block of a view."""
    block = view.blocks[number]
    relations = tuple(
        DeltaRelation(
            relation.table, columns_to_read(block, position), tuple(_pushed(block, position, source))
        )
        for position, relation in enumerate(block.relations)
    )
    own = {
        inside: name
        for relation in block.relations
        for inside, name in zip(relation.columns, relation.table.columns, strict=True)
    }
    equalities = tuple(
        EqualColumns(edge.left, own[edge.left_column], edge.right, own[edge.right_column])
        for edge in block.edges
    )
    applied = None
    if policy_of(view) == "immediate":
        applied = applied_views(view)[number]
        if number == len(view.blocks) - 1:
            before = tuple(definition_of(view, each, source) for each in range(number))
            applied = replace(applied, before=before)
    return DeltaDefinition(f"{view.name}_{number}" if number else view.name, relations, equalities, applied)


def _pushed(block: Block, position: int, source: Source) -> Iterator[Comparison]:
    table = block.relations[position].table
    types = dict(zip(table.columns, table.types, strict=True))
    for each in comparisons_of(block, position):
        if source.can_push(each, types[each.column]):
            yield each


def delta_tables(views: Iterable[View], sources: Mapping[str, Source]) -> dict[str, list[Table]]:
    """The tables that sources append these deltas to, by source."""
    return {
        name: [source.delta_table(each) for each in definitions if each.is_captured]
        for name, definitions in definitions_of(views, sources).items()
        if isinstance(source := sources[name], MakesDeltas)
    }


def tables_by_source(views: Iterable[View]) -> dict[str, list[Table]]:
    """The base tables of views, each once, by source."""
    found: dict[str, dict[str, Table]] = {}
    for table in (table for view in views for table in view.tables if table.source):
        found.setdefault(table.source, {})[table.qualified] = table
    return {name: list(tables.values()) for name, tables in found.items()}


def captured_tables(views: Sequence[View], sources: Mapping[str, Source]) -> dict[str, list[Table]]:
    """The tables to capture for views, by source: those that they read, and deltas that are made for them."""
    made = delta_tables(views, sources)
    return {name: [*tables, *made.get(name, ())] for name, tables in tables_by_source(views).items()}


_SHOWN = "`rollview simulate --policy triggers` shows how"
_NO_WRITERS = "writers compute deltas at postgres alone"
_ELSEWHERE = {
    "mariadb": "it is not built there: triggers do not run for rows that a foreign key's action changes, and"
    f" read either an older state, which misses rows, or rows that they lock, so that writers wait; {_SHOWN}",
    "sqlite": "it is not built there: ipda would save nothing, as triggers write its log anyway; immediate"
    f" would miss rows where a foreign key's action changes two tables of a join; {_SHOWN}",
}
"""Why the triggers of other servers do not keep what the policies promise."""


def obstacle_of(view: View, sources: Mapping[str, Source]) -> str:
    """Why writers cannot do what the policy of a view asks of them; empty if they can."""
    names = {table.source for table in view.named_tables}
    if len(names) > 1:
        return "its tables are at several sources, and no transaction sees more than one"
    if policy_of(view) == "immediate":
        if any(not table.source for table in view.named_tables):
            return "it reads another view, which is not at a source"
        if reason := applied_obstacle(view):
            return reason
    for name, definitions in definitions_of(view.stored_parts, sources).items():
        source = sources[name]
        if not isinstance(source, MakesDeltas):
            return f"source {name} is of type {source.kind}: {_ELSEWHERE.get(source.kind, _NO_WRITERS)}"
        for each in definitions:
            if reason := source.delta_obstacle(each):
                return reason
    return ""


@dataclass(frozen=True)
class SourceDeltas:
    """The captured deltas of writers."""

    catalog: Catalog
    tables: LakeTables
    sites: Sites
    session: Session

    def read(self, view: View, number: int, after: int, upto: int) -> MadeDelta[PlacedBag] | None:
        """The delta of a block that writers made in after < csn ≤ upto; None if it is not captured."""
        block = view.blocks[number]
        source = self.sites.sources[block.relations[0].table.source]
        if not isinstance(source, MakesDeltas):
            return None
        definition = definition_of(view, number, source)
        table = self.catalog.captured.tables().get(source.delta_table(definition).qualified)
        if table is None:
            return None
        made = read_range(self.session, self.tables.change_log(table), after, upto).materialized()
        marks = made.select(call("NOT", call("IS NULL", Column(MARK))))
        found = marks.project(((CSN, Column(CSN)), (MARK, Column(MARK)))).table().to_pylist()
        statements, since = self._statements(block, source, [(each[CSN], each[MARK]) for each in found])
        names = list(dict.fromkeys(relation.table.qualified for relation in block.relations))
        changed = self.catalog.history.touching(names, min(since, after), upto)
        outputs = [
            (block.relations[place].column(name), Column(column_at(each)))
            for each, (place, name) in enumerate(definition.columns)
        ]
        rows = made.select(call("IS NULL", Column(MARK))).project(
            (
                *outputs,
                (CSN, Column(CSN)),
                (source_propagation.RELATION, Column(RELATION)),
                (source_propagation.SIGN, Column(SIGN)),
            )
        )
        return MadeDelta(rows, statements, changed)

    def _statements(
        self, block: Block, source: MakesDeltas, marks: list[tuple[int, str]]
    ) -> tuple[tuple[Statement, ...], int]:
        """The statements behind marks, and a csn up to which all of them have seen everything."""
        if not marks:
            return (), self.catalog.history.last_csn()
        site = block.relations[0].table.site
        upto = max(csn for csn, _ in marks)
        first = source.first_unseen([mark for _, mark in marks])
        parts = self.catalog.history.of_site(site, first, upto)
        csns, txids = [csn for csn, _ in parts], [txid for _, txid in parts]
        places = {csn: place for place, csn in enumerate(csns)}
        by_txid = dict(zip(txids, csns, strict=True))
        read = source.read_marks([(mark, places.get(csn, 0)) for csn, mark in marks], txids)
        groups = Counter((csn, each.group) for (csn, _), each in zip(marks, read, strict=True))
        names = [relation.table.qualified for relation in block.relations]
        known_since = self.catalog.history.kept_since()
        truncated = {each.csn for each in self.catalog.history.truncations(names)}
        statements = []
        for (csn, _), each in zip(marks, read, strict=True):
            unseen = frozenset(by_txid[txid] for txid in each.unseen)
            if groups[csn, each.group] > 1:
                unseen |= {csn}
            # The changes that it did not see have to be known, row by row.
            if each.began >= known_since and truncated.isdisjoint(unseen):
                statements.append(Statement(csn, names[each.relation], unseen))
        return tuple(statements), min([csns[0] if csns else upto, upto]) - 1
