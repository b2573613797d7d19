"""verify: recomputes views at the csn they show, from the sources, and compares row by row.

The recomputation is Spark running the view's own text over relations that were read now and aligned to that
csn, so that neither the deltas nor rollview's algebra above `align` judge themselves.
"""

from __future__ import annotations

from dataclasses import dataclass

from rollview.events import Events
from rollview.service.attached import check_attached
from rollview.service.comparison import Difference, counted, differences, stored_rows
from rollview.service.session import Session
from rollview.service.snapshot import SnapshotReader
from rollview.service.step_timer import timed_step
from rollview.service.stored_view import StoredViews
from rollview.service.view_sql import view_sql


@dataclass(frozen=True)
class Verification:
    """The comparison of one view; `differences` holds the first of them."""

    view: str
    csn: int
    rows: int
    different: int
    columns: tuple[str, ...]
    differences: tuple[Difference, ...]

    @property
    def is_right(self) -> bool:
        """Whether the stored view is what it should be."""
        return self.different == 0


@dataclass(frozen=True)
class VerifyDriver:
    """Verifies stored views."""

    stored: StoredViews
    snapshots: SnapshotReader
    session: Session
    events: Events

    def run(self, name: str) -> Verification:
        """Compares a stored view with its recomputation at the same csn."""
        # Columns can be named only once there is a session.
        spark = self.session.spark
        stored = self.stored.open(name)
        check_attached(self.stored.catalog, stored.view)
        csn = stored.record.materialized_csn
        columns = [column for column, _ in stored.layout.columns]
        with timed_step(self.events, "verify", name), self.snapshots.scratch() as folder:
            readings = self.snapshots.read(stored.view.named_tables, folder)
            relations = {
                table: self.snapshots.at_csn(reading, csn).expanded_frame()
                for table, reading in readings.items()
            }
            with view_sql(spark, stored.view.sql, relations) as recomputed:
                both = counted(stored.shown_rows().frame, recomputed, columns)
                rows = stored_rows(both)
                found, different = differences(both, columns)
        return Verification(name, csn, rows, different, tuple(columns), tuple(found))
