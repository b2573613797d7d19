"""query: an answer whose inputs, views and relations alike, are all as of one csn.

Every view is rolled, for this answer only, to the newest csn that all of them cover, and every relation is
read and aligned to the same csn (beyer2000 §5: mutually consistent answers, without choosing between stale
ones). The answer says since when it is right, and until when if something has changed after it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from rollview.algebra.bag import COUNT
from rollview.algebra.relation import Table
from rollview.errors import ViewError
from rollview.planning import referenced_names
from rollview.service.definitions import is_full
from rollview.service.points_in_time import iso
from rollview.service.refresh import refresh
from rollview.service.snapshot import at_csn, read_tables, scratch
from rollview.service.stored_view import StoredView
from rollview.service.view_sql import view_sql
from rollview.service.warehouse import Warehouse
from rollview.spark import SparkBag


@dataclass(frozen=True)
class Answered:
    """Rows, the csn they are as of, and the interval of commit times in which they are right."""

    rows: DataFrame
    csn: int
    valid_from: str
    valid_until: str


def query(warehouse: Warehouse, sql: str, max_staleness: float | None = None) -> Answered:
    """Runs a query over views (bare names) and relations (`source.table`)."""
    catalog = warehouse.catalog
    names = referenced_names(sql)
    tables = catalog.tables()
    for name in names:
        if name not in warehouse.views and name not in tables:
            known = ", ".join((*warehouse.views, *tables))
            raise ViewError(
                f"there is no view or captured table `{name}`", subject=name, hint=f"known: {known}"
            )
    views = [name for name in names if name in warehouse.views]
    csn = _common(warehouse, views)
    if max_staleness is not None and _staleness(warehouse, csn) > max_staleness:
        refresh(warehouse, [name for name in views if not is_full(warehouse.view(name))])
        csn = _common(warehouse, views)
    with scratch(warehouse) as folder:
        base: list[Table] = [tables[name] for name in names if name in tables]
        relations = {
            name: _expanded(at_csn(warehouse, reading, csn))
            for name, reading in read_tables(warehouse, base, folder).items()
        }
        for name in views:
            stored = StoredView.open(warehouse, name)
            relations[name] = stored.layout.present(stored.rows_at(csn).frame)
        with view_sql(warehouse.spark, sql, relations) as frame:
            answer: pa.Table = frame.toArrow()
    next_csn = csn + 1 if csn < catalog.last_csn() else 0
    until = catalog.commit_time(next_csn) if next_csn else None
    return Answered(warehouse.spark.createDataFrame(answer), csn, iso(catalog.commit_time(csn)), iso(until))


def _common(warehouse: Warehouse, views: list[str]) -> int:
    """The newest csn that all views cover."""
    catalog = warehouse.catalog
    reached = [
        catalog.views()[name].materialized_csn if is_full(warehouse.view(name)) else catalog.high_water(name)
        for name in views
    ]
    return min(reached, default=catalog.last_csn())


def _staleness(warehouse: Warehouse, csn: int) -> float:
    """How long ago the first change that an answer as of this csn does not show was committed."""
    following = warehouse.catalog.commit_time(csn + 1)
    sites = warehouse.catalog.sites().values()
    looked = min((site.captured_at or 0.0 for site in sites), default=0.0)
    return time.time() - (following or looked)


def _expanded(bag: SparkBag) -> DataFrame:
    names = [f.col(name) for name in bag.columns]
    copies = f.explode(f.expr(f"sequence(1, `{COUNT}`)")).alias("_copy")
    return bag.frame.select(*names, copies).select(*names)
