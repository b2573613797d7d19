"""Objects below a prefix of a bucket, as files of this machine: for the lake, and for sources of files.

Of a Delta table two things are copied. Its log is a copy that belongs to one object of one process, as new as
the store whenever that is asked for. Data files never change, so copies of them are shared by all processes.
So deltalake, Arrow and Spark see ordinary files and need no credentials: those go to `obstore` alone.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar
from uuid import uuid4

from rollview.ascii_text import whole_number
from rollview.errors import InputError, LakeError, SourceError
from rollview.imports import deferred, require

if TYPE_CHECKING:
    import obstore
    from obstore import exceptions
    from obstore import store as stores
else:
    obstore = deferred("obstore")
    exceptions = deferred("obstore.exceptions")
    stores = deferred("obstore.store")

LOG = "_delta_log"

LOCAL_PART = ".rollview"
"""The folder beside the project file for what this machine has of a lake or a source at a URL."""

SETTINGS = ("access_key_id", "secret_access_key", "session_token", "region", "endpoint")
"""How a bucket is reached; what they do not say comes from the environment (`AWS_…`)."""

_S3_URL = re.compile(r"s3://[A-Za-z0-9][A-Za-z0-9._-]+(/[A-Za-z0-9._/=-]*)?")
_AT_ONCE = 8
_TIMEOUT = timedelta(seconds=30)

_CODE = re.compile("<Code>([A-Za-z0-9]+)</Code>")
"""What S3 calls an error, such as `NoSuchBucket` or `AccessDenied`."""

_CHECKPOINT = re.compile(r"checkpoint(?:\.(?P<part>[0-9]{10})\.(?P<parts>[0-9]{10}))?\.parquet", re.ASCII)
"""Of the name of a checkpoint what follows the version: it is one file, or consists of parts."""

_T = TypeVar("_T")
_R = TypeVar("_R")


@dataclass(frozen=True)
class StoredFile:
    """A file in a store: its name in its folder, when it was written, its size, and a mark of its content."""

    name: str
    modified: float
    size: int
    mark: str = ""


def is_s3(place: str) -> bool:
    """Whether a place is a prefix of a bucket, and no other one than it says."""
    prefix = place.removeprefix("s3://").rstrip("/").split("/")
    return _S3_URL.fullmatch(place) is not None and not {"", ".", ".."} & set(prefix)


def endpoint_of(settings: Mapping[str, str]) -> str:
    """Where the requests go; empty for Amazon's own address."""
    usual = os.environ.get("AWS_ENDPOINT_URL_S3", os.environ.get("AWS_ENDPOINT_URL", ""))
    return settings.get("endpoint") or usual


def connected(
    url: str, settings: Mapping[str, str], needed_for: str, otherwise: str, tries: int, seconds: int
) -> Any:
    """What `obstore` makes of `s3://bucket/prefix`. A failed request is repeated so often and for so long.

    `needed_for` and `otherwise` are for the refusal of an installation without it.
    """
    require("s3", needed_for, otherwise=otherwise)
    endpoint = endpoint_of(settings)
    config: dict[str, Any] = {key: value for key, value in settings.items() if key != "endpoint"}
    if endpoint:
        config["endpoint"] = endpoint
    try:
        return stores.S3Store.from_url(
            url,
            config=config,  # type: ignore[arg-type]
            client_options={"allow_http": endpoint.startswith("http://"), "timeout": _TIMEOUT},
            retry_config={"max_retries": tries, "retry_timeout": timedelta(seconds=seconds)},
        )
    except (exceptions.BaseError, ValueError) as error:
        raise InputError(
            f"{url} is not an address of S3: {error}", subject=url, hint="for example s3://bucket/folder"
        ) from None


class Objects:
    """The objects below a prefix; a request without a usable answer raises `unavailable`."""

    unavailable: ClassVar[type[LakeError | SourceError]]

    def __init__(self, kept: Any, address: str) -> None:
        self.kept = kept
        self.address = address.rstrip("/")

    @contextmanager
    def answered(self, doing: str, may_be_missing: bool = False) -> Iterator[None]:
        """Turns the errors of requests into one: whether they were carried out is not known."""
        try:
            yield
        except (exceptions.BaseError, FileNotFoundError) as error:
            code = _CODE.search(str(error))
            # A missing bucket, or an unknown user, is 404 as well.
            is_missing = isinstance(error, FileNotFoundError) and (code is None or code[1] == "NoSuchKey")
            if may_be_missing and is_missing:
                raise
            reason = code[1] if code else str(error).strip().split("\n", 1)[0][:300]
            raise self.unavailable(
                f"{self.address}: {doing} failed: {reason}",
                subject=self.address,
                hint="run the same command again; if it fails again, check bucket, endpoint, keys and "
                "network",
            ) from error

    def get(self, name: str) -> bytes:
        with self.answered(f"reading {name}", may_be_missing=True):
            return bytes(obstore.get(self.kept, name).bytes())

    def folders(self, name: str = "") -> list[str]:
        """The folders directly in a folder, in order of their names."""
        with self.answered(f"listing {name}".rstrip()):
            found = obstore.list_with_delimiter(self.kept, f"{name}/" if name else None)
        return sorted(prefix.rstrip("/").rpartition("/")[2] for prefix in found["common_prefixes"])

    def files(self, folder: str) -> list[StoredFile]:
        """The objects directly in a folder."""
        with self.answered(f"listing {folder}"):
            found = obstore.list_with_delimiter(self.kept, f"{folder}/")
        return [_stored(each) for each in found["objects"]]

    def files_after(self, folder: str, name: str) -> list[StoredFile]:
        """The objects in a folder whose names come after this one, in order."""
        with self.answered(f"listing {folder}"):
            pages = obstore.list(self.kept, f"{folder}/", offset=f"{folder}/{name}", chunk_size=1000)
            return sorted((_stored(each) for page in pages for each in page), key=lambda file: file.name)

    def files_below(self, folder: str) -> list[StoredFile]:
        """All objects below a folder, with their names from there."""
        with self.answered(f"listing {folder}"):
            pages = obstore.list(self.kept, f"{folder}/", chunk_size=1000)
            found = [(_stored(each), each["path"]) for page in pages for each in page]
        return [replace(file, name=path.removeprefix(f"{folder}/")) for file, path in found]

    def download(self, name: str, path: Path, mark: str = "") -> None:
        """An object as a file, which appears whole; its times are those of the use and of the object.

        With a `mark`, the object of this content or none.
        """
        unfinished = path.with_name(f".{path.name}.{uuid4().hex}")
        try:
            with (
                self.answered(f"reading {name}", may_be_missing=True),
                unfinished.open("wb") as file,
            ):
                found = self._object(name, mark)
                modified = found.meta["last_modified"].timestamp()
                for chunk in found.stream(min_chunk_size=8 << 20):
                    file.write(chunk)
            os.utime(unfinished, (time.time(), modified))
            unfinished.rename(path)
        finally:
            unfinished.unlink(missing_ok=True)

    def _object(self, name: str, mark: str) -> Any:
        try:
            return obstore.get(self.kept, name, options={"if_match": mark} if mark else None)
        except exceptions.PreconditionError:
            raise FileNotFoundError(f"{self.address}/{name} has been replaced") from None

    def fetch(
        self, wanted: Mapping[str, tuple[Path, int | None]], marks: Mapping[str, str] | None = None
    ) -> None:
        """Has objects that never change, or have these marks, as files; what the store lacks stays missing.

        A copy of another size was cut off by a crash of this machine. Of an unknown size no copy is trusted.
        """
        missing = {name: path for name, (path, size) in wanted.items() if not _is_whole(path, size)}
        for folder in {path.parent for path in missing.values()}:
            _make_private(folder)

        def download(item: tuple[str, Path]) -> None:
            with suppress(FileNotFoundError):
                self.download(*item, (marks or {}).get(item[0], ""))

        side_by_side(download, list(missing.items()))


def _stored(found: Any) -> StoredFile:
    name = found["path"].rpartition("/")[2]
    return StoredFile(name, found["last_modified"].timestamp(), found["size"], found.get("e_tag") or "")


def _is_whole(path: Path, size: int | None) -> bool:
    try:
        return path.stat().st_size == size
    except FileNotFoundError:
        return False


def _make_private(folder: Path) -> None:
    """Makes a folder that only its owner can read, as all that are missing above it."""
    if not folder.exists():
        _make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def side_by_side(action: Callable[[_T], _R], items: Sequence[_T]) -> list[_R]:
    """An action for each item, several at once; raises the first error."""
    if len(items) < 2:
        return [action(item) for item in items]
    with ThreadPoolExecutor(min(_AT_ONCE, len(items))) as pool:
        return list(pool.map(action, items))


@dataclass(frozen=True)
class Log:
    """What a listing of a log shows: entries, and checkpoints with all their files, by version."""

    entries: Mapping[int, StoredFile]
    checkpoints: Mapping[int, tuple[StoredFile, ...]]

    @classmethod
    def of(cls, files: Iterable[StoredFile]) -> Log:
        entries: dict[int, StoredFile] = {}
        parts: dict[tuple[int, int], list[StoredFile]] = {}
        for file in files:
            number, _, kind = file.name.partition(".")
            version = whole_number(number)
            if version is not None and kind == "json":
                entries[version] = file
            elif version is not None and (found := _CHECKPOINT.fullmatch(kind)):
                parts.setdefault((version, int(found["parts"] or 1)), []).append(file)
        # Of a checkpoint in parts all have to be there.
        whole = {version: tuple(each) for (version, number), each in parts.items() if len(each) == number}
        return cls(entries, whole)

    @property
    def newest(self) -> int:
        return max(self.entries, default=-1)

    def needed(self, version: int) -> list[StoredFile]:
        """The files that tell the state at a version; none if it cannot be told any more."""
        start = max((each for each in self.checkpoints if each <= version), default=0)
        numbers = range(start if start in self.entries or not start else start + 1, version + 1)
        if version not in self.entries or not all(number in self.entries for number in numbers):
            return []
        return [*self.checkpoints.get(start, ()), *(self.entries[number] for number in numbers)]


class LogCopy:
    """The log of one table: `folder` has a copy of it, which is that of one object of this process.

    `version` is the newest one in the copy, -1 without a table. `starts` counts how often it began again, for
    a table that is another one than before. `is_broken`: the store has entries, but they tell no state.
    """

    def __init__(self, store: Objects, place: str) -> None:
        own = Path(tempfile.mkdtemp(prefix="rollview-log-"))
        weakref.finalize(self, shutil.rmtree, own, True)
        # Not by its name, which need not be one of a file, and which deltalake would decode.
        self.folder = own / "table"
        self.lock = RLock()
        self.version = -1
        self.starts = 0
        self.is_broken = False
        self._store = store
        self._log = f"{place}/{LOG}"
        self._mark = ""

    def refresh(self) -> None:
        """One listing, of what is newer than the copy; then only new entries are read."""
        with self.lock:
            if self.version >= 0 and not self.entry(self.version + 1).exists():
                # The last entry known is listed, too: another one, or none, means another table.
                found = self.listed(after=f"{self.version:020}.")
                known = found.entries.get(self.version)
                newer = range(self.version + 1, found.newest + 1)
                # Entries that a checkpoint made needless may be gone before they were read.
                is_whole = all(each in found.entries for each in newer)
                if known is not None and self._mark in ("", known.mark) and is_whole:
                    self._download([found.entries[each] for each in newer])
                    self.version, self._mark = found.newest, found.entries[found.newest].mark
                    return
            self._start()

    def _start(self) -> None:
        """A new copy, from the newest checkpoint."""
        self.clear()
        found = self.listed()
        needed = found.needed(found.newest)
        self.is_broken = bool(found.entries) and not needed
        if needed:
            self._download(needed)
            self.version, self._mark = found.newest, found.entries[found.newest].mark

    def clear(self) -> None:
        """Forgets the copy."""
        self.version, self._mark = -1, ""
        self.starts += 1
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.folder / LOG).mkdir(parents=True, exist_ok=True)

    def advance(self, version: int) -> None:
        """The store has taken the entry that was added to the copy."""
        self.version, self._mark = version, ""

    def reach(self, version: int | None) -> None:
        """Has the log of an older version, too, if it is still kept; None: all that is kept."""
        with self.lock:
            found = self.listed()
            if version is None:
                newest = found.checkpoints[max(found.checkpoints)] if found.checkpoints else ()
                self._download([*newest, *found.entries.values()])
            else:
                self._download(found.needed(version))

    def listed(self, after: str = "") -> Log:
        """What the store has of the log."""
        return Log.of(self._store.files_after(self._log, after) if after else self._store.files(self._log))

    def entry(self, version: int) -> Path:
        """Where the copy has an entry, if it has it."""
        return self.folder / LOG / f"{version:020}.json"

    def name_of(self, path: Path) -> str:
        """The object that a file of the copy is of."""
        return f"{self._log}/{path.name}"

    def _download(self, files: Sequence[StoredFile]) -> None:
        paths = [path for file in files if not (path := self.folder / LOG / file.name).exists()]
        side_by_side(lambda path: self._store.download(self.name_of(path), path), paths)
