"""The Delta log of one table, read incrementally: versions, what commits say of themselves, steps, files."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import RLock
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import DeltaError, TableNotFoundError

from rollview.ascii_text import lines_of, whole_number
from rollview.errors import LakeDamaged
from rollview.lake.data_files import LakeFile
from rollview.lake.disk import damage_found, first_line
from rollview.lake.store import TableFolder

# The content of a `commitInfo`: the writer, the step, and how far the content has come.
#
# It lies in the Delta commit beside the files, so content and position can never disagree. Writer and step
# are also Delta's application transaction, which outlives the cleaning of old log entries.

_KEY = "rollview"


@dataclass(frozen=True)
class Commit:
    """A step of one writer. A repeat of the same writer and step changes nothing.

    The content comes to `csn`, from `continues` where it continues an earlier one; `epoch` is that of the
    lake when it was written.
    """

    writer: str
    step: int
    csn: int
    commit_time: float
    operation: str
    continues: int | None = None
    epoch: str = ""


def information_of(commit: Commit) -> dict[str, Any]:
    """The commit in a `commitInfo`. `userMetadata` is the column of DESCRIBE HISTORY that people see."""
    said = {
        "writer": commit.writer,
        "step": commit.step,
        "csn": commit.csn,
        "commitTime": commit.commit_time,
        "operation": commit.operation,
        "continues": commit.continues,
        "epoch": commit.epoch,
    }
    return {_KEY: said, "userMetadata": _for_people(commit)}


def properties_of(commit: Commit) -> CommitProperties:
    """How deltalake writes the commit."""
    # The library must not retry automatically: after every failure the step is looked up first.
    return CommitProperties(
        custom_metadata=information_of(commit),
        max_commit_retries=0,
        app_transactions=[Transaction(commit.writer, commit.step)],
    )


def _for_people(commit: Commit) -> str:
    """Which state of the sources the content shows, and when its last transaction was, if there was one."""
    time = commit.commit_time
    when = datetime.fromtimestamp(time, UTC).isoformat(timespec="microseconds") if time else None
    return json.dumps({"operation": commit.operation, "csn": commit.csn, "commit_time": when})


def commit_of(information: Mapping[str, Any]) -> Commit | None:
    """The commit that a `commitInfo` action describes; None if rollview did not make it."""
    said = information.get(_KEY)
    if said is None:
        return None
    return Commit(
        said["writer"],
        said["step"],
        said["csn"],
        said["commitTime"],
        said["operation"],
        said.get("continues"),
        said.get("epoch", ""),
    )


def commit_in(entry: Sequence[Mapping[str, Any]]) -> Commit | None:
    """The commit that an entry of the log is; None if rollview did not make it."""
    found = [action["commitInfo"] for action in entry if "commitInfo" in action]
    return commit_of(found[0]) if found else None


_LOOKS = 4
_PAUSE_SECONDS = 0.01


class DeltaLog:
    """The newest state of a table, kept in memory and brought up to date with two looks at the disk."""

    def __init__(self, place: TableFolder, way_out: str) -> None:
        self.place = place
        self.name = place.name
        self.way_out = way_out
        self.entries = place.folder / "_delta_log"
        self.lock = RLock()
        self._table: DeltaTable | None = None
        self._mark: tuple[int, int] | None = None
        self._files: dict[str, LakeFile] = {}
        self._files_version = -1

    def exists(self) -> bool:
        with self.lock:  # A look at the store must not come between a commit in a copy and the store's word.
            return self.place.exists()

    def table(self) -> DeltaTable:
        """The table at its newest version."""
        with self.lock:
            self._refresh()
            table = self._table
            if table is not None and self._mark == self._mark_of(table.version()):
                if not self.entry(table.version() + 1).exists():
                    return table
                try:
                    table.update_incremental()
                except (DeltaError, OSError):
                    table = None
            else:
                # The entry is gone or another one: its log was cleaned up behind us, or the table recreated.
                table = None
                self._files_version, self._files = -1, {}
            self._table = table if table is not None else self.opened()
            self._mark = self._mark_of(self._table.version())
            return self._table

    def _refresh(self) -> None:
        with damage_found(self.name, "reading the log", self.way_out):
            self.place.refresh()

    def seen(self) -> DeltaTable:
        """The table as last read, without reading it again."""
        return self.table() if self._table is None else self._table

    def opened(self, version: int | None = None) -> DeltaTable:
        """The table, read from disk. A log that is being cleaned up may need a second look."""
        if version is not None:
            with damage_found(self.name, f"reading the log of version {version}", self.way_out):
                self.place.reach(version)
        for _ in range(_LOOKS):
            try:
                return DeltaTable(self.place.folder.absolute().as_uri(), version=version)
            except TableNotFoundError as error:
                raise LakeDamaged(
                    f"{self.place.address} is not a table of the lake", subject=self.name, hint=self.way_out
                ) from error
            except (DeltaError, OSError) as error:
                reason = error
                if version is not None:
                    break
                time.sleep(_PAUSE_SECONDS)
        shown = "" if version is None else f" at version {version}"
        raise LakeDamaged(
            f"{self.name} cannot be read{shown}: {first_line(reason)}",
            subject=self.name,
            hint=self.way_out,
        ) from reason

    def forget(self) -> None:
        """Makes the next look a thorough one."""
        with self.lock:
            self._table = None

    def version(self) -> int:
        return int(self.table().version())

    def last_step(self, writer: str) -> int:
        """The last step that this writer committed; 0 if there is none."""
        with self.lock:
            try:
                return self.table().transaction_version(writer) or 0
            except (DeltaError, OSError):
                # It is looked up in the log only now, and old entries may have been cleaned up meanwhile.
                self.forget()
                with damage_found(self.name, "reading the log", self.way_out):
                    return self.table().transaction_version(writer) or 0

    def files(self, version: int | None = None) -> Mapping[str, LakeFile]:
        """The data files by path, at the newest version or an older one."""
        with self.lock:
            table = self.table()
            if version is not None and version != table.version():
                opened = self.opened(version)
                with damage_found(self.name, f"reading the log of version {version}", self.way_out):
                    return _listed(opened, self.place, {})
            return self.files_of(table)

    def files_of(self, table: DeltaTable) -> Mapping[str, LakeFile]:
        """The data files of what `table` returned, without another look at the disk."""
        if self._files_version != table.version():
            with damage_found(self.name, "reading the log", self.way_out):
                self._files = _listed(table, self.place, self._files)
            self._files_version = table.version()
        return self._files

    def actions(self, version: int) -> list[dict[str, Any]]:
        """All that one entry of the log says; nothing if the entry is not there any more."""
        try:
            text = self.place.entry_text(version)
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in lines_of(text) if line.strip()]

    def commit_at(self, version: int) -> Commit | None:
        """The commit of a version; None if rollview did not make it."""
        return commit_in(self.actions(version))

    def removals(self) -> Iterator[tuple[str, float]]:
        """The files that are no longer part of the table, as far as the log remembers, and since when."""
        self.place.reach(None)
        versions = sorted(
            version
            for entry in self.entries.glob("*.json")
            if (version := whole_number(entry.stem)) is not None
        )
        checkpoints = sorted(self.entries.glob("*.checkpoint.parquet"))
        for checkpoint in checkpoints[-1:]:
            column = pq.read_table(checkpoint, columns=["remove"]).column("remove")
            for removed in column.drop_null().to_pylist():
                yield removed["path"], removed["deletionTimestamp"] / 1000
        for version in versions:
            for action in self.actions(version):
                if "remove" in action:
                    yield action["remove"]["path"], action["remove"]["deletionTimestamp"] / 1000

    def entry(self, version: int) -> Path:
        """The log entry of a version."""
        return self.entries / f"{version:020}.json"

    def _mark_of(self, version: int) -> tuple[int, int] | None:
        try:
            status = self.entry(version).stat()
        except FileNotFoundError:
            return None
        return status.st_ino, status.st_mtime_ns


def _listed(table: DeltaTable, place: TableFolder, known: Mapping[str, LakeFile]) -> dict[str, LakeFile]:
    """The table's files; only those that were not known before are looked at."""
    listing = pa.table(table.get_add_actions())
    paths = listing.column("path").to_pylist()
    fresh = [number for number, path in enumerate(paths) if path not in known]
    rows = listing.take(pa.array(fresh, pa.int64())).to_pylist()
    found = {row["path"]: _lake_file(row, place) for row in rows}
    return {path: found[path] if path in found else known[path] for path in paths}


def _lake_file(row: Mapping[str, Any], place: TableFolder) -> LakeFile:
    rows = row.get("num_records")
    if rows is None:
        # Only a file that another program added can be without statistics.
        place.fetch({row["path"]: row["size_bytes"]})
        rows = pq.read_metadata(place.data / row["path"]).num_rows
    return LakeFile(
        path=row["path"],
        rows=rows,
        size=row["size_bytes"],
        minimum=_known(row.get("min")),
        maximum=_known(row.get("max")),
        nulls=_known(row.get("null_count")),
    )


def _known(values: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (values or {}).items() if value is not None}
