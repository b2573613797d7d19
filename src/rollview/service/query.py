"""query: an answer whose inputs, views and relations alike, are all as of one csn, or no answer.

Every view is rolled, for this answer only, to the newest csn that all of them can be read at, and every
relation is read and aligned to the same csn (beyer2000 §6: valid together, here by rolling the tables rather
than by choosing between stale ones). Where there is no such csn, the query is refused. The answer says
since when it is valid, and until when if something has changed after it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame

from rollview.algebra.relation import Table
from rollview.algebra.valid_time import ValidTime, valid_together
from rollview.catalog import Catalog
from rollview.errors import PointError, ViewError
from rollview.planning import referenced_names
from rollview.service.attached import check_attached
from rollview.service.maintenance import needed_by_views
from rollview.service.points_in_time import iso, newest_uncondensed
from rollview.service.refresh import RefreshDriver
from rollview.service.session import Session
from rollview.service.snapshot import SnapshotReader
from rollview.service.stored_view import StoredViews
from rollview.service.uncaptured import explained
from rollview.service.view_sql import view_sql
from rollview.service.views import Views


@dataclass(frozen=True)
class Answered:
    """Rows, the csn they are as of, and the interval of commit times in which they are valid."""

    rows: DataFrame
    csn: int
    valid_from: str
    valid_until: str


@dataclass(frozen=True)
class QueryDriver:
    """Answers queries."""

    catalog: Catalog
    views: Views
    stored: StoredViews
    snapshots: SnapshotReader
    session: Session
    refresh: RefreshDriver

    def run(self, sql: str, max_staleness: float | None = None) -> Answered:
        """Runs a query over views (bare names) and relations (`source.table`)."""
        catalog = self.catalog
        names = referenced_names(sql)
        tables = catalog.tables()
        for name in names:
            if name not in self.views.all() and name not in tables:
                known = ", ".join((*self.views.names, *tables))
                raise ViewError(
                    f"there is no view or captured table `{name}`", subject=name, hint=f"known: {known}"
                )
        views = [name for name in names if name in self.views.all()]
        if max_staleness is not None and _staleness(self.catalog, self._newest(views)) > max_staleness:
            self.refresh.run(views or None)
        if len(views) < len(names):
            # A table of a history that began again has no state to go with a view of the one before.
            for name in views:
                check_attached(catalog, self.views.named(name))
        csn = self._common_csn(views, [tables[name] for name in names if name in tables])
        with self.snapshots.scratch() as folder:
            base: list[Table] = [tables[name] for name in names if name in tables]
            relations = {
                name: self.snapshots.at_csn(reading, csn).expanded_frame()
                for name, reading in self.snapshots.read(base, folder).items()
            }
            for name in views:
                stored = self.stored.open(name)
                relations[name] = stored.rows_at(csn).expanded_frame()
            answer = self._computed(sql, relations, base)
        next_csn = csn + 1 if csn < catalog.last_csn() else 0
        until = catalog.commit_time(next_csn) if next_csn else None
        return Answered(
            self.session.spark.createDataFrame(answer), csn, iso(catalog.commit_time(csn)), iso(until)
        )

    def _computed(self, sql: str, relations: Mapping[str, DataFrame], tables: list[Table]) -> pa.Table:
        """The answer over relations that are as of one csn."""
        try:
            with view_sql(self.session.spark, sql, relations) as frame:
                return frame.toArrow()
        except ViewError as error:
            raise explained(error, tables, self.snapshots.reader.sites) from error.__cause__

    def _newest(self, views: list[str]) -> int:
        """The newest csn that no view is behind."""
        return min((self.stored.covered(name).newest for name in views), default=self.catalog.last_csn())

    def _common_csn(self, views: list[str], tables: list[Table]) -> int:
        """The newest csn that all views and tables can be read at; refuses if there is none."""
        catalog = self.catalog
        possible = {name: self.stored.covered(name) for name in views}
        readable = {name: ValidTime(each.oldest, each.newest + 1) for name, each in possible.items()}
        readable |= {table.qualified: ValidTime(self._captured_since(table)) for table in tables}
        if not readable:
            return catalog.last_csn()
        common = valid_together(readable.values())
        csn = catalog.last_csn() if common is None or common.end is None else common.end - 1
        csn = newest_uncondensed(catalog, views, csn)
        if common is None or csn not in common:
            latest = max(readable, key=lambda name: readable[name].start)
            behind = min(possible, key=lambda name: possible[name].newest)
            message = f"{latest} cannot be read before csn {readable[latest].start}"
            limit = min(csn, possible[behind].newest)
            raise PointError(
                f"there is no csn at which all of them can be read: {message}, "
                f"and {behind} not after csn {limit}",
                subject=latest,
                hint=f"`rollview refresh {' '.join(views)}` brings the views to the same csn",
            )
        return csn

    def _captured_since(self, table: Table) -> int:
        """A csn from which on all changes of a base table are known and kept."""
        records = self.catalog.views()
        readers = [
            name
            for name, view in self.views.all().items()
            if any(each.qualified == table.qualified for each in view.tables)
        ]
        return max(
            needed_by_views(self.catalog, self.views),
            min((records[name].loaded_csn for name in readers), default=0),
        )


def _staleness(catalog: Catalog, csn: int) -> float:
    """How long ago the first change that an answer as of this csn does not show was committed."""
    following = catalog.commit_time(csn + 1)
    sites = catalog.sites().values()
    looked = min((site.captured_at or 0.0 for site in sites), default=0.0)
    return time.time() - (following or looked)
