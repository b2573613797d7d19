"""The Delta log of one table, read incrementally: its versions, steps and files, newest and past."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import RLock
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from rollview.errors import LakeDamaged
from rollview.lake.commit import Commit, commit_of
from rollview.lake.disk import damage_found, first_line
from rollview.lake.file import LakeFile

_LOOKS = 4
_PAUSE_SECONDS = 0.01


class DeltaLog:
    """The newest state of a table, kept in memory and brought up to date with two looks at the disk."""

    def __init__(self, folder: Path, way_out: str) -> None:
        self.folder = folder
        self.way_out = way_out
        self.entries = folder / "_delta_log"
        self.lock = RLock()
        self._table: DeltaTable | None = None
        self._mark: tuple[int, int] | None = None
        self._files: dict[str, LakeFile] = {}
        self._files_version = -1

    def exists(self) -> bool:
        """Whether there is a table."""
        return any(self.entries.glob("*[0-9].json"))

    def table(self) -> DeltaTable:
        """The table at its newest version."""
        with self.lock:
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

    def seen(self) -> DeltaTable:
        """What was found at the last look, without another one."""
        return self.table() if self._table is None else self._table

    def opened(self, version: int | None = None) -> DeltaTable:
        """The table, read from disk. A log that is being cleaned up may need a second look."""
        for _ in range(_LOOKS):
            try:
                return DeltaTable(self.folder.absolute().as_uri(), version=version)
            except TableNotFoundError as error:
                raise LakeDamaged(
                    f"{self.folder} is not a table of the lake", subject=self.folder.name, hint=self.way_out
                ) from error
            except (DeltaError, OSError) as error:
                reason = error
                if version is not None:
                    break
                time.sleep(_PAUSE_SECONDS)
        shown = "" if version is None else f" at version {version}"
        raise LakeDamaged(
            f"{self.folder.name} cannot be read{shown}: {first_line(reason)}",
            subject=self.folder.name,
            hint=self.way_out,
        ) from reason

    def forget(self) -> None:
        """Makes the next look a thorough one."""
        with self.lock:
            self._table = None

    def version(self) -> int:
        """The newest version."""
        return int(self.table().version())

    def last_step(self, writer: str) -> int:
        """The last step that this writer committed; 0 if there is none."""
        with self.lock:
            try:
                return self.table().transaction_version(writer) or 0
            except (DeltaError, OSError):
                # It is looked up in the log only now, and old entries may have been cleaned up meanwhile.
                self.forget()
                with damage_found(self.folder.name, "reading the log", self.way_out):
                    return self.table().transaction_version(writer) or 0

    def files(self, version: int | None = None) -> Mapping[str, LakeFile]:
        """The data files by path, at the newest version or an older one."""
        with self.lock:
            table = self.table()
            if version is not None and version != table.version():
                opened = self.opened(version)
                with damage_found(self.folder.name, f"reading the log of version {version}", self.way_out):
                    return _listed(opened, self.folder, {})
            return self.files_of(table)

    def files_of(self, table: DeltaTable) -> Mapping[str, LakeFile]:
        """The data files of what `table` returned, without another look at the disk."""
        if self._files_version != table.version():
            with damage_found(self.folder.name, "reading the log", self.way_out):
                self._files = _listed(table, self.folder, self._files)
            self._files_version = table.version()
        return self._files

    def actions(self, version: int) -> list[dict[str, Any]]:
        """All that one entry of the log says; nothing if the entry is not there any more."""
        try:
            text = self.entry(version).read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in text.split("\n") if line.strip()]

    def commit_at(self, version: int) -> Commit | None:
        """What the commit of a version says of itself; None if rollview did not make it."""
        found = [action["commitInfo"] for action in self.actions(version) if "commitInfo" in action]
        return commit_of(found[0]) if found else None

    def removals(self) -> Iterator[tuple[str, float]]:
        """The files that are no longer part of the table, as far as the log remembers, and since when."""
        versions = sorted(int(entry.stem) for entry in self.entries.glob("*[0-9].json"))
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
        """Where the log tells of a version."""
        return self.entries / f"{version:020}.json"

    def _mark_of(self, version: int) -> tuple[int, int] | None:
        try:
            status = self.entry(version).stat()
        except FileNotFoundError:
            return None
        return status.st_ino, status.st_mtime_ns


def _listed(table: DeltaTable, folder: Path, known: Mapping[str, LakeFile]) -> dict[str, LakeFile]:
    """The table's files; only those that were not known before are looked at."""
    listing = pa.table(table.get_add_actions())
    paths = listing.column("path").to_pylist()
    fresh = [place for place, path in enumerate(paths) if path not in known]
    rows = listing.take(pa.array(fresh, pa.int64())).to_pylist()
    found = {row["path"]: _lake_file(row, folder) for row in rows}
    return {path: found[path] if path in found else known[path] for path in paths}


def _lake_file(row: Mapping[str, Any], folder: Path) -> LakeFile:
    rows = row.get("num_records")
    return LakeFile(
        path=row["path"],
        # Only a file that somebody else added can be without statistics.
        rows=pq.read_metadata(folder / row["path"]).num_rows if rows is None else rows,
        size=row["size_bytes"],
        minimum=_known(row.get("min")),
        maximum=_known(row.get("max")),
        nulls=_known(row.get("null_count")),
    )


def _known(values: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (values or {}).items() if value is not None}
