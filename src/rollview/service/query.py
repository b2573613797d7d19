"""query: an answer whose inputs, views and relations alike, are all as of one csn, or no answer.

Every view is rolled, for this answer only, to the newest csn that all of them can be read at, and every
relation is read and aligned to the same csn (beyer2000 §6: valid together, here by rolling the tables rather
than by choosing between stale ones). Where there is no such csn, the query is refused. The answer says
since when it is valid, and until when if something has changed after it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from rollview.algebra.bag import COUNT
from rollview.algebra.relation import Table
from rollview.algebra.valid_time import ValidTime, valid_together
from rollview.errors import PointError, ViewError
from rollview.planning import referenced_names
from rollview.service.maintenance import needed_by_views
from rollview.service.points_in_time import iso, newest_uncondensed
from rollview.service.refresh import refresh
from rollview.service.snapshot import at_csn, read_tables, scratch
from rollview.service.stored_view import StoredView, covered
from rollview.service.view_sql import view_sql
from rollview.service.warehouse import Warehouse
from rollview.spark import SparkBag


@dataclass(frozen=True)
class Answered:
    """Rows, the csn they are as of, and the interval of commit times in which they are valid."""

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
    if max_staleness is not None and _staleness(warehouse, _newest(warehouse, views)) > max_staleness:
        refresh(warehouse, views or None)
    csn = _common_csn(warehouse, views, [tables[name] for name in names if name in tables])
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


def _newest(warehouse: Warehouse, views: list[str]) -> int:
    """The newest csn that no view is behind."""
    return min((covered(warehouse, name).newest for name in views), default=warehouse.catalog.last_csn())


def _common_csn(warehouse: Warehouse, views: list[str], tables: list[Table]) -> int:
    """The newest csn that all views and tables can be read at; refuses if there is none."""
    catalog = warehouse.catalog
    possible = {name: covered(warehouse, name) for name in views}
    readable = {name: ValidTime(each.oldest, each.newest + 1) for name, each in possible.items()}
    readable |= {table.qualified: ValidTime(_captured_since(warehouse, table)) for table in tables}
    common = valid_together(readable.values())
    csn = catalog.last_csn() if common is None or common.end is None else common.end - 1
    csn = newest_uncondensed(catalog, views, csn)
    if common is None or csn not in common:
        latest = max(readable, key=lambda name: readable[name].start)
        behind = min(possible, key=lambda name: possible[name].newest)
        message = f"{latest} cannot be read before csn {readable[latest].start}"
        limit = min(csn, possible[behind].newest)
        raise PointError(
            f"no state has all of them: {message}, and {behind} not after csn {limit}",
            subject=latest,
            hint=f"`rollview refresh {' '.join(views)}` brings the views to the same csn",
        )
    return csn


def _captured_since(warehouse: Warehouse, table: Table) -> int:
    """A csn from which on all changes of a base table are known and kept."""
    records = warehouse.catalog.views()
    readers = [name for name, view in warehouse.views.items() if table in view.tables]
    return max(needed_by_views(warehouse), min((records[name].loaded_csn for name in readers), default=0))


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
