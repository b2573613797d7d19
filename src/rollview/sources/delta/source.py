"""A folder of Delta tables as a source, or a prefix of a bucket with such tables.

Every table has its own log and is its own site. A version is a transaction if it changed rows; its source
txid is the version plus one, so that source txids begin at one. Compaction and changes of properties are no
transactions. Reads are exact, because a version of a Delta table never changes.

A log position names the version, its commit, the table and the captured columns, so that a table that was
altered, made again, or restored from a copy is noticed however late capture looks. A column that is added is
not captured, and stops nothing.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rollview.ascii_text import whole_number
from rollview.errors import PointError, SourceChanged, SourceMissing
from rollview.sources.bucket import Bucket, dataset_at
from rollview.sources.delta.capture import LogPosition, capture_commits, check_history, check_same_table
from rollview.sources.delta.log import check_columns
from rollview.sources.delta.place import table_names, table_place
from rollview.sources.delta.snapshot import FollowedTable, TableSnapshot
from rollview.sources.files.key_filter import comparable, look_up_all
from rollview.sources.settings import check_options, declared_key
from rollview.sources.source import (
    Batch,
    Comparison,
    Lookup,
    ReadResult,
    Seen,
    SetupResult,
    SourceSettings,
    SourceTxids,
    Table,
    not_captured,
    reload_hint,
)


class DeltaSource:
    """Delta tables, each a sub-folder of one folder or prefix."""

    kind = "delta"

    def __init__(self, name: str, place: Path | Bucket, options: Mapping[str, Any] | None = None) -> None:
        """Option `key.TABLE` declares the key of a table, which Delta itself does not know."""
        self.name = name
        self._place = place.absolute() if isinstance(place, Path) else place
        self._options = dict(options or {})
        check_options(name, self._options, ["key."])
        if isinstance(self._place, Path) and not self._place.is_dir():
            raise SourceMissing(
                f"source {name}: there is no folder {place}", subject=name, hint="correct its path"
            )
        self._lock = threading.Lock()
        self._followed: dict[str, FollowedTable] = {}

    @classmethod
    def open(cls, settings: SourceSettings) -> DeltaSource:
        return cls(settings.name, settings.place(), settings.without_place())

    def tables(self) -> tuple[Table, ...]:
        """Every sub-folder with a Delta log. Whether it can be captured is for `setup` to say."""
        return tuple(self._table(name) for name in table_names(self._place))

    def _table(self, table: str) -> Table:
        columns = self._follow(f"{self.name}.{table}").definition().columns
        names = tuple(name for name, _ in columns)
        key = declared_key(self.name, table, self._options, names)
        types = tuple(kind for _, kind in columns)
        return Table(self.name, table, names, key, types=types, own_log=True)

    def setup(self, tables: Sequence[Table]) -> SetupResult:
        """Nothing is installed."""
        return self.check(tables)

    def check(self, tables: Sequence[Table]) -> SetupResult:
        """Tables that cannot be captured are refused, one and all."""
        done, warnings = [], []
        for table in tables:
            snapshot = self._follow(table.site).snapshot()
            check_columns(table.qualified, zip(table.columns, table.types, strict=True))
            done.append(f"{table.qualified} is at version {snapshot.version}; nothing to install")
            if not snapshot.has_feed:
                warnings.append(
                    f"{table.qualified} has no change data feed: an UPDATE or MERGE is found by comparing "
                    "whole files (set delta.enableChangeDataFeed to make that cheaper)"
                )
        return SetupResult(tuple(done), tuple(warnings))

    def remove(self) -> SetupResult:
        """Nothing was left, so nothing is taken back."""
        return SetupResult(done=(f"{self.name}: nothing was installed at the Delta tables",))

    def describe(self) -> Mapping[str, str]:
        return {"transactions": "Delta versions", "reads": "exact, by time travel"}

    def dataset(self, table: str) -> tuple[str, str]:
        """The table's folder, as OpenLineage names those of file systems and buckets."""
        return dataset_at(self._place, table)

    def current_position(self, site: str) -> str:
        """The newest version."""
        table = self._follow(site)
        snapshot = table.snapshot()
        stamp = table.stamp(snapshot.version)
        return str(LogPosition(snapshot.version, stamp, snapshot.definition.capturable()))

    def reach(self, site: str, position: str, captured: str) -> int:
        """The transactions that a version includes."""
        version, reached = whole_number(position.strip()), LogPosition.parse(captured).version
        if version is None:
            hint = f"a version of the table, such as {site}:12"
            raise PointError(f"`{position}` is not a version of {site}", subject=position, hint=hint)
        if version > reached:
            raise not_captured(site, position, str(reached))
        return version + 1

    def capture(self, site: str, after: str, limit: int) -> Batch:
        """The commits after a log position that changed rows."""
        return capture_commits(self._follow(site), LogPosition.parse(after), limit)

    def replay(self, site: str, after: str, source_txids: Sequence[int], upto: str) -> Batch:
        """The commits between two log positions; their files must still be there."""
        batch = capture_commits(
            self._follow(site), LogPosition.parse(after), upto=LogPosition.parse(upto).version
        )
        if [each.source_txid for each in batch.transactions] != list(source_txids):
            raise SourceChanged(
                f"the log of {site} returned different transactions on replay",
                subject=site,
                hint=reload_hint(site),
            )
        return Batch(batch.transactions, upto)

    def acknowledge(self, site: str, upto: str) -> None:  # noqa: ARG002
        """Delta tables clean up their history themselves; copies of old data files can go."""
        table = self._follow(site)
        table.place.tidy(lambda: table.snapshot().logged)

    def can_compare(self, key_type: str, column_type: str) -> bool:
        """Where Spark would convert one side first, only Spark can decide."""
        return comparable(key_type, column_type)

    def can_push(self, comparison: Comparison, column_type: str) -> bool:  # noqa: ARG002
        """Keys alone decide which files and row groups are read."""
        return False

    def lookup(self, plan: Sequence[Lookup]) -> ReadResult:
        """The matches at the newest version."""
        snapshot = self._follow(plan[0].table.site).snapshot()
        for lookup in plan:
            check_same_table(lookup.table, snapshot)
        return ReadResult(look_up_all(plan, snapshot.state), _read_point(snapshot))

    def read(self, tables: Mapping[Table, Sequence[str]], scratch: Path) -> ReadResult:  # noqa: ARG002
        """The files of the newest version; they are there to be read, so nothing goes to `scratch`."""
        if len({table.site for table in tables}) > 1:
            raise ValueError("tables with logs of their own are read one by one")
        rows = []
        for table, columns in tables.items():
            snapshot = self._follow(table.site).snapshot()
            check_same_table(table, snapshot)
            rows.append(snapshot.state.everything(columns))
        return ReadResult(tuple(rows), _read_point(snapshot))

    def seen(self, site: str, read_point: str, source_txids: SourceTxids) -> Seen | None:
        """All transactions up to the version that was read, once capture has looked at that."""
        seen, reached = json.loads(read_point), LogPosition.parse(source_txids.log_position)
        if seen["version"] > reached.version:
            return None
        if reached.defined is not None and seen["table"] != reached.defined.identity:
            raise SourceChanged(
                f"{site} was a different table when it was read than when it was captured",
                subject=site,
                hint=f"it was dropped and recreated: {reload_hint(site)}",
            )
        table = self._follow(site)
        check_history(table, reached, table.snapshot())
        return Seen(source_txids.latest(seen["version"] + 1))

    def close(self) -> None:
        with self._lock:
            self._followed.clear()

    def _follow(self, site: str) -> FollowedTable:
        source, _, table = site.partition(".")
        if source != self.name or table == ".." or Path(table).name != table:
            raise SourceMissing(f"source {self.name} has no table {site}", subject=site)
        with self._lock:
            if table not in self._followed:
                self._followed[table] = FollowedTable(site, table_place(self._place, table))
            return self._followed[table]


def _read_point(snapshot: TableSnapshot) -> str:
    return json.dumps({"version": snapshot.version, "table": snapshot.definition.identity})
