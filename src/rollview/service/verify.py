"""verify: recomputes views at the csn they show, from the sources, and compares row by row.

The recomputation is Spark running the view's own text over relations that were read now and aligned to that
csn, so that neither the deltas nor rollview's algebra above `align` judge themselves.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import functions as f

from rollview.algebra.bag import COUNT
from rollview.algebra.expression import Column, to_sql
from rollview.events import Events
from rollview.service.session import Session
from rollview.service.snapshot import SnapshotReader
from rollview.service.step_timer import timed_step
from rollview.service.stored_view import StoredViews
from rollview.service.view_sql import view_sql

SHOWN = 20
_STORED, _EXPECTED = "_stored", "_expected"


@dataclass(frozen=True)
class Difference:
    """A row, how often it is stored, and how often it should be there."""

    row: tuple[object, ...]
    stored: int
    expected: int


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
        csn = stored.record.materialized_csn
        columns = [column for column, _ in stored.layout.columns]
        names = [f.expr(to_sql(Column(column))).alias(column) for column in columns]
        with timed_step(self.events, "verify", name), self.snapshots.scratch() as folder:
            readings = self.snapshots.read(stored.view.named_tables, folder)
            relations = {}
            for table, reading in readings.items():
                bag = self.snapshots.at_csn(reading, csn)
                copies = f.explode(f.expr(f"sequence(1, `{COUNT}`)")).alias("_copy")
                own = [f.col(column) for column in reading.table.columns]
                relations[table] = bag.frame.select(*own, copies).select(*own)
            with view_sql(spark, stored.view.sql, relations) as recomputed:
                expected = recomputed.toDF(*columns).select(
                    *names, f.lit(0).alias(_STORED), f.lit(1).alias(_EXPECTED)
                )
                shown = stored.shown_rows().frame.select(
                    *names, f.col(COUNT).alias(_STORED), f.lit(0).alias(_EXPECTED)
                )
                sums = [f.sum(each).alias(each) for each in (_STORED, _EXPECTED)]
                both = shown.unionByName(expected).groupBy(*names).agg(*sums)
                total = f.sum(_STORED).alias("rows")
                wrong = both.where(f.col(_STORED) != f.col(_EXPECTED))
                rows = int(both.agg(total).collect()[0]["rows"] or 0)
                found = wrong.orderBy(*names).limit(SHOWN).collect()
                different = wrong.count() if len(found) == SHOWN else len(found)
        differences = tuple(Difference(tuple(row)[:-2], row[_STORED], row[_EXPECTED]) for row in found)
        return Verification(name, csn, rows, different, tuple(columns), differences)
