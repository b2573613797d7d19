"""A prefix of a bucket as the place of a source: its objects, and copies of them on this machine.

Arrow and Spark read the copies. They are named by a hash, so that no name of an object, whoever chose it, is
a name of a file here.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rollview.errors import SourceError, SourceUnavailable
from rollview.object_storage import Objects, connected, endpoint_of

KEPT_SECONDS = 86_400.0
"""A copy that the newest state does not need is deleted when nobody has asked for it for so long."""

TIDY_SECONDS = 3600.0
"""How often that is looked for."""

_TOUCHED_SECONDS = 3600.0
_RETRIES = 3
_RETRY_SECONDS = 10
"""A source that is away must not keep others waiting for long: capture tries it again."""


def open_bucket(name: str, url: str, settings: Mapping[str, str], copies: Path) -> Bucket:
    """The place of a source; what `settings` do not say comes from the environment (`AWS_…`)."""
    needed_for, otherwise = f"source `{name}` at {url}", "or name a folder in its `path`"
    kept = connected(url, settings, needed_for, otherwise, _RETRIES, _RETRY_SECONDS)
    # Another bucket under the same name has copies of its own.
    return Bucket(kept, url, copies / _hash(f"{endpoint_of(settings)} {url}"))


class Bucket(Objects):
    """Objects below a prefix; `copies` is the folder of this machine for what was read."""

    unavailable = SourceUnavailable

    def __init__(self, kept: Any, address: str, copies: Path) -> None:
        super().__init__(kept, address)
        self.copies = copies
        self._tidied: dict[str, float] = {}

    def copy_of(self, folder: str, name: str, mark: str = "") -> Path:
        """Where the copy of an object is, or is to be; of one that may change, that of this content."""
        return self.copies / _hash(folder) / _hash(f"{name}\n{mark}" if mark else name)

    def have(
        self, folder: str, sizes: Mapping[str, int | None], marks: Mapping[str, str] | None = None
    ) -> None:
        """Has copies of these objects, of these sizes as far as they are known."""
        marks = marks or {}
        copies = {name: self.copy_of(folder, name, marks.get(name, "")) for name in sizes}
        wanted = {f"{folder}/{name}": (path, sizes[name]) for name, path in copies.items()}
        self.fetch(wanted, {f"{folder}/{name}": mark for name, mark in marks.items()})
        now = time.time()
        for name, path in copies.items():
            try:
                known = path.stat()
                if now - known.st_atime > _TOUCHED_SECONDS:
                    os.utime(path, (now, known.st_mtime))
            except FileNotFoundError:
                raise FileNotFoundError(f"{self.address}/{folder}/{name} is gone") from None

    def tidy(self, folder: str, needed: Callable[[], Collection[Path]]) -> None:
        """The same once an hour, and as far as it can be done now."""
        if time.monotonic() - self._tidied.get(folder, float("-inf")) > TIDY_SECONDS:
            self._tidied[folder] = time.monotonic()
            with suppress(OSError, SourceError):
                self.forget(folder, needed)

    def forget(self, folder: str, needed: Callable[[], Collection[Path]]) -> None:
        """Deletes copies, whole ones or not, that nobody needs."""
        own, limit = self.copies / _hash(folder), time.time() - KEPT_SECONDS
        old = []
        with suppress(FileNotFoundError):
            old = [path for path in own.iterdir() if path.stat().st_atime < limit]
        kept = needed() if old else ()
        for path in old:
            if path not in kept:
                path.unlink(missing_ok=True)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def dataset_at(place: Path | Bucket, table: str) -> tuple[str, str]:
    """A table's folder, as OpenLineage names those of file systems and buckets."""
    if isinstance(place, Path):
        return "file", str(place / table)
    bucket, _, prefix = place.address.removeprefix("s3://").partition("/")
    return f"s3://{bucket}", f"{prefix}/{table}".lstrip("/")
