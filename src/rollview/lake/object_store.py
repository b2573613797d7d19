"""A lake on object storage: S3, or whatever else `obstore` speaks to.

A table is worked on in two folders of this machine: a copy of its log, and copies of data files
(`rollview.object_storage`). A commit is made in the copy of the log first, as on a disk, and counts once the
store has taken the entry by a conditional write. A data file that was written here is never asked for.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from rollview.errors import LakeError, StoreUnavailable
from rollview.imports import deferred
from rollview.lake.disk import files_of_log
from rollview.object_storage import LOG, LogCopy, Objects, StoredFile, connected, side_by_side

if TYPE_CHECKING:
    import obstore
    from obstore import exceptions
else:
    obstore = deferred("obstore")
    exceptions = deferred("obstore.exceptions")

LOG_SECONDS = 3600.0
"""How long entries of a log are kept once a checkpoint covers them, as on a disk."""

_RETRIES = 10
_RETRY_SECONDS = 60


def open_s3(url: str, settings: Mapping[str, str], copies: Path) -> ObjectStore:
    """The lake at `s3://bucket/prefix`; `copies` is the folder of this machine for data files.

    What `settings`, `storage` in the project file, does not say comes from the environment (`AWS_…`).
    """
    otherwise = "or name a folder in `lake`"
    kept = connected(url, settings, f"a lake at {url}", otherwise, _RETRIES, _RETRY_SECONDS)
    return ObjectStore(kept, url, copies)


class ObjectStore(Objects):
    """A lake below a prefix of a bucket."""

    start_over = "name another prefix in `lake` and another `catalog`, and run `rollview setup`"
    unavailable = StoreUnavailable

    def __init__(self, kept: Any, address: str, copies: Path) -> None:
        super().__init__(kept, address)
        self.copies = copies

    def put(self, name: str, content: bytes) -> None:
        with self.answered(f"writing {name}"):
            obstore.put(self.kept, name, content)

    def put_if_absent(self, name: str, content: bytes) -> bool:
        """A request that was repeated because its answer was lost finds what it wrote itself."""
        try:
            with self.answered(f"writing {name}"):
                obstore.put(self.kept, name, content, mode="create", use_multipart=False)
        except StoreUnavailable as error:
            if isinstance(error.__cause__, exceptions.AlreadyExistsError | exceptions.PreconditionError):
                return self.get(name) == content
            raise
        return True

    def check(self) -> None:
        """Refuses a store that lets two writers write the same entry of a log."""
        name = f".rollview-check-{uuid4().hex}"
        try:
            is_kept = self.put_if_absent(name, b"first") and not self.put_if_absent(name, b"second")
        except StoreUnavailable as error:
            if (
                not isinstance(error.__cause__, exceptions.NotSupportedError)
                and "NotImpl" not in error.message
            ):
                raise
            raise _unfit(self.address, "it does not know conditional writes") from error
        finally:
            with suppress(StoreUnavailable):
                self.delete([name])
        if not is_kept:
            raise _unfit(self.address, "it overwrites an object that was to be written only if absent")

    def delete(self, names: Sequence[str]) -> None:
        if names:
            with suppress(FileNotFoundError), self.answered("deleting", may_be_missing=True):
                obstore.delete(self.kept, list(names))

    def upload(self, path: Path, name: str) -> None:
        with self.answered(f"writing {name}"):
            obstore.put(self.kept, name, path)

    def table(self, *parts: str) -> ObjectTable:
        return ObjectTable(self, "/".join(parts))


def _unfit(address: str, reason: str) -> LakeError:
    return LakeError(
        f"{address} cannot keep a lake: {reason}",
        subject=address,
        hint="use a store with conditional writes (PUT with If-None-Match), as Amazon S3 has, or a folder",
    )


class ObjectTable:
    """A table on object storage, with the copy of its log that one object of this process has."""

    def __init__(self, store: ObjectStore, place: str) -> None:
        self.name = place.rpartition("/")[2]
        self.address = f"{store.address}/{place}"
        self.data = store.copies / place
        self._store = store
        self._place = place
        self._log = LogCopy(store, place)
        self.folder = self._log.folder

    def exists(self) -> bool:
        self.refresh()
        return self._log.version >= 0

    def prepare(self) -> None:
        """Clears what a table that was dropped halfway has left."""
        self.drop()
        self.data.mkdir(parents=True, exist_ok=True)

    def refresh(self) -> None:
        self.data.mkdir(parents=True, exist_ok=True)
        self._log.refresh()

    def reach(self, version: int | None) -> None:
        self._log.reach(version)

    def entry_text(self, version: int) -> str:
        path = self._log.entry(version)
        with suppress(FileNotFoundError):
            return path.read_text(encoding="utf-8")
        return self._store.get(self._log.name_of(path)).decode("utf-8")

    def newest_entry(self) -> str | None:
        found = self._log.listed()
        with suppress(FileNotFoundError):
            return self.entry_text(found.newest) if found.entries else None
        return None

    def commit_entry(self, version: int) -> None:
        """The store takes the entry, or the copy forgets it."""
        with self._log.lock:
            path = self._log.entry(version)
            try:
                if not self._store.put_if_absent(self._log.name_of(path), path.read_bytes()):
                    raise FileExistsError(
                        f"{self.address}: version {version} was committed by another writer"
                    )
            except BaseException:
                self._log.clear()
                raise
            self._log.advance(version)
            with suppress(OSError, StoreUnavailable):  # A checkpoint only makes opening faster.
                self._publish_checkpoint(version)

    def _publish_checkpoint(self, version: int) -> None:
        """A checkpoint that was made with the commit; then entries that it makes needless are deleted."""
        path = self.folder / LOG / f"{version:020}.checkpoint.parquet"
        if path.exists():
            for part in (path, path.with_name("_last_checkpoint")):
                self._store.put(self._log.name_of(part), part.read_bytes())
            self._clean_up()

    def _clean_up(self) -> None:
        """Deletes what only versions need that are older than `LOG_SECONDS`."""
        found, limit = self._log.listed(), time.time() - LOG_SECONDS
        checkpoints = {version: files[0] for version, files in found.checkpoints.items()}
        covered = max((each for each, file in checkpoints.items() if file.modified < limit), default=0)
        old = [
            file for files in (found.entries, checkpoints) for each, file in files.items() if each < covered
        ]
        self._store.delete([f"{self._place}/{LOG}/{file.name}" for file in old])

    def sync_entry(self, version: int) -> None:
        """What the store has taken is durable."""

    def take_log(self, log: Path) -> None:
        side_by_side(lambda path: self._store.upload(path, self._log.name_of(path)), files_of_log(log))

    def publish(self, paths: Sequence[Path]) -> None:
        side_by_side(lambda path: self._store.upload(path, f"{self._place}/{path.name}"), paths)

    def fetch(self, sizes: Mapping[str, int]) -> None:
        self._store.fetch({f"{self._place}/{name}": (self.data / name, size) for name, size in sizes.items()})

    def data_files(self) -> list[StoredFile]:
        return [file for file in self._store.files(self._place) if file.name.endswith(".parquet")]

    def forget_copies(self, there: Container[str], now: float, age_seconds: float) -> None:
        """Copies of files that another machine has deleted; one that is not published yet is young."""
        for path in self.data.glob("*.parquet"):
            with suppress(OSError):
                if path.name not in there and now - path.stat().st_mtime > age_seconds:
                    path.unlink()

    def lacks(self, names: Iterable[str]) -> list[str]:
        """Files that have a copy here are not looked for."""
        unknown = [name for name in names if not (self.data / name).exists()]
        there = {file.name for file in self.data_files()} if unknown else set()
        return [name for name in unknown if name not in there]

    def delete(self, names: Iterable[str]) -> None:
        chosen = list(names)
        with suppress(StoreUnavailable):
            self._store.delete([f"{self._place}/{name}" for name in chosen])
        for name in chosen:
            with suppress(OSError):
                (self.data / name).unlink(missing_ok=True)

    def drop(self) -> None:
        """Checkpoints first, then entries from the oldest: what is left cannot be read as a table."""
        with self._log.lock:
            found = self._log.listed()
            log = f"{self._place}/{LOG}"
            if found.checkpoints:
                names = [file.name for files in found.checkpoints.values() for file in files]
                self._store.delete([f"{log}/{name}" for name in ("_last_checkpoint", *names)])
            if found.entries:
                # Without its first entry a log without checkpoints says nothing.
                oldest, *others = (found.entries[version].name for version in sorted(found.entries))
                self._store.delete([f"{log}/{oldest}"])
                self._store.delete([f"{log}/{name}" for name in others])
            self._store.delete([f"{self._place}/{file.name}" for file in self._store.files(self._place)])
            shutil.rmtree(self.data, ignore_errors=True)
            self._log.clear()

    def written(self) -> float:
        found = self._log.listed()
        return max((file.modified for file in found.entries.values()), default=0.0)
