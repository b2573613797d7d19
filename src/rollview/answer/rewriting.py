"""Queries answered from what views have stored, where that is the same (beyer2000 §1, §6).

A query is read as a view is, in parts, and each part is a tree of operators over blocks. The state of a
stored view, or of one of its stages, takes the place of relations of a block, or of the rows below groups,
where `algebra.derivation` says that it may; what is left of the block joins it like any other table. One
state after the other is put in, so that several of them stand in one query. All ways are found here;
`routes` chooses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

from rollview.algebra.derivation import Match, match_of_sums, matches, same_sums
from rollview.algebra.expression import Column, rename
from rollview.algebra.node import Block, Node
from rollview.algebra.relation import Relation, Table, column_of
from rollview.algebra.view import STAGE_MARK, View
from rollview.errors import RollviewError
from rollview.operators.draft import Draft
from rollview.planning import UNTYPED, parse_view
from rollview.runtime.session import Session
from rollview.sql.text.order_and_limit import orders_by_outputs, split_order_and_limit
from rollview.views.content import view_sql
from rollview.views.define import SparkTypes
from rollview.views.layout import Layout, empty_frames
from rollview.views.lookup import used_tables

_STATE = f"{STAGE_MARK}state"

_MOST_WAYS = 64
"""So many ways to put stored states into one part of a query are looked at."""


@dataclass(frozen=True)
class StoredState:
    """What is stored of a view, or of one of its stages: the columns of its state, and those of its rows."""

    view: View
    columns: tuple[tuple[str, str], ...]
    shown: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """The view, or the stage."""
        return self.view.name

    @cached_property
    def table(self) -> Table:
        """The state as a table that a block reads."""
        return _table(state_name(self.name), self.columns)

    @property
    def rows(self) -> Table:
        """The rows that a reader sees, as such a table."""
        return _table(self.name, self.shown)


@dataclass(frozen=True)
class Use:
    """A stored state in the place of tables, or the rows that it shows; `reads` is what blocks call it."""

    stored: str
    reads: str
    tables: tuple[str, ...]


@dataclass(frozen=True)
class Way:
    """One way to compute a part of a query: its tree, and the stored states in it."""

    root: Node
    uses: tuple[Use, ...] = ()


@dataclass(frozen=True)
class ParsedQuery:
    """A query in parts, with the types of all that they read; `tail` orders and cuts its answer."""

    view: View
    layouts: Mapping[str, Layout]
    names: tuple[str, ...]
    tail: str


@dataclass(frozen=True)
class Rewritten:
    """A query with one way for each of its parts."""

    query: ParsedQuery
    ways: Mapping[str, Way]

    @cached_property
    def needed(self) -> tuple[View, ...]:
        """The parts that have to be computed, each after those that it reads."""
        wanted = {self.query.view.name}
        for part in reversed(self.query.view.parts):
            if part.name in wanted:
                wanted.update(table.name for table in self._tables_of(part) if not table.source)
        return tuple(part for part in self.query.view.parts if part.name in wanted)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """What is computed from what is read."""
        return tuple(block for part in self.needed for block in self.ways[part.name].root.blocks)

    @cached_property
    def uses(self) -> tuple[Use, ...]:
        """The stored states that parts are computed from."""
        uses = dict.fromkeys(use for part in self.needed for use in self.ways[part.name].uses)
        read = {table.qualified for part in self.needed for table in self._tables_of(part)}
        return tuple(use for use in uses if use.reads in read)

    @property
    def read(self) -> tuple[Table, ...]:
        """Base tables and views that have to be read, beside those states."""
        own = {part.name for part in self.query.view.parts}
        own |= {use.reads for use in self.uses if use.reads != use.stored}
        tables = dict.fromkeys(table for part in self.needed for table in self._tables_of(part))
        return tuple(table for table in tables if table.source or table.name not in own)

    def _tables_of(self, part: View) -> Iterator[Table]:
        for block in self.ways[part.name].root.blocks:
            for relation in block.relations:
                yield relation.table


def state_name(stored: str) -> str:
    """What blocks call the state of a view."""
    return f"{stored}{_STATE}"


def parsed(sql: str, tables: Mapping[str, Table]) -> View | None:
    """The query as a view would be; None where that is not possible."""
    with suppress(RollviewError):
        return replace(parse_view(sql, tables.values(), _free_name(tables), UNTYPED), stores_stages=True)
    return None


def _free_name(tables: Iterable[str]) -> str:
    """What a query is called: nothing that it could read has this name."""
    name, taken = "query", {each.lower() for each in tables}
    while name in taken:
        name += "_"
    return name


def parsed_query(
    sql: str, tables: Mapping[str, Table], stored: Iterable[StoredState], session: Session
) -> ParsedQuery | None:
    """The query in parts, with types; None where it cannot be read so, or no stored state has its tables."""
    query, tail = split_order_and_limit(sql)
    rough = parsed(query, tables)
    if rough is None or not any(_has_its_tables(rough, each) for each in stored):
        return None
    types = SparkTypes(session)
    with suppress(RollviewError):
        tables = {**tables, **used_tables(rough, tables.values())}
        view = parse_view(query, tables.values(), rough.name, types)
        types.of_stage(view)
        names = _names(query, tables, session)
        # Two columns of one name are ambiguous in a tail.
        is_clear = not tail or len(set(names)) == len(names)
        if is_clear and orders_by_outputs(tail, names):
            return ParsedQuery(view, types.layouts, names, tail)
    return None


def _has_its_tables(view: View, stored: StoredState) -> bool:
    """Whether a query reads all tables of a stored state somewhere, or of one may be a stage."""
    read = {table.qualified for table in view.named_tables}
    return all(table.qualified in read for table in stored.view.named_tables)


def _names(query: str, tables: Mapping[str, Table], session: Session) -> tuple[str, ...]:
    """The names that Spark gives to the columns of the query."""
    with view_sql(session.spark, query, empty_frames(session.spark, tables.values())) as frame:
        return tuple(frame.columns)


def _table(name: str, columns: tuple[tuple[str, str], ...]) -> Table:
    return Table("", name, tuple(each for each, _ in columns), types=tuple(kind for _, kind in columns))


def ways_of_parts(query: ParsedQuery, stored: Sequence[StoredState]) -> dict[str, tuple[Way, ...]]:
    """For each part of a query the ways to compute it."""
    found: dict[str, tuple[Way, ...]] = {}
    same: dict[str, StoredState] = {}
    for part in query.view.parts:
        first = [Way(part.root)]
        renamed = _with_stored_stages(part.root, same)
        if renamed.root != part.root:
            first.append(renamed)
        shown = query.layouts[part.name].columns
        alike = [each for each in stored if each.shown == shown and _is_same(renamed.root, each.view.root)]
        for each in alike[:1]:
            same[part.name] = each
            first.append(_shown(each))
        found[part.name] = ways_of(first, stored)
    return found


def _with_stored_stages(root: Node, same: Mapping[str, StoredState]) -> Way:
    """A part that reads stages of stored views instead of stages of the query that are the same."""
    blocks: list[Block] = []
    used: dict[str, Use] = {}
    for block in root.blocks:
        relations = list(block.relations)
        for place, each in enumerate(relations):
            if (stage := same.get(each.table.qualified)) is not None:
                relations[place] = replace(each, table=replace(each.table, name=stage.name))
                used[stage.name] = _use_of_rows(stage)
        blocks.append(replace(block, relations=tuple(relations)))
    return Way(root.with_blocks(iter(blocks)), tuple(used.values()))


def _is_same(root: Node, stored: Node) -> bool:
    """Whether two parts are the same, up to the names of relations."""
    mine, theirs = _linear(root), _linear(stored)
    is_known = bool(mine.terms) and same_sums(mine.terms, theirs.terms)
    return is_known and (root.is_linear if stored.is_linear else stored.with_rows(mine) == root)


def _linear(root: Node) -> Node:
    """All that is linear below an operator, or itself."""
    return root if root.is_linear else root.inputs[0]


def _shown(stored: StoredState) -> Way:
    """The rows that a stored view shows."""
    relation = Relation("stored 0", stored.rows)
    outputs = tuple(
        (name, Column(inside)) for (name, _), inside in zip(stored.shown, relation.columns, strict=True)
    )
    return Way(Draft((relation,), (), outputs).node(), (_use_of_rows(stored),))


def _use_of_rows(stored: StoredState) -> Use:
    tables = tuple(table.qualified for table in stored.view.named_tables)
    return Use(stored.name, stored.name, tables)


def ways_of(first: Sequence[Way], stored: Sequence[StoredState]) -> tuple[Way, ...]:
    """These ways, and those with more stored states; those with most come first."""
    found = {way.root: way for way in first}
    waiting = list(first)
    fitting = [state for state in stored if any(_steps(way, state)[0] for way in first)]
    while waiting and len(found) < _MOST_WAYS:
        way = waiting.pop(0)
        # What does not fit the whole part fits no smaller rest of it.
        for state in fitting:
            for each in _steps(way, state)[0]:
                if each.root not in found:
                    found[each.root] = each
                    waiting.append(each)
    return tuple(sorted(found.values(), key=lambda way: len(way.uses), reverse=True))


def obstacle(root: Node, stored: StoredState) -> str:
    """Why a stored state does not serve to compute a part; empty if it does."""
    return _steps(Way(root), stored)[1]


def _steps(way: Way, state: StoredState) -> tuple[list[Way], str]:
    """The ways with one more use of a stored state; if there is none, why not."""
    form, own = state.view.root.form, way.root.form
    if form is None:
        return _sum_steps(way, state)
    alias = _free_alias(way.root)
    found: list[Way] = []
    reason = ""
    if form.keys is not None:
        below = way.root.inputs
        if own is None or own.keys is None or below[0].blocks != below:
            return [], "it has sums of groups, and rows are needed"
        some, reason = matches(own, form, lambda name: Column(column_of(alias, name)))
        for match in some:
            (block,) = way.root.blocks
            over = way.root.over_sums(_joined(block, match, state, alias))
            found.append(_used(way, block, over, match, state))
        return found, "" if found else reason
    blocks = way.root.blocks
    for place, block in enumerate(blocks):
        some, why = matches(block.form, form, lambda name: Column(column_of(alias, name)))
        for match in some:
            others = (*blocks[:place], _joined(block, match, state, alias), *blocks[place + 1 :])
            found.append(_used(way, block, way.root.with_blocks(iter(others)), match, state))
        reason = why or reason
    return found, "" if found else reason


def _sum_steps(way: Way, state: StoredState) -> tuple[list[Way], str]:
    """The way with the whole sum of joins below it from one that is stored; if it cannot be, why not."""
    part = _linear(way.root)
    if not state.view.root.terms:
        return [], f"it has more than joins and groups of them ({state.view.root.name})"
    if not part.terms:
        return [], "it is a sum of joins, and what is needed is none"
    match, reason = match_of_sums(part.terms, state.view.root.terms)
    if match is None:
        return [], reason
    relation = Relation(_free_alias(way.root), state.table)
    conditions = tuple(rename(each, relation.column) for each in match.conditions)
    outputs = tuple((name, rename(each, relation.column)) for name, each in match.columns.items())
    tables = tuple(table.qualified for table in state.view.named_tables)
    root = way.root.with_rows(Draft((relation,), conditions, outputs).node())
    return [Way(root, (*way.uses, Use(state.name, state_name(state.name), tables)))], ""


def _free_alias(root: Node) -> str:
    """An alias that no relation has, in any case, nor begins with: columns are distinguished by it."""
    taken = {relation.alias.lower() for block in root.blocks for relation in block.relations}
    number = 1
    while any(each.startswith(f"stored {number}") for each in taken):
        number += 1
    return f"stored {number}"


def _joined(block: Block, match: Match, state: StoredState, alias: str) -> Node:
    """A block with a stored state in the place of relations."""
    others = tuple(each for each in block.relations if each.alias not in match.covered)
    relations = (Relation(alias, state.table), *others)
    return Draft(relations, match.conditions, tuple(match.columns.items())).node()


def _used(way: Way, block: Block, root: Node, match: Match, state: StoredState) -> Way:
    covered = (each.table.qualified for each in block.relations if each.alias in match.covered)
    return Way(root, (*way.uses, Use(state.name, state_name(state.name), tuple(dict.fromkeys(covered)))))
