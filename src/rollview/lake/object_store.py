"""A lake on object storage: S3, or whatever else `obstore` speaks to.

A table is worked on in two folders of this machine. Its log is a copy that belongs to one object of one
process: a commit is made in the copy first, as on a disk, and counts once the store has taken the entry by a
conditional write. Data files never change, so copies of them are shared by all processes, and a file that was
written here is never asked for. So deltalake, Arrow and Spark see ordinary files and need no credentials.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from rollview.ascii_text import whole_number
from rollview.errors import LakeError, StoreUnavailable
from rollview.imports import deferred, require
from rollview.lake.disk import files_of_log, first_line
from rollview.lake.store import StoredFile

if TYPE_CHECKING:
    import obstore
    from obstore import exceptions
    from obstore import store as stores
else:
    obstore = deferred("obstore")
    exceptions = deferred("obstore.exceptions")
    stores = deferred("obstore.store")

LOG = "_delta_log"
LOG_SECONDS = 3600.0
"""How long entries of a log are kept once a checkpoint covers them, as on a disk."""

_AT_ONCE = 8
_TIMEOUT = timedelta(seconds=30)
_RETRY_SECONDS = timedelta(seconds=60)
_RETRIES = 10

_CODE = re.compile("<Code>([A-Za-z0-9]+)</Code>")
"""What S3 calls an error, such as `NoSuchBucket` or `AccessDenied`."""

_T = TypeVar("_T")
_R = TypeVar("_R")


def open_s3(url: str, settings: Mapping[str, str], copies: Path) -> ObjectStore:
    """The lake at `s3://bucket/prefix`; `copies` is the folder of this machine for data files.

    What `settings`, `storage` in the project file, does not say comes from the environment (`AWS_…`).
    """
    require("s3", f"a lake at {url}", otherwise="or name a folder in `lake`")
    endpoint = settings.get("endpoint") or os.environ.get(
        "AWS_ENDPOINT_URL_S3", os.environ.get("AWS_ENDPOINT_URL", "")
    )
    config: dict[str, Any] = {key: value for key, value in settings.items() if key != "endpoint"}
    if endpoint:
        config["endpoint"] = endpoint
    try:
        kept = stores.S3Store.from_url(
            url,
            config=config,  # type: ignore[arg-type]
            client_options={"allow_http": endpoint.startswith("http://"), "timeout": _TIMEOUT},
            retry_config={"max_retries": _RETRIES, "retry_timeout": _RETRY_SECONDS},
        )
    except (exceptions.BaseError, ValueError) as error:
        raise LakeError(
            f"{url} is not an address of S3: {error}", subject=url, hint="for example s3://bucket/folder"
        ) from None
    return ObjectStore(kept, url, copies)


@contextmanager
def _answered(address: str, doing: str, may_be_missing: bool = False) -> Iterator[None]:
    """Turns the errors of requests into one: whether they were carried out is not known."""
    try:
        yield
    except (exceptions.BaseError, FileNotFoundError) as error:
        code = _CODE.search(str(error))
        # A missing bucket, or an unknown user, is 404 as well.
        is_missing = isinstance(error, FileNotFoundError) and (code is None or code[1] == "NoSuchKey")
        if may_be_missing and is_missing:
            raise
        raise StoreUnavailable(
            f"{address}: {doing} failed: {code[1] if code else first_line(error)}",
            subject=address,
            hint="run the same command again; if it fails again, check bucket, endpoint, keys and network",
        ) from error


class ObjectStore:
    """A lake below a prefix of a bucket."""

    start_over = "name another prefix in `lake` and another `catalog`, and run `rollview setup`"

    def __init__(self, kept: Any, address: str, copies: Path) -> None:
        self.kept = kept
        self.address = address.rstrip("/")
        self.copies = copies

    def get(self, name: str) -> bytes:
        with _answered(self.address, f"reading {name}", may_be_missing=True):
            return bytes(obstore.get(self.kept, name).bytes())

    def put(self, name: str, content: bytes) -> None:
        with _answered(self.address, f"writing {name}"):
            obstore.put(self.kept, name, content)

    def put_if_absent(self, name: str, content: bytes) -> bool:
        """A request that was repeated because its answer was lost finds what it wrote itself."""
        try:
            with _answered(self.address, f"writing {name}"):
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

    def folders(self, name: str) -> list[str]:
        with _answered(self.address, f"listing {name}"):
            found = obstore.list_with_delimiter(self.kept, f"{name}/")
        return sorted(prefix.rstrip("/").rpartition("/")[2] for prefix in found["common_prefixes"])

    def files(self, folder: str) -> list[StoredFile]:
        """The objects directly in a folder."""
        with _answered(self.address, f"listing {folder}"):
            found = obstore.list_with_delimiter(self.kept, f"{folder}/")
        return [_stored(each) for each in found["objects"]]

    def files_after(self, folder: str, name: str) -> list[StoredFile]:
        """The objects in a folder whose names come after this one, in order."""
        with _answered(self.address, f"listing {folder}"):
            pages = obstore.list(self.kept, f"{folder}/", offset=f"{folder}/{name}", chunk_size=1000)
            return sorted((_stored(each) for page in pages for each in page), key=lambda file: file.name)

    def delete(self, names: Sequence[str]) -> None:
        if names:
            with suppress(FileNotFoundError), _answered(self.address, "deleting", may_be_missing=True):
                obstore.delete(self.kept, list(names))

    def download(self, name: str, path: Path) -> None:
        """An object as a file, which appears whole."""
        unfinished = path.with_name(f".{path.name}.{uuid4().hex}")
        try:
            with (
                _answered(self.address, f"reading {name}", may_be_missing=True),
                unfinished.open("wb") as file,
            ):
                found = obstore.get(self.kept, name)
                modified = found.meta["last_modified"].timestamp()
                for chunk in found.stream(min_chunk_size=8 << 20):
                    file.write(chunk)
            os.utime(unfinished, (modified, modified))
            unfinished.rename(path)
        finally:
            unfinished.unlink(missing_ok=True)

    def upload(self, path: Path, name: str) -> None:
        with _answered(self.address, f"writing {name}"):
            obstore.put(self.kept, name, path)

    def table(self, *parts: str) -> ObjectTable:
        return ObjectTable(self, "/".join(parts))


def _unfit(address: str, reason: str) -> LakeError:
    return LakeError(
        f"{address} cannot keep a lake: {reason}",
        subject=address,
        hint="use a store with conditional writes (PUT with If-None-Match), as Amazon S3 has, or a folder",
    )


def _stored(found: Any) -> StoredFile:
    name = found["path"].rpartition("/")[2]
    return StoredFile(name, found["last_modified"].timestamp(), found["size"], found.get("e_tag") or "")


@dataclass(frozen=True)
class _Log:
    """What a listing of a log shows: entries and checkpoints by version."""

    entries: Mapping[int, StoredFile]
    checkpoints: Mapping[int, StoredFile]

    @classmethod
    def of(cls, files: Iterable[StoredFile]) -> _Log:
        entries, checkpoints = {}, {}
        for file in files:
            number, _, kind = file.name.partition(".")
            version = whole_number(number)
            if version is not None and kind == "json":
                entries[version] = file
            elif version is not None and kind == "checkpoint.parquet":
                checkpoints[version] = file
        return cls(entries, checkpoints)

    @property
    def newest(self) -> int:
        return max(self.entries, default=-1)

    def needed(self, version: int) -> list[StoredFile]:
        """The files that tell the state at a version; none if it cannot be told any more."""
        start = max((each for each in self.checkpoints if each <= version), default=0)
        numbers = range(start if start in self.entries or not start else start + 1, version + 1)
        if version not in self.entries or not all(number in self.entries for number in numbers):
            return []
        entries = [self.entries[number] for number in numbers]
        return [*([self.checkpoints[start]] if start in self.checkpoints else []), *entries]


class ObjectTable:
    """A table on object storage, with the copy of its log that one object of this process has."""

    def __init__(self, store: ObjectStore, place: str) -> None:
        self.name = place.rpartition("/")[2]
        self.address = f"{store.address}/{place}"
        own = Path(tempfile.mkdtemp(prefix="rollview-log-"))
        weakref.finalize(self, shutil.rmtree, own, True)
        self.folder = own / self.name
        self.data = store.copies / place
        self._store = store
        self._place = place
        self._lock = RLock()
        self._version = -1
        self._mark = ""

    def exists(self) -> bool:
        self.refresh()
        return self._version >= 0

    def prepare(self) -> None:
        """Clears what a table that was dropped halfway has left."""
        self.drop()
        self.data.mkdir(parents=True, exist_ok=True)

    def refresh(self) -> None:
        """One listing, of what is newer than the copy; then only new entries are read."""
        with self._lock:
            self.data.mkdir(parents=True, exist_ok=True)
            if self._version >= 0 and not self._entry(self._version + 1).exists():
                # The last entry known is listed, too: another one, or none, means another table.
                found = self._listed(after=f"{self._version:020}.")
                known = found.entries.get(self._version)
                if known is not None and self._mark in ("", known.mark):
                    newer = [found.entries[each] for each in sorted(found.entries) if each > self._version]
                    self._download(newer)
                    self._version, self._mark = found.newest, found.entries[found.newest].mark
                    return
            self._start()

    def _start(self) -> None:
        """A new copy, from the newest checkpoint."""
        self._clear()
        found = self._listed()
        if needed := found.needed(found.newest):
            self._download(needed)
            self._version, self._mark = found.newest, found.entries[found.newest].mark

    def _clear(self) -> None:
        self._version, self._mark = -1, ""
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.folder / LOG).mkdir(parents=True, exist_ok=True)

    def reach(self, version: int | None) -> None:
        with self._lock:
            found = self._listed()
            if version is None:
                newest = [found.checkpoints[max(found.checkpoints)]] if found.checkpoints else []
                self._download([*newest, *found.entries.values()])
            else:
                self._download(found.needed(version))

    def entry_text(self, version: int) -> str:
        with suppress(FileNotFoundError):
            return self._entry(version).read_text(encoding="utf-8")
        return self._store.get(f"{self._place}/{LOG}/{version:020}.json").decode("utf-8")

    def newest_entry(self) -> str | None:
        found = self._listed()
        with suppress(FileNotFoundError):
            return self.entry_text(found.newest) if found.entries else None
        return None

    def commit_entry(self, version: int) -> None:
        """The store takes the entry, or the copy forgets it."""
        with self._lock:
            path = self._entry(version)
            try:
                if not self._store.put_if_absent(self._name_of(path), path.read_bytes()):
                    raise FileExistsError(
                        f"{self.address}: version {version} was committed by another writer"
                    )
            except BaseException:
                self._clear()
                raise
            self._version, self._mark = version, ""
            with suppress(OSError, StoreUnavailable):  # A checkpoint only makes opening faster.
                self._publish_checkpoint(version)

    def _publish_checkpoint(self, version: int) -> None:
        """A checkpoint that was made with the commit; then entries that it makes needless are deleted."""
        path = self.folder / LOG / f"{version:020}.checkpoint.parquet"
        if path.exists():
            for part in (path, path.with_name("_last_checkpoint")):
                self._store.put(self._name_of(part), part.read_bytes())
            self._clean_up()

    def _clean_up(self) -> None:
        """Deletes what only versions need that are older than `LOG_SECONDS`."""
        found, limit = self._listed(), time.time() - LOG_SECONDS
        covered = max((each for each, file in found.checkpoints.items() if file.modified < limit), default=0)
        old = [
            file
            for files in (found.entries, found.checkpoints)
            for each, file in files.items()
            if each < covered
        ]
        self._store.delete([f"{self._place}/{LOG}/{file.name}" for file in old])

    def sync_entry(self, version: int) -> None:
        """What the store has taken is durable."""

    def take_log(self, log: Path) -> None:
        _side_by_side(lambda path: self._store.upload(path, self._name_of(path)), files_of_log(log))

    def publish(self, paths: Sequence[Path]) -> None:
        _side_by_side(lambda path: self._store.upload(path, f"{self._place}/{path.name}"), paths)

    def fetch(self, sizes: Mapping[str, int]) -> None:
        """A copy of another size was cut off by a crash of this machine."""
        missing = [name for name, size in sizes.items() if not _is_whole(self.data / name, size)]
        if missing:
            self.data.mkdir(parents=True, exist_ok=True)

            def download(name: str) -> None:
                with suppress(FileNotFoundError):
                    self._store.download(f"{self._place}/{name}", self.data / name)

            _side_by_side(download, missing)

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
        with self._lock:
            found = self._listed()
            log = f"{self._place}/{LOG}"
            if found.checkpoints:
                names = [file.name for file in found.checkpoints.values()]
                self._store.delete([f"{log}/{name}" for name in ("_last_checkpoint", *names)])
            if found.entries:
                # Without its first entry a log without checkpoints says nothing.
                oldest, *others = (found.entries[version].name for version in sorted(found.entries))
                self._store.delete([f"{log}/{oldest}"])
                self._store.delete([f"{log}/{name}" for name in others])
            self._store.delete([f"{self._place}/{file.name}" for file in self._store.files(self._place)])
            shutil.rmtree(self.data, ignore_errors=True)
            self._clear()

    def written(self) -> float:
        found = self._listed()
        return max((file.modified for file in found.entries.values()), default=0.0)

    def _listed(self, after: str = "") -> _Log:
        log = f"{self._place}/{LOG}"
        return _Log.of(self._store.files_after(log, after) if after else self._store.files(log))

    def _download(self, files: Sequence[StoredFile]) -> None:
        paths = [path for file in files if not (path := self.folder / LOG / file.name).exists()]
        _side_by_side(lambda path: self._store.download(self._name_of(path), path), paths)

    def _name_of(self, path: Path) -> str:
        return f"{self._place}/{LOG}/{path.name}"

    def _entry(self, version: int) -> Path:
        return self.folder / LOG / f"{version:020}.json"


def _is_whole(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except FileNotFoundError:
        return False


def _side_by_side(action: Callable[[_T], _R], items: Sequence[_T]) -> list[_R]:
    """An action for each item, several at once; raises the first error."""
    if len(items) < 2:
        return [action(item) for item in items]
    with ThreadPoolExecutor(min(_AT_ONCE, len(items))) as pool:
        return list(pool.map(action, items))
