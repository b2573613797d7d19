"""What the lake needs of a place that keeps it: a few promises, and two shapes of access.

A `Store` keeps small documents by name. A `TableFolder` is one Delta table in it: to Arrow, Spark and
deltalake always a local folder, with a log and data files in it, whatever keeps the table.

The promises, which one suite of tests checks for every store: what `put`, `put_if_absent`, `publish`,
`commit_entry` and `sync_entry` have written is durable when they return; of several that put the same name
with `put_if_absent` one succeeds; an entry of a log appears whole or not at all, and never changes.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from rollview.object_storage import StoredFile


class TableFolder(Protocol):
    """One table: `folder` has its `_delta_log`, `data` the data files that are being written or read."""

    name: str
    address: str
    folder: Path
    data: Path

    def exists(self) -> bool:
        """Whether there is a table."""

    def prepare(self) -> None:
        """Makes room for a table that does not exist."""

    def refresh(self) -> None:
        """Makes `folder` as new as the store."""

    def reach(self, version: int | None) -> None:
        """Has the log of an older version in `folder` if it is still kept; None: all that is kept."""

    def entry_text(self, version: int) -> str:
        """An entry of the log; FileNotFoundError if it is not there (any more)."""

    def newest_entry(self) -> str | None:
        """The newest entry of the log; None if there is none."""

    def commit_entry(self, version: int) -> None:
        """Commits the entry that was added to `folder`; FileExistsError if somebody was faster."""

    def sync_entry(self, version: int) -> None:
        """Waits until a committed entry is durable."""

    def take_log(self, log: Path) -> None:
        """Takes over the whole log of a table elsewhere, whose data files it has; it has no log yet."""

    def publish(self, paths: Sequence[Path]) -> None:
        """Makes files that were written to `data` durable parts of the store."""

    def fetch(self, sizes: Mapping[str, int]) -> None:
        """Has these data files, of these sizes, in `data`; one that the store lacks stays missing."""

    def data_files(self) -> list[StoredFile]:
        """All data files, whether a commit names them or not."""

    def forget_copies(self, there: Container[str], now: float, age_seconds: float) -> None:
        """Deletes copies of data files that are not `there`, in the store, any more, if they are that old."""

    def lacks(self, names: Iterable[str]) -> list[str]:
        """Those data files that the store does not have."""

    def delete(self, names: Iterable[str]) -> None:
        """Deletes data files; what cannot be deleted now is left to the next time."""

    def drop(self) -> None:
        """Removes the table; no reader sees a part of it as the whole."""

    def written(self) -> float:
        """When the log was last written to; 0 if there is none."""


class Store(Protocol):
    """A place that keeps a lake."""

    address: str
    start_over: str
    """How to begin again with a lake that does not match its catalog."""

    def get(self, name: str) -> bytes:
        """A document; FileNotFoundError if it is not there."""

    def put(self, name: str, content: bytes) -> None:
        """Writes a document, all of it or nothing."""

    def put_if_absent(self, name: str, content: bytes) -> bool:
        """Writes a document unless there is one of this name; whether it did."""

    def check(self) -> None:
        """Refuses a store that cannot keep these promises."""

    def folders(self, name: str) -> list[str]:
        """The folders in a folder, in order of their names."""

    def table(self, *parts: str) -> TableFolder:
        """The table in a folder, whether it exists or not."""
