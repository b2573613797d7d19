"""The columns of base tables that a view uses. What happens to all others is none of its business."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rollview.algebra.relation import Table
from rollview.algebra.view import View
from rollview.catalog import ViewRecord
from rollview.planning import named_columns
from rollview.service.lookup import columns_to_read


def used_tables(view: View, known: Iterable[Table]) -> dict[str, Table]:
    """The base tables of a view, less the columns that it does not use; keys stay, and one column always.

    It uses what its text names, and what it shows by a `*`.
    """
    used = named_columns(view.exact_sql, known)
    for part in view.parts:
        for block in part.blocks:
            for position, relation in enumerate(block.relations):
                if relation.table.source:
                    own = used.setdefault(relation.table.qualified, set())
                    own.update(columns_to_read(block, position))
    tables = {table.qualified: table for table in view.named_tables if table.source}
    return {
        name: table.only({*used.get(name, ()), *table.key} or set(table.columns[:1]))
        for name, table in tables.items()
    }


def as_set_up(record: ViewRecord | None, sql: str, tables: Mapping[str, Table]) -> dict[str, Table]:
    """The tables that a view's text is about: as they were at its setup, if they still have all of that.

    So `SELECT *` goes on to mean what it meant, whatever columns have been added since.
    """
    if record is None or record.sql.strip() != sql.strip():
        return {}
    return {
        table.qualified: now.only(table.columns)
        for table in record.tables
        if (now := tables.get(table.qualified)) is not None and has_all(now, table)
    }


def has_all(now: Table, before: Table) -> bool:
    """Whether a table has all columns of another one, with the same types."""
    kinds = dict(zip(now.columns, now.types, strict=True))
    return all(kinds.get(name) == kind for name, kind in zip(before.columns, before.types, strict=True))


def to_capture(now: Table, before: Table | None) -> Table:
    """What is captured of a table: all that it has, less what its change log has under another type."""
    if before is None:
        return now
    kinds = dict(zip(before.columns, before.types, strict=True))
    pairs: Iterable[tuple[str, str]] = zip(now.columns, now.types, strict=True)
    return now.only({name for name, kind in pairs if kinds.get(name, kind) == kind})
