"""verify: recomputes views at the csn they show, from the sources, and compares row by row.

The recomputation is Spark running the view's own text over relations that were read now and aligned to that
csn, so that neither the deltas nor rollview's algebra above `align` judge themselves.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from rollview.algebra.expression import TRUE, to_sql
from rollview.catalog import VerifyRecord
from rollview.deferred_import import deferred
from rollview.events import Events
from rollview.service.attached import check_attached
from rollview.service.comparison import Difference, counted, differences, stored_rows
from rollview.service.progress import ROWS, ProgressMeter
from rollview.service.session import Session
from rollview.service.slices import Slice, draw, sliced_tables
from rollview.service.snapshot import SnapshotReader
from rollview.service.step_timer import timed_step
from rollview.service.stored_view import StoredViews
from rollview.service.view_sql import view_sql

if TYPE_CHECKING:
    from pyspark.sql import functions as f
else:
    f = deferred("pyspark.sql.functions")


@dataclass(frozen=True)
class Verification:
    """The comparison of one view; `differences` holds the first of them.

    `part` says which rows were compared, if not all were.
    """

    view: str
    csn: int
    rows: int
    different: int
    columns: tuple[str, ...]
    differences: tuple[Difference, ...]
    part: Slice | None = None

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

    def run(self, name: str, fraction: float = 1.0, chance: Random | None = None) -> Verification:
        """Compares a stored view, or a slice that is drawn by chance, with its recomputation at its csn."""
        started = time.monotonic()
        # Columns can be named only once there is a session.
        spark = self.session.spark
        stored = self.stored.open(name)
        check_attached(self.stored.catalog, stored.view)
        csn = stored.record.materialized_csn
        columns = [column for column, _ in stored.layout.columns]
        with timed_step(self.events, "verify", name), self.snapshots.scratch() as folder:
            part = draw(stored, fraction, chance or Random()) if fraction < 1.0 else None
            sliced = {} if part is None else sliced_tables(stored.view, part.column)
            asked = {table: part.comparisons(own) for table, own in sliced.items() if part}
            tables = stored.view.named_tables
            with self.snapshots.watched(ProgressMeter(self.events, "verify", name, ROWS), tables, folder):
                readings = self.snapshots.read(tables, folder, asked)
            relations = {}
            for table, reading in readings.items():
                rows = self.snapshots.at_csn(reading, csn)
                # Also what the change log says of rows that were not asked for.
                rows = rows.select(part.holds(sliced[table])) if part and table in sliced else rows
                relations[table] = rows.expanded_frame()
            compared = f.expr(to_sql(TRUE if part is None else part.holds(part.column)))
            with view_sql(spark, stored.view.exact_sql, relations) as recomputed:
                ours, theirs = stored.shown_rows().frame, recomputed.toDF(*columns)
                both = counted(ours.where(compared), theirs.where(compared), columns)
                number = stored_rows(both)
                found, different = differences(both, columns)
        verified = Verification(name, csn, number, different, tuple(columns), tuple(found), part)
        self._note(verified, time.monotonic() - started)
        return verified

    def _note(self, found: Verification, seconds: float) -> None:
        """The catalog remembers what came out."""
        told = tuple(
            f"{each.row}: stored {each.stored}, should be {each.expected}" for each in found.differences
        )
        record = VerifyRecord(
            found.view, 0.0, found.csn, found.rows, found.different, str(found.part or ""), told, seconds
        )
        self.stored.catalog.verifications.note(record)
