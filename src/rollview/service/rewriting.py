"""Queries answered from what views have stored, where that is the same (beyer2000 §6: the cheaper table).

A query is read as a view is, in parts. A part that asks for the same relations under the same conditions as a
stored view, in no more detail, follows from that view's state (`algebra.derivation`), whatever the two call
their columns and however much of the view has been applied. Parts that follow from nothing are computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from rollview.algebra.derivation import Derivation, derive
from rollview.algebra.relation import Table
from rollview.algebra.view import View, owner
from rollview.errors import RollviewError
from rollview.planning import UNTYPED, parse_view
from rollview.service.define import SparkTypes
from rollview.service.layout import Layout, empty_frames
from rollview.service.session import Session
from rollview.service.used_columns import used_tables
from rollview.service.view_sql import view_sql
from rollview.sql.tail import orders_by_outputs, split_tail

_NAME = "query"


@dataclass(frozen=True)
class Origin:
    """The stored view, or stage of one, that a part follows from, and how."""

    name: str
    derivation: Derivation


@dataclass(frozen=True)
class Rewritten:
    """A query in parts, some of which follow from stored views; `tail` orders and cuts its answer."""

    view: View
    layouts: Mapping[str, Layout]
    origins: Mapping[str, Origin]
    names: tuple[str, ...]
    tail: str

    @property
    def needed(self) -> tuple[View, ...]:
        """The parts that have to be computed or derived, each after those that it reads."""
        wanted = {self.view.name}
        for part in reversed(self.view.parts):
            if part.name in wanted and part.name not in self.origins:
                wanted.update(table.name for table in part.tables if not table.source)
        return tuple(part for part in self.view.parts if part.name in wanted)

    @property
    def read(self) -> tuple[Table, ...]:
        """Base tables and views that have to be read, beside those that parts follow from."""
        own = {part.name for part in self.view.parts}
        tables = (t for part in self.needed if part.name not in self.origins for t in part.tables)
        return tuple(dict.fromkeys(table for table in tables if table.source or table.name not in own))

    @property
    def derived(self) -> tuple[View, ...]:
        """The parts that follow from stored views."""
        return tuple(part for part in self.needed if part.name in self.origins)

    @property
    def instead(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """For each part that follows from a stored view, the view's name and the tables not read for it."""
        for part in self.derived:
            yield owner(self.origins[part.name].name), tuple(table.qualified for table in part.named_tables)


def parsed(sql: str, tables: Mapping[str, Table]) -> View | None:
    """The query as a view would be; None where that is not possible."""
    with suppress(RollviewError):
        return replace(parse_view(sql, tables.values(), _NAME, UNTYPED), stores_stages=True)
    return None


def rewrite(
    sql: str, tables: Mapping[str, Table], stored: Mapping[str, View], session: Session
) -> Rewritten | None:
    """The query with all that can be had from stored views; None if nothing can."""
    query, tail = split_tail(sql)
    rough = parsed(query, tables)
    if rough is None or not _origins(rough, stored):
        return None
    types = SparkTypes(session)
    with suppress(RollviewError):
        tables = {**tables, **used_tables(rough, tables.values())}
        view = parse_view(query, tables.values(), _NAME, types)
        types.of_stage(view)
        origins = _origins(view, stored)
        names = _names(query, tables, session)
        # Two columns of one name cannot be told apart in a tail.
        is_clear = not tail or len(set(names)) == len(names)
        if origins and is_clear and orders_by_outputs(tail, names):
            return Rewritten(view, types.layouts, origins, names, tail)
    return None


def _origins(view: View, stored: Mapping[str, View]) -> dict[str, Origin]:
    """For each part that follows from a stored view the best of them: one with sums, then one with less."""
    found: dict[str, Origin] = {}
    for part in view.parts:
        possible = [
            Origin(name, derivation)
            for name, each in stored.items()
            if (derivation := derive(part.root.form, each.root.form)) is not None
        ]
        if possible:
            found[part.name] = max(possible, key=lambda each: _worth(stored[each.name]))
    return found


def _worth(view: View) -> tuple[bool, int, int]:
    form = view.root.form
    assert form is not None
    return form.keys is not None, len(form.conditions), -len(form.columns)


def _names(query: str, tables: Mapping[str, Table], session: Session) -> tuple[str, ...]:
    """What Spark calls the columns of the query."""
    with view_sql(session.spark, query, empty_frames(session.spark, tables.values())) as frame:
        return tuple(frame.columns)
