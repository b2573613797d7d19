"""The facts of a project for pages, metrics and probes, from the catalog and the lake, without Spark.

Everything here is cheap enough to be polled, except `describe` and `kept_log_bytes`, which query sources.
Threads may use it concurrently.
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
from rollview.errors import RollviewError
from rollview.observe.lags import LagSeries, lag_series
from rollview.observe.lineage import Lineage, ViewLineage, lineage, lineage_of
from rollview.observe.rolling_picture import RollingPicture, rolling_picture
from rollview.observe.state import ProjectState, base_tables, project_state
from rollview.observe.transactions import TransactionDetail, Transactions
from rollview.runtime.session import Session
from rollview.runtime.sites import Sites, kept_log_bytes
from rollview.storage.lake_tables import TableSize, lake_sizes
from rollview.upkeep.valid_times import ValidTimes
from rollview.views.view_files import FileNotes, file_notes, written_files


@dataclass(frozen=True)
class SourceAnswer:
    """A source's own description: how it is captured; or why it does not answer."""

    kind: str
    how: Mapping[str, str]
    problem: str = ""


@dataclass(frozen=True)
class Observer:
    """Reads the state of a project and changes nothing."""

    catalog: Catalog
    valid: ValidTimes
    sites: Sites
    transactions: Transactions
    session: Session

    def fingerprint(self) -> object:
        """A value that is equal as long as nothing but time has changed."""
        return self.catalog.observations.fingerprint()

    def state(self) -> ProjectState:
        return project_state(self.catalog, self._views())

    def file_notes(self) -> FileNotes:
        """Notes about view files that differ from what is set up."""
        return file_notes(self.sites.project, self.catalog.views.all())

    def file_differs(self) -> dict[str, bool]:
        """For each view, whether its file differs from what is set up."""
        notes = self.file_notes().of_views
        return {name: name in notes for name in self.valid.views.names}

    def view_files(self) -> tuple[tuple[str, int], ...]:
        return written_files(self.sites.project)

    def describe(self, site: str) -> SourceAnswer:
        """Asks a source; may take as long as the source does."""
        secrets = self.sites.project.secrets
        try:
            source = self.sites.source_at(site)
            return SourceAnswer(
                source.kind, {key: secrets.hide(text) for key, text in source.describe().items()}
            )
        except Exception as error:  # The reader wants to see why a source does not answer.
            kinds = {entry.name: entry.kind for entry in self.sites.project.sources}
            return SourceAnswer(
                kinds.get(site.partition(".")[0], ""),
                {},
                secrets.hide_error(error, isinstance(error, RollviewError)),
            )

    def lags(self, names: Sequence[str]) -> list[LagSeries]:
        """The lag of some views over the last hour."""
        tables = base_tables(self._views())
        known = {name: tables[name] for name in names if name in tables}
        return lag_series(self.catalog, known, time.time())

    def lineage(self) -> Lineage:
        return lineage(self.catalog.standing(), self._views())

    def dataset_lineage(self, view: str) -> ViewLineage:
        """The inputs of a view, column by column, by their names in OpenLineage; refuses other names."""
        views = self.valid.views
        return lineage_of(views.named(view), views.record(view), self.transactions.tables, self.sites)

    def rolling(self, view: str) -> RollingPicture:
        """The intervals that were propagated, relation by relation."""
        return rolling_picture(self.catalog, self.valid.views.named(view))

    def sql(self, view: str) -> str:
        return self.valid.views.record(view).sql

    def columns(self, view: str) -> tuple[tuple[str, str], ...]:
        return self.valid.views.record(view).columns

    def readable(self, view: str) -> tuple[Readable, ...]:
        return self.valid.readable(self.valid.views.named(view).name)

    def refreshes(self, view: str, before: int, limit: int) -> list[RefreshEntry]:
        """The refreshes of a view in steps before one (0: all), the newest first."""
        return self.catalog.observations.refreshes(view, before, limit)

    def verifications(self, views: Sequence[str], limit: int) -> list[VerifyRecord]:
        """Results of verify, the newest first."""
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

    def lake_sizes(self) -> tuple[TableSize, ...]:
        """How large the tables of the lake are, by view and kind, from their logs."""
        return lake_sizes(self.catalog, self.transactions.tables)

    def kept_log_bytes(self) -> dict[str, int]:
        """How large the logs are that sources keep until they are captured, where the source can say."""
        return kept_log_bytes(self.sites)

    def spark_jobs(self) -> int | None:
        """How many jobs Spark has begun since it was started here; None if it was not."""
        return self.session.jobs

    def _views(self) -> dict[str, View]:
        return self.valid.views.all()
