"""Relations at one csn, without stopping anybody.

Every site is read at whatever state it shows, then what was read is aligned, by the change log, to the csn
that is wanted. The first load, full refreshes and `verify` all begin like this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree

from rollview.algebra.align import FROM, UNTIL, align, window
from rollview.algebra.bag import keep
from rollview.algebra.expression import Column, Literal, call
from rollview.algebra.history import Seen
from rollview.algebra.relation import Table
from rollview.algebra.view import View
from rollview.bags import PlacedBag
from rollview.catalog import Catalog
from rollview.errors import HistoryBroken
from rollview.maintain.relations import SiteReader
from rollview.maintain.truncations import check_roll
from rollview.runtime.progress import ProgressMeter, watching_files
from rollview.runtime.session import Session
from rollview.sources.source import Comparison, EstimatesRows, Lookup, ReadResult, Source
from rollview.storage.lake_rows import read_range
from rollview.storage.lake_tables import LakeTables
from rollview.storage.stored_view import StoredViews
from rollview.views.content import block_contents, with_stages


@dataclass(frozen=True)
class Reading:
    """A table's rows as they were read, and what the reading saw, in csn."""

    table: Table
    rows: PlacedBag
    saw: Seen


@dataclass(frozen=True)
class SnapshotReader:
    """Reads whole relations, and aligns them."""

    catalog: Catalog
    tables: LakeTables
    stored: StoredViews
    reader: SiteReader
    session: Session

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A folder for large readings, gone afterwards; beside the lake, where Spark can read it."""
        folder = self.reader.sites.scratch.new()
        try:
            yield folder
        finally:
            rmtree(folder, ignore_errors=True)

    def read(
        self,
        tables: Sequence[Table],
        folder: Path,
        conditions: Mapping[str, tuple[Comparison, ...]] | None = None,
    ) -> dict[str, Reading]:
        """Reads tables, all sites at once; waits until all they saw is captured.

        Of tables with `conditions`, all rows that meet them are there, and perhaps others.
        """
        sites: dict[str, list[Table]] = {}
        readings: dict[str, Reading] = {}
        for table in tables:
            if table.source:
                sites.setdefault(table.site, []).append(table)
            else:
                stored = self.stored.open(table.name)
                rows = stored.shown_rows().project(keep(table.columns))
                readings[table.name] = Reading(table, rows, Seen(stored.record.materialized_csn))

        def read(site: str) -> None:
            asked = self._lookups(site, sites[site], conditions or {})
            columns: Mapping[Table, Sequence[str]] = {
                table: table.columns for table in sites[site] if table not in asked
            }
            if columns:
                take(site, list(columns), lambda source: source.read(columns, folder))
            if asked:
                take(site, list(asked), lambda source: source.lookup(list(asked.values())))

        def take(site: str, own: list[Table], action: Callable[[Source], ReadResult]) -> None:
            found, saw = self.reader.read_and_resolve(site, own, action)
            for table, rows in zip(own, found.rows, strict=True):
                bag = PlacedBag.of_rows(self.session.spark, rows).project(keep(table.columns))
                readings[table.qualified] = Reading(table, bag, saw)

        self.reader.side_by_side(read, sites)
        return readings

    @contextmanager
    def watched(self, meter: ProgressMeter, tables: Sequence[Table], folder: Path) -> Iterator[None]:
        """Reports the progress of a reading: large tables are read into files, piece by piece."""

        def estimate() -> int | None:
            sources = [self.reader.sites.source_at(table.site) for table in tables if table.source]
            if not all(isinstance(source, EstimatesRows) for source in sources):
                return None
            own = [table for table in tables if table.source]
            found = [
                source.estimated_rows(table.name)
                for source, table in zip(sources, own, strict=True)
                if isinstance(source, EstimatesRows)
            ]
            return sum(found) if all(found) else None

        with watching_files(meter, folder, estimate):
            yield

    def _lookups(
        self, site: str, tables: Sequence[Table], conditions: Mapping[str, tuple[Comparison, ...]]
    ) -> dict[Table, Lookup]:
        """For tables that need not be read as a whole: what their source can be asked for instead."""
        source = self.reader.sites.source_at(site)
        found: dict[Table, Lookup] = {}
        for table in tables:
            types = dict(zip(table.columns, table.types, strict=True))
            wanted = conditions.get(table.qualified, ())
            if pushed := tuple(each for each in wanted if source.can_push(each, types[each.column])):
                found[table] = Lookup(table, table.columns, conditions=pushed)
        return found

    def _check_reaches(self, table: Table, csn: int) -> None:
        """Refuses to go back behind the beginning of a table's history."""
        began = self.catalog.captured.histories()[table.qualified].origin_csn
        if csn < began:
            raise HistoryBroken(
                f"the history of {table.qualified} began again at csn {began}, after csn {csn}",
                subject=table.qualified,
                hint="`rollview setup` loads the views that are before that",
            )

    def contents_at(self, view: View, readings: Mapping[str, Reading], csn: int) -> Iterator[PlacedBag]:
        """The content of each block of a view at a csn, left to right, computed from its relations."""
        tables = {name: self.at_csn(reading, csn) for name, reading in readings.items()}
        if not view.stores_stages:
            tables = with_stages(view, tables)
        return block_contents(view.root, tables)

    def at_csn(self, reading: Reading, csn: int) -> PlacedBag:
        """The table at a csn."""
        table, saw = reading.table, reading.saw
        check_roll(self.catalog, table, saw, csn)
        if saw == Seen(csn):
            return reading.rows
        after, upto = window(saw, csn, csn)
        if table.source:
            self._check_reaches(table, after)
            if not self.catalog.history.touched(table.qualified, after, upto):
                return reading.rows
            log = read_range(self.session, self.tables.change_log(table), after, upto)
        else:
            stored = self.stored.open(table.name)
            stored.check_covered(csn)
            log = stored.row_delta(after, upto)
        aligned = align(reading.rows, log, saw, csn, csn)
        then = call("AND", call("<=", Column(FROM), Literal(csn)), call("<", Literal(csn), Column(UNTIL)))
        return aligned.select(then).project(keep(table.columns)).net_effect()
