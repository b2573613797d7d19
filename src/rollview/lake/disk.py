"""A lake in a folder of a file system: files are synced before anything depends on them, errors explained."""

from __future__ import annotations

import errno
import os
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import copy2, rmtree
from tempfile import mkdtemp
from uuid import uuid4

import pyarrow as pa
from deltalake.exceptions import DeltaError

from rollview.errors import LakeDamaged, LakeUnavailable
from rollview.object_storage import StoredFile

FOLDERS = ("changes", "deltas", "stages", "state", "views")
"""The folders of a lake's tables; `stages` is of older releases."""


def sync(path: Path) -> None:
    """Waits until a file's content, or a folder's entries, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def discard(paths: Iterable[Path]) -> None:
    """Deletes files that nothing refers to; what cannot be deleted now is left to vacuum."""
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError:
            continue


@contextmanager
def explained(subject: str, doing: str) -> Iterator[None]:
    """Turns the errors of disk, Arrow and deltalake into one that says what was being done."""
    try:
        yield
    except (OSError, pa.ArrowException, DeltaError) as error:
        raise LakeUnavailable(
            f"{subject}: {doing} failed: {first_line(error)}", subject=subject, hint=hint_for(error)
        ) from error


@contextmanager
def damage_found(subject: str, doing: str, way_out: str) -> Iterator[None]:
    """The same for reading: what is missing or makes no sense is damage, with a way out of its own."""
    try:
        yield
    except (FileNotFoundError, pa.ArrowException, DeltaError) as error:
        message = f"{subject}: {doing} failed: {first_line(error)}"
        raise LakeDamaged(message, subject=subject, hint=way_out) from error
    except OSError as error:
        message = f"{subject}: {doing} failed: {first_line(error)}"
        if error.errno is None:
            raise LakeDamaged(message, subject=subject, hint=way_out) from error
        raise LakeUnavailable(message, subject=subject, hint=hint_for(error)) from error


def files_of_log(log: Path) -> list[Path]:
    """Entries and checkpoints, without what a writer has not finished."""
    return [path for path in sorted(log.iterdir()) if path.is_file() and path.name[0] in "0123456789_"]


def first_line(error: BaseException) -> str:
    """The message of an error, without the stack of a library."""
    return str(error).strip().split("\n", 1)[0][:300]


def hint_for(error: BaseException) -> str:
    """The way out of an error of the disk."""
    if getattr(error, "errno", None) == errno.ENOSPC or "No space left on device" in str(error):
        return "the disk is full: make room and run the same command again; nothing was changed"
    return "nothing was changed: remove the cause and run the same command again"


class Disk:
    """A lake in a folder."""

    start_over = "`rollview recover` moves the old tables aside and reloads the views"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = str(folder)

    def get(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()

    def put(self, name: str, content: bytes) -> None:
        """Under another name first, so that all of it appears at once."""
        path, unfinished = self._unfinished(name, content)
        unfinished.rename(path)
        sync(path.parent)

    def put_if_absent(self, name: str, content: bytes) -> bool:
        path, unfinished = self._unfinished(name, content)
        try:
            path.hardlink_to(unfinished)
        except FileExistsError:
            return False
        finally:
            unfinished.unlink()
        sync(path.parent)
        return True

    def check(self) -> None:
        """A folder keeps them, on a file system with atomic renames."""

    def _unfinished(self, name: str, content: bytes) -> tuple[Path, Path]:
        path = self.folder / name
        unfinished = path.with_name(f"{path.name}.{uuid4().hex}")
        try:
            unfinished.write_bytes(content)
            sync(unfinished)
        except BaseException:
            discard([unfinished])
            raise
        return path, unfinished

    def folders(self, name: str) -> list[str]:
        with suppress(FileNotFoundError, NotADirectoryError):
            return sorted(path.name for path in (self.folder / name).iterdir() if path.is_dir())
        return []

    def table(self, *parts: str) -> DiskTable:
        return DiskTable(self.folder.joinpath(*parts), self.folder)


class DiskTable:
    """A table in a folder, where deltalake, Arrow and Spark work on the very files."""

    def __init__(self, folder: Path, lake: Path | None = None) -> None:
        self.folder = self.data = folder
        self.name = folder.name
        self.address = str(folder.absolute())
        self._lake = folder.parent if lake is None else lake
        self._entries = folder / "_delta_log"

    def exists(self) -> bool:
        return any(self._entries.glob("*[0-9].json"))

    def prepare(self) -> None:
        """Makes the folder."""
        self.folder.mkdir(parents=True, exist_ok=True)

    def refresh(self) -> None:
        """The folder is the store."""

    def reach(self, version: int | None) -> None:
        """All that there is of the log is in the folder."""

    def entry_text(self, version: int) -> str:
        return (self._entries / f"{version:020}.json").read_text(encoding="utf-8")

    def newest_entry(self) -> str | None:
        entries = sorted(self._entries.glob("[0-9]*.json"))
        with suppress(FileNotFoundError):  # The table is being dropped.
            return entries[-1].read_text(encoding="utf-8") if entries else None
        return None

    def commit_entry(self, version: int) -> None:
        """An entry in the folder is committed."""

    def sync_entry(self, version: int) -> None:
        """Syncs the entry and the folder that names it; of a new table the table's folder, too."""
        sync(self._entries / f"{version:020}.json")
        sync(self._entries)
        if version == 0:
            sync(self.folder)

    def take_log(self, log: Path) -> None:
        """Copies and syncs each file, then the folders that name them."""
        self._entries.mkdir(parents=True)
        for file in files_of_log(log):
            sync(Path(copy2(file, self._entries)))
        sync(self._entries)
        sync(self.folder)

    def publish(self, paths: Sequence[Path]) -> None:
        """Syncs the files, then the folder that names them."""
        for path in paths:
            sync(path)
        if paths:
            sync(self.folder)

    def fetch(self, sizes: Mapping[str, int]) -> None:
        """They are in the folder."""

    def data_files(self) -> list[StoredFile]:
        found = []
        for path in self.folder.glob("*.parquet"):
            with suppress(FileNotFoundError):  # Gone meanwhile, so another process works there.
                known = path.stat()
                found.append(StoredFile(path.name, known.st_mtime, known.st_size))
        return found

    def forget_copies(self, there: Container[str], now: float, age_seconds: float) -> None:
        """There are no copies."""

    def lacks(self, names: Iterable[str]) -> list[str]:
        there = {path.name for path in self.folder.glob("*.parquet")}
        return [name for name in names if name not in there and not (self.folder / name).exists()]

    def delete(self, names: Iterable[str]) -> None:
        """With the checksum files that Spark may have put beside them."""
        for name in names:
            discard([self.folder / name, self.folder / f".{name}.crc"])

    def drop(self) -> None:
        """The table vanishes at once, however long deleting its files takes."""
        if self.folder.exists():
            self._check_own()
            trash = Path(mkdtemp(dir=self._lake, prefix=".dropped-"))
            self.folder.rename(trash / self.name)
            rmtree(trash, ignore_errors=True)

    def _check_own(self) -> None:
        """Only a table of this lake is removed: a folder where the lake has them, reached without links."""
        below = self.folder.absolute().relative_to(self._lake.absolute()).parts
        # The lake itself may be reached through a link; nothing below it is.
        is_here = self.folder.resolve() == self._lake.resolve().joinpath(*below)
        is_table = self._entries.is_dir() or not any(self.folder.iterdir())
        if below[0] not in FOLDERS or not is_here or not is_table:
            raise LakeDamaged(
                f"{self.folder} is not a table of this lake, so it is not removed",
                subject=str(self.folder),
                hint="somebody put it there, or a link: move it away",
            )

    def written(self) -> float:
        return self._entries.stat().st_mtime if self._entries.exists() else 0.0
