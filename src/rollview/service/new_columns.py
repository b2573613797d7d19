"""Columns that came to a table after `setup`, and that a view with `SELECT *` does therefore not show.

`run` asks the sources of such views for their tables, with the other chores that it has once a minute. The
catalog keeps what they said, so that `status` asks nobody.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from rollview.algebra.relation import Table
from rollview.algebra.view import is_stage
from rollview.catalog import Catalog, ViewRecord
from rollview.errors import RollviewError
from rollview.planning import starred_names
from rollview.service.sites import Sites


@dataclass(frozen=True)
class ColumnWatch:
    """Notes which columns the tables have at their sources."""

    catalog: Catalog
    sites: Sites

    def look(self) -> None:
        """Asks the sources of views that say `SELECT *`, and no others."""
        records = [record for name, record in self.catalog.views().items() if not is_stage(name)]
        sources = {table.source for record in records for table in _starred(record)}
        found: dict[str, tuple[str, ...]] = {}
        for name in sorted(sources & self.sites.sources.keys()):
            # A source that does not answer is told by capture.
            with suppress(RollviewError):
                found |= {table.qualified: table.columns for table in self.sites.sources[name].tables()}
        known = self.catalog.present_columns()
        new = {name: found[name] for name in known.keys() & found.keys() if known[name] != found[name]}
        if new:
            self.catalog.note_columns(new)


def new_columns(record: ViewRecord, present: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """The columns that the view would show if it were set up today, as `source.table.column`."""
    return tuple(
        f"{table.qualified}.{column}"
        for table in _starred(record)
        for column in present.get(table.qualified, ())
        if column not in table.columns
    )


def _starred(record: ViewRecord) -> Iterator[Table]:
    """The base tables of which a view shows all columns."""
    names = {name.lower() for name in starred_names(record.sql)}
    return (table for table in record.tables if table.qualified.lower() in names)
