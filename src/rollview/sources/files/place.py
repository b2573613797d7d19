"""Where the dumps of a table are: a folder, or a prefix of a bucket, whose objects have copies here.

A file in a folder is read where it lies, and may change while it is read. A copy is of the very version that
was listed, or there is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from rollview.errors import SourceMissing
from rollview.object_storage import StoredFile
from rollview.sources.bucket import Bucket


class Entry(Protocol):
    """A file or a folder in a table's folder. What is gone meanwhile raises FileNotFoundError."""

    @property
    def name(self) -> str:
        """Its own name."""

    @property
    def is_folder(self) -> bool: ...

    @property
    def is_file(self) -> bool: ...

    def below(self) -> Sequence[Entry]:
        """What is directly in a folder."""

    def modified(self) -> float:
        """When it was changed last."""

    def looks(self) -> tuple[object, ...]:
        """What a file looks like from outside, which another content would change."""

    def here(self) -> Path:
        """The file of this machine to read."""


class DumpPlace(Protocol):
    """One table's dumps."""

    name: str

    def entries(self) -> Sequence[Entry]:
        """What is in it now; FileNotFoundError if there is no such place."""

    def fetch(self, files: Sequence[Entry]) -> None:
        """Has these files on this machine."""

    def tidy(self) -> None:
        """Deletes what has not been asked for in a long time, and can be read again."""


def dump_places(source: str, place: Path | Bucket) -> dict[str, DumpPlace]:
    """The tables of a source, by name; hidden folders are none."""
    if isinstance(place, Bucket):
        return {name: BucketDumps(place, name) for name in place.folders() if _is_shown(name)}
    if not place.is_dir():
        raise SourceMissing(
            f"source {source}: there is no folder {place}", subject=source, hint="correct its path"
        )
    folders = [folder for folder in sorted(place.iterdir()) if folder.is_dir() and _is_shown(folder.name)]
    return {folder.name: FolderDumps(folder) for folder in folders}


def _is_shown(name: str) -> bool:
    return not name.startswith(("_", "."))


class FolderDumps:
    """Dumps in a folder."""

    def __init__(self, folder: Path) -> None:
        self.name = folder.name
        self._folder = folder

    def entries(self) -> Sequence[Entry]:
        return [_Local(path) for path in self._folder.iterdir()]

    def fetch(self, files: Sequence[Entry]) -> None:
        """They are there, or not."""

    def tidy(self) -> None:
        """There are no copies."""


@dataclass(frozen=True)
class _Local:
    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def is_folder(self) -> bool:
        return self.path.is_dir()

    @property
    def is_file(self) -> bool:
        return self.path.is_file()

    def below(self) -> Sequence[Entry]:
        return [_Local(path) for path in self.path.iterdir()]

    def modified(self) -> float:
        return self.path.stat().st_mtime

    def looks(self) -> tuple[object, ...]:
        status = self.path.stat()
        return self.name, status.st_size, status.st_mtime_ns

    def here(self) -> Path:
        return self.path


class BucketDumps:
    """Dumps below a prefix of a bucket; `/` in names of objects is what folders are elsewhere."""

    def __init__(self, bucket: Bucket, table: str) -> None:
        self.name = table
        self._bucket = bucket

    def entries(self) -> Sequence[Entry]:
        """One listing; nothing where all objects are gone."""
        root = _Object("", Path())
        for file in self._bucket.files_below(self.name):
            *folders, own = file.name.split("/")
            parent = root
            for name in folders:
                if (known := parent.children.get(name)) is None or known.is_file:
                    # An empty object may stand for a folder.
                    parent.children[name] = _Object(name, Path())
                parent = parent.children[name]
            copy = self._bucket.copy_of(self.name, file.name, file.mark)
            parent.children.setdefault(own, _Object(own, copy, file))
        return root.below()

    def fetch(self, files: Sequence[Entry]) -> None:
        stored = [each.stored for each in files if isinstance(each, _Object) and each.stored is not None]
        marks = {file.name: file.mark for file in stored}
        self._bucket.have(self.name, {file.name: file.size for file in stored}, marks)

    def tidy(self) -> None:
        self._bucket.tidy(self.name, lambda: ())


@dataclass(frozen=True)
class _Object:
    name: str
    copy: Path
    stored: StoredFile | None = None
    children: dict[str, _Object] = field(default_factory=dict)

    @property
    def is_folder(self) -> bool:
        return self.stored is None

    @property
    def is_file(self) -> bool:
        return self.stored is not None

    def below(self) -> Sequence[Entry]:
        return list(self.children.values())

    def modified(self) -> float:
        return 0.0 if self.stored is None else self.stored.modified

    def looks(self) -> tuple[object, ...]:
        assert self.stored is not None, "only files are looked at"
        return self.name, self.stored.size, self.stored.mark or self.stored.modified

    def here(self) -> Path:
        return self.copy
