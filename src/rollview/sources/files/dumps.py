"""Dumps in a table's folder: which there are, in which order, and whether they are complete.

A dump is one file, or one sub-folder of part files, all CSV or all Parquet. Dumps follow each other by name,
numbers in names by value (`dump_9` before `dump_10`). Names that begin with `_` or `.` or end with `.tmp` or
`.part` are still being written. So is a file that changed less than `settle_seconds` ago; it and all dumps
after it wait.
"""

from __future__ import annotations

import hashlib
import re
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

_UNFINISHED = (".tmp", ".part")
_FORMATS = ("csv", "parquet")


@dataclass(frozen=True)
class Dump:
    """A complete dump: its name, its files, and what they looked like from outside when they were listed."""

    name: str
    files: tuple[Path, ...]
    signature: str

    @property
    def format(self) -> str:
        """`csv` or `parquet`."""
        return self.files[0].suffix[1:].lower()

    @cached_property
    def source_txid(self) -> int:
        """A number that tells dumps apart by their names; earlier dumps may be gone, so none are counted."""
        return int.from_bytes(hashlib.sha256(self.name.encode()).digest()[:8]) >> 1

    def is_unchanged(self) -> bool:
        """Whether the files still look as they did."""
        return _signature(self.files) == self.signature


def natural(name: str) -> tuple[tuple[tuple[int, int, str], ...], str]:
    """Sorts names as people do: numbers in them by value."""
    stem = name.rsplit(".", 1)[0] if name.lower().endswith(_FORMATS) else name
    parts = re.split(r"(\d+)", stem)
    return tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts if part), name


def complete_dumps(folder: Path, settle_seconds: float) -> list[Dump]:
    """The dumps of a table in their order, up to the first one that is not complete."""
    found: list[Dump] = []
    for entry in sorted(folder.iterdir(), key=lambda entry: natural(entry.name)):
        if not _counts(entry):
            continue
        try:
            files = _parts(entry) if entry.is_dir() else (entry,)
            if not files and entry.is_dir() and not _is_unfinished(entry):
                continue
            signature = _signature(files)
            if signature is None or _is_unfinished(entry) or not _has_settled(entry, files, settle_seconds):
                break
        except FileNotFoundError:
            # Somebody is at work here; the next look will tell what comes of it.
            break
        found.append(Dump(entry.name, files, signature))
    return found


def _counts(entry: Path) -> bool:
    if entry.name.startswith(("_", ".")) or entry.name.lower().endswith(_UNFINISHED):
        return False
    return entry.is_dir() or entry.suffix[1:].lower() in _FORMATS


def _parts(folder: Path) -> tuple[Path, ...]:
    return tuple(sorted(part for part in folder.iterdir() if part.is_file() and _counts(part)))


def _is_unfinished(entry: Path) -> bool:
    """A sub-folder in which some writer still keeps its temporary files."""
    return entry.is_dir() and any(
        part.name.lower().endswith(_UNFINISHED) or part.name == "_temporary" for part in entry.iterdir()
    )


def _has_settled(entry: Path, files: tuple[Path, ...], seconds: float) -> bool:
    # A time in the future by more than that is a clock that was set back, and not worth waiting for.
    now = time.time()
    return all(abs(now - path.stat().st_mtime) >= seconds for path in (entry, *files))


def _signature(files: tuple[Path, ...]) -> str | None:
    """Names, sizes and times of the files; None if one is gone."""
    try:
        states = [
            (path.name, status.st_size, status.st_mtime_ns) for path in files if (status := path.stat())
        ]
    except FileNotFoundError:
        return None
    return hashlib.sha256(repr(states).encode()).hexdigest()[:16]
