"""From a log position on through a Delta table's commits, as far as they concern the same table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rollview.errors import LogLost, SourceChanged
from rollview.rows import FileScan, Rows, ScanFile, arrow_type
from rollview.sources.delta.log import DataFile, Definition, DeltaCommit, read_commit
from rollview.sources.delta.snapshot import FollowedTable, TableSnapshot
from rollview.sources.files.state import count_rows, net_effect, read_files
from rollview.sources.source import (
    COUNT,
    Batch,
    CapturedTransaction,
    Table,
    reload_hint,
)

# The changes of a commit to the rows of a Delta table.
#
# With a change data feed the commit has change files, and only those have the changes. Otherwise every row
# of an added file is new and every row of a removed one is gone; an UPDATE or MERGE rewrites whole files,
# so most of that cancels and is netted out here unless there are too many rows.


FEW_ADDED_ROWS = 100_000
"""Up to this many rows that were only added (or only removed) are handed over at once, more as files."""

FEW_REWRITTEN_ROWS = 2_000_000
"""Up to this many rows of rewritten files are netted out here: what is left is most often very little."""

_KIND = "_change_type"
_COUNTS = {"insert": 1, "update_postimage": 1, "delete": -1, "update_preimage": -1}


def changes_of(commit: DeltaCommit, defined: Definition, table: FollowedTable) -> tuple[Rows, int] | None:
    """The changed rows of a commit and how many they are; None if it changed nothing."""
    schema = (*defined.columns, (COUNT, "bigint"))
    try:
        given = commit.changes or (*commit.added, *commit.removed)
        table.place.fetch({file.logged: file.size for file in given})
        if commit.changes:
            rows = _from_change_files(commit.changes, schema, defined)
            return (rows, rows.num_rows) if rows.num_rows else None
        if not given:
            return None
        files = tuple(
            ScanFile(file.path, {**_constants(file, defined, table, commit), COUNT: count})
            for count, files_given in ((1, commit.added), (-1, commit.removed))
            for file in files_given
        )
        return _from_data_files(commit, FileScan(files, schema))
    except FileNotFoundError as error:
        raise LogLost(
            f"{table.name} version {commit.version} cannot be captured: a file of it has been vacuumed",
            subject=table.name,
            hint=f"{reload_hint(table.name)}; then capture more often than files are vacuumed",
        ) from error


def _from_data_files(commit: DeltaCommit, scan: FileScan) -> tuple[Rows, int] | None:
    given = (*commit.added, *commit.removed)
    known = sum(file.rows for file in given if file.rows is not None)
    total = known + count_rows(file.path for file in given if file.rows is None)
    few = FEW_REWRITTEN_ROWS if commit.added and commit.removed else FEW_ADDED_ROWS
    if total > few:
        for file in given:
            # Spark would only find out later that one is gone.
            Path(file.path).stat()
        return scan, total
    rows = net_effect(read_files(scan))
    return (rows, rows.num_rows) if rows.num_rows else None


def _from_change_files(
    files: Sequence[DataFile], schema: Sequence[tuple[str, str]], defined: Definition
) -> pa.Table:
    columns = tuple((name, kind) for name, kind in schema if name != COUNT)
    scans = tuple(ScanFile(file.path, partition_values(file.partition or {}, defined)) for file in files)
    found = read_files(FileScan(scans, (*columns, (_KIND, "string"))))
    kinds = pa.array(list(_COUNTS), pa.string())
    counts = pa.array(list(_COUNTS.values()), pa.int64())
    position = pc.index_in(found[_KIND], value_set=kinds)
    rows = found.drop_columns([_KIND]).append_column(COUNT, pc.take(counts, position))
    return net_effect(rows)


def _constants(
    file: DataFile, defined: Definition, table: FollowedTable, commit: DeltaCommit
) -> Mapping[str, Any]:
    if file.partition is None and (defined.partitions or commit.definition is not None):
        # A remove action need not repeat the partition values; the version before has the file.
        before = {each.path: each.constants for each in table.at(commit.version - 1).files}
        return {name: value for name, value in before[file.path].items() if name in defined.types}
    return partition_values(file.partition or {}, defined)


def partition_values(texts: Mapping[str, str | None], defined: Definition) -> dict[str, Any]:
    """Partition values by their columns' types; an empty text is NULL, as the protocol has it.

    They are those of the file. One that was written when the table had other partitions has other ones.
    """
    return {
        name: _partition_value(text, arrow_type(defined.types[name])) if text else None
        for name, text in texts.items()
        if name in defined.types
    }


def _partition_value(text: str, kind: pa.DataType) -> Any:
    if pa.types.is_timestamp(kind):
        # Written as `2020-01-01 00:00:00.5` or with T and a zone; without one it is in UTC.
        instant = pa.scalar(text.replace(" ", "T").removesuffix("Z"), pa.string())
        naive = instant.cast(pa.timestamp("us")).as_py()
        return pa.scalar(naive, pa.timestamp("us")).cast(kind).as_py()
    if pa.types.is_binary(kind):
        return text.encode("utf-8")
    return pa.scalar(text, pa.string()).cast(kind).as_py()


@dataclass(frozen=True)
class LogPosition:
    """The last version that was looked at, what its commit was, and the columns that are captured.

    Its text is `VERSION:` and JSON; before version 0 there is no more to say.
    """

    version: int
    stamp: str = ""
    defined: Definition | None = None

    def __str__(self) -> str:
        fields = "" if self.defined is None else json.dumps({"stamp": self.stamp} | asdict(self.defined))
        return f"{self.version}:{fields}"

    @classmethod
    def parse(cls, text: str) -> LogPosition:
        """The log position from its text."""
        version, _, said = text.partition(":")
        if not said:
            return cls(int(version))
        fields = json.loads(said)
        columns = tuple((name, kind) for name, kind in fields["columns"])
        defined = Definition(fields["identity"], columns, tuple(fields["partitions"]))
        return cls(int(version), fields["stamp"], defined)


def capture_commits(
    table: FollowedTable, after: LogPosition, limit: int | None = None, upto: int | None = None
) -> Batch:
    """The transactions after a log position: about `limit` changed rows, or all until version `upto`."""
    newest = table.snapshot()
    check_history(table, after, newest)
    defined = after.defined
    last = newest.version if upto is None else upto
    version, stamp, rows = after.version, after.stamp, 0
    transactions: list[CapturedTransaction] = []
    while version < last and (limit is None or not transactions or rows < limit):
        commit = read_commit(table.place, table.name, version + 1)
        if commit is None:
            raise _gone(table, version + 1)
        if commit.definition is not None:
            new = commit.definition.capturable()
            followed = new if defined is None else defined.followed_by(new)
            if followed is None and transactions:
                # Commits before the change are handed over first.
                break
            if followed is None:
                assert defined is not None
                raise _changed(table, commit.version, defined, commit.definition)
            defined = followed
        if defined is None:
            raise _gone(table, version)
        found = changes_of(commit, defined, table)
        if found is not None:
            changed, count = found
            rows += count
            transactions.append(
                CapturedTransaction(
                    commit.version + 1,
                    commit.time,
                    {table.name: changed},
                    str(commit.version),
                    place=commit.version + 1,
                )
            )
        version, stamp = commit.version, commit.stamp
    return Batch(tuple(transactions), str(LogPosition(version, stamp, defined)))


def check_history(table: FollowedTable, reached: LogPosition, newest: TableSnapshot) -> None:
    """Refuses a table that did not come by the place that a log position names.

    Where the commit has been cleaned up, its table is recognized only by its identity.
    """
    if reached.version <= newest.version:
        stamp = table.stamp(reached.version)
        is_same = reached.defined is None or reached.defined.identity == newest.definition.identity
        if (stamp == reached.stamp and stamp) or (is_same and not (stamp and reached.stamp)):
            return
    raise SourceChanged(
        f"{table.name} is not the table that was captured up to version {reached.version}: "
        f"it is at version {newest.version} now",
        subject=table.name,
        hint=f"it was recreated or restored from a copy: {reload_hint(table.name)}",
    )


def check_same_table(table: Table, snapshot: TableSnapshot) -> None:
    """Refuses to read a table that has not got the columns that views were planned with."""
    types = snapshot.definition.types
    for name, kind in zip(table.columns, table.types, strict=True):
        if types.get(name) != kind:
            now = f"has type {types[name]} now" if name in types else "is gone"
            raise SourceChanged(
                f"column {name} {kind} of {table.qualified} {now}",
                subject=table.qualified,
                hint=reload_hint(table.qualified),
            )


def _gone(table: FollowedTable, version: int) -> LogLost:
    return LogLost(
        f"the history of {table.name} is gone: the log of version {version} has been cleaned up",
        subject=table.name,
        hint=f"{reload_hint(table.name)}; then capture more often than logs are cleaned up",
    )


def _changed(table: FollowedTable, version: int, before: Definition, now: Definition) -> SourceChanged:
    """The change of a commit to the table's definition."""
    changed = [
        f"column {name} {kind} {f'has type {now.types[name]} now' if name in now.types else 'is gone'}"
        for name, kind in before.columns
        if now.types.get(name) != kind
    ]
    what = "; ".join(changed) or "the table was replaced"
    return SourceChanged(
        f"{table.name} changed its definition at version {version}: {what}",
        subject=table.name,
        hint=reload_hint(table.name),
    )
