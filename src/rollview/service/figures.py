"""What those who watch a project ask for, again and again: numbers for metrics, lineage for a collector."""

from __future__ import annotations

import time
from dataclasses import dataclass

from rollview.catalog import Catalog
from rollview.service.dataset_lineage import ViewLineage, lineage_of
from rollview.service.file_notes import file_notes
from rollview.service.kept_logs import kept_log_bytes
from rollview.service.lake_sizes import TableSize, lake_sizes
from rollview.service.lake_tables import LakeTables
from rollview.service.measures import Measures, measure
from rollview.service.project_file import ProjectFile
from rollview.service.session import Session
from rollview.service.sites import Sites
from rollview.service.views import Views


@dataclass(frozen=True)
class Figures:
    """Numbers and lineage of a project. None of them needs Spark; threads may ask at once."""

    project: ProjectFile
    catalog: Catalog
    tables: LakeTables
    views: Views
    sites: Sites
    session: Session

    def measures(self) -> Measures:
        """Where sources and views stand, from the catalog alone: cheap enough for every scrape."""
        return measure(self.catalog, self.views.all(), time.time())

    def lake_sizes(self) -> tuple[TableSize, ...]:
        """How large the tables of the lake are, by view and kind, from their logs."""
        return lake_sizes(self.catalog, self.tables)

    def lineage(self, view: str) -> ViewLineage:
        """What a view is made of, column by column, by names that are known outside; refuses other names."""
        return lineage_of(self.views.named(view), self.views.record(view), self.tables, self.sites)

    def file_differs(self) -> dict[str, bool]:
        """Of each view whether its file is something else than what is set up."""
        notes = file_notes(self.project, self.catalog.views()).of_views
        return {name: name in notes for name in self.views.names}

    def spark_jobs(self) -> int | None:
        """How many jobs Spark has begun since it was started here; None if it was not."""
        return self.session.jobs

    def kept_log_bytes(self) -> dict[str, int]:
        """How large the logs are that sources keep until they are captured, where that can be asked."""
        return kept_log_bytes(self.sites)
