"""Where a Delta table is: a folder, or a prefix of a bucket, whose log and data files have copies here."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from rollview.errors import CaptureRefused
from rollview.object_storage import LOG, LogCopy, side_by_side
from rollview.sources.bucket import Bucket

_NOT_A_NAME = re.compile(r"(?:^|/)\.{0,2}(?:/|$)|[\x00-\x1f\x7f\ud800-\udfff]")
"""Objects may not be named so: what a path of a file system would take for another folder."""


class TablePlace(Protocol):
    """One table, or the place where it was: `folder` has its log, as new as at the last `refresh`."""

    folder: Path

    def refresh(self) -> None:
        """Makes the log as new as the table."""

    def reach(self, version: int) -> None:
        """Has the log of an older version as well."""

    def commit(self, version: int) -> Path:
        """The file of a version's commit, if it is still there."""

    def mark(self, version: int) -> tuple[int, ...] | None:
        """Distinguishes the commit from another one of the same version; None if its file is not there."""

    def located(self, path: str) -> str:
        """The file of this machine for a data file, as the log names it."""

    def fetch(self, sizes: Mapping[str, int | None]) -> None:
        """Has these data files, as the log names them, in their files; FileNotFoundError if one is gone."""

    def tidy(self, needed: Callable[[], Collection[str]]) -> None:
        """Deletes what only older versions needed; `needed` are data files as the log names them."""


def table_names(place: Path | Bucket) -> list[str]:
    """The tables of a source; hidden folders are none."""
    if isinstance(place, Path):
        return sorted(log.parent.name for log in place.glob(f"*/{LOG}") if _is_shown(log.parent.name))
    names = [name for name in place.folders() if _is_shown(name)]
    have_log = side_by_side(lambda name: LOG in place.folders(name), names)
    return [name for name, has_log in zip(names, have_log, strict=True) if has_log]


def table_place(place: Path | Bucket, table: str) -> TablePlace:
    """A table, whether it is there or not."""
    return FolderTable(place / table) if isinstance(place, Path) else BucketTable(place, table)


def _is_shown(name: str) -> bool:
    return not name.startswith((".", "_"))


class FolderTable:
    """A table in a folder, where all read the very files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def refresh(self) -> None:
        """The folder is the table."""

    def reach(self, version: int) -> None:
        """All that there is of the log is in the folder."""

    def commit(self, version: int) -> Path:
        return self.folder / LOG / f"{version:020d}.json"

    def mark(self, version: int) -> tuple[int, ...] | None:
        try:
            status = self.commit(version).stat()
        except FileNotFoundError:
            return None
        return version, status.st_ino, status.st_mtime_ns, status.st_size

    def located(self, path: str) -> str:
        """A path as it stands in the log: relative to the table, or a URI, and percent-encoded either way."""
        parts = urlsplit(path)
        if parts.scheme == "file":
            return unquote(parts.path)
        if parts.scheme and "://" in path:
            raise CaptureRefused(
                f"data file {path} is not on a local file system",
                subject=path,
                hint="mount it, or copy the table",
            )
        return str(self.folder / unquote(path))

    def fetch(self, sizes: Mapping[str, int | None]) -> None:
        """They are there, or not."""

    def tidy(self, needed: Callable[[], Collection[str]]) -> None:
        """There are no copies."""


class BucketTable:
    """A table below the prefix of a bucket."""

    def __init__(self, bucket: Bucket, table: str) -> None:
        self._bucket = bucket
        self._table = table
        self._address = f"{bucket.address}/{table}"
        self._log = LogCopy(bucket, table)
        self.folder = self._log.folder

    def refresh(self) -> None:
        self._log.refresh()
        if self._log.is_broken:
            raise CaptureRefused(
                f"{self._address} cannot be opened: entries of its log are missing, "
                "or its checkpoints are of a form that is not supported",
                subject=self._address,
                hint="copy it to a table without v2Checkpoint, or restore its log",
            )

    def reach(self, version: int) -> None:
        self._log.reach(version)

    def commit(self, version: int) -> Path:
        """Entries before the newest checkpoint are not in the copy until they are asked for."""
        with self._log.lock:
            path = self._log.entry(version)
            if version <= self._log.version and not path.exists():
                with suppress(FileNotFoundError):
                    self._bucket.download(self._log.name_of(path), path)
            return path

    def mark(self, version: int) -> tuple[int, ...] | None:
        """A commit never changes; another one belongs to another table, of which there is a new copy."""
        return (version, self._log.starts) if self.commit(version).exists() else None

    def located(self, path: str) -> str:
        return str(self._bucket.copy_of(self._table, self._name(path)))

    def fetch(self, sizes: Mapping[str, int | None]) -> None:
        self._bucket.have(self._table, {self._name(path): size for path, size in sizes.items()})

    def tidy(self, needed: Callable[[], Collection[str]]) -> None:
        self._bucket.tidy(self._table, lambda: {Path(self.located(path)) for path in needed()})

    def _name(self, path: str) -> str:
        """Only what is below the table is read: a log must not lead to files of this machine or of others."""
        own = f"{self._address}/"
        name = unquote(path.removeprefix(own))
        if ("://" in path or path.startswith("file:")) and not path.startswith(own):
            raise CaptureRefused(
                f"data file {path} is not below {self._address}",
                subject=path,
                hint="copy the table, with its files, to one of its own",
            )
        if _NOT_A_NAME.search(name):
            raise CaptureRefused(f"data file {path!r} of {self._address} has a name that no object has")
        return name
