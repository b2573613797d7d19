"""What a page shows of a project: plain data, from the catalog and the lake, without Spark.

Everything here is cheap enough to be asked again and again, except `describe`, which asks a source.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from rollview.algebra.valid_time import Readable
from rollview.algebra.view import View
from rollview.catalog import Catalog, Unit, VerifyRecord
from rollview.catalog.observations import RefreshEntry
from rollview.service.file_notes import FileNotes, file_notes, written_files
from rollview.service.lags import LagSeries, lag_series
from rollview.service.lineage import Lineage, lineage
from rollview.service.overview import Overview, base_tables, overview
from rollview.service.rolling_picture import RollingPicture, rolling_picture
from rollview.service.sites import Sites
from rollview.service.transactions import TransactionDetail, Transactions
from rollview.service.valid_times import ValidTimes


@dataclass(frozen=True)
class SourceAnswer:
    """What a source says of itself when it is asked: how it is captured; or why it does not answer."""

    kind: str
    how: Mapping[str, str]
    problem: str = ""


@dataclass(frozen=True)
class Observer:
    """Looks at a project and changes nothing."""

    catalog: Catalog
    valid: ValidTimes
    sites: Sites
    transactions: Transactions

    def fingerprint(self) -> object:
        """Something that is equal as long as nothing but time has moved on."""
        return self.catalog.observations.fingerprint()

    def overview(self) -> Overview:
        """Where everything stands."""
        return overview(self.catalog, self._views())

    def file_notes(self) -> FileNotes:
        """What the view files say that `setup` has not seen."""
        return file_notes(self.sites.project, self.catalog.views())

    def view_files(self) -> tuple[tuple[str, int], ...]:
        """The view files and when each was last written."""
        return written_files(self.sites.project)

    def describe(self, site: str) -> SourceAnswer:
        """Asks a source; may take as long as the source does."""
        hide = self.sites.project.secrets.hide
        try:
            source = self.sites.source_at(site)
            return SourceAnswer(source.kind, {key: hide(text) for key, text in source.describe().items()})
        except Exception as error:  # Whatever keeps a source from answering is what the reader wants to see.
            kinds = {entry.name: entry.kind for entry in self.sites.project.sources}
            lines = str(error).splitlines() or [type(error).__name__]
            return SourceAnswer(kinds.get(site.partition(".")[0], ""), {}, hide(lines[0]))

    def lags(self, names: Sequence[str]) -> list[LagSeries]:
        """The lag of some views over the last hour."""
        tables = base_tables(self._views())
        known = {name: tables[name] for name in names if name in tables}
        return lag_series(self.catalog, known, time.time())

    def lineage(self) -> Lineage:
        """What is made of what."""
        return lineage(self.catalog.standing(), self._views())

    def rolling(self, view: str) -> RollingPicture:
        """The intervals that were propagated, relation by relation."""
        return rolling_picture(self.catalog, self.valid.views.named(view))

    def sql(self, view: str) -> str:
        """The text of a view as it was set up."""
        return self.valid.views.record(view).sql

    def columns(self, view: str) -> tuple[tuple[str, str], ...]:
        """The columns of a view with their Spark SQL types."""
        return self.valid.views.record(view).columns

    def readable(self, view: str) -> tuple[Readable, ...]:
        """The stretches of csn that a view can be read at."""
        return self.valid.readable(self.valid.views.named(view).name)

    def refreshes(self, view: str, before: int, limit: int) -> list[RefreshEntry]:
        """The refreshes of a view in steps before one (0: all), the newest first."""
        return self.catalog.observations.refreshes(view, before, limit)

    def verifications(self, views: Sequence[str], limit: int) -> list[VerifyRecord]:
        """What verify found, the newest first."""
        return self.catalog.verifications.of(views, limit)

    def commit_times(self, csns: Iterable[int]) -> dict[int, float]:
        """When transactions were committed, of those that are kept."""
        return self.catalog.observations.commit_times(csns)

    def recent(self, before: int, limit: int, table: str = "") -> list[Unit]:
        """Transactions with a csn below one (0: the newest), the newest first; of one table or all."""
        return self.catalog.observations.units(before, limit, table)

    def transaction(self, csn: int, limit: int) -> TransactionDetail | None:
        """A transaction with the first rows that it changed; None if it is not known, or not any more."""
        return self.transactions.detail(csn, self._views(), limit)

    def local_deltas(self, view: str, after: int, upto: int) -> pa.Table | None:
        """A piece of a view delta, read here; None where Spark is needed for it."""
        return self.transactions.local_deltas(view, after, upto)

    def _views(self) -> dict[str, View]:
        return self.valid.views.all()
