"""Whose lake a folder is: a small file names the lake and the catalog that it belongs to.

Files of a lake mean nothing without their catalog, and two catalogs that write to one lake would be wrong on
both sides. So each start compares.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from rollview.errors import LakeDamaged
from rollview.lake.commit import Commit, commit_of
from rollview.lake.disk import sync

FILE = "lake.json"
FOLDERS = ("changes", "deltas", "stages", "state", "views")
"""The folders of a lake's tables; `stages` is of older releases."""


@dataclass(frozen=True)
class LakeIdentity:
    """The lake's own name, that of its catalog, and the epoch: a new one when a process begins to write."""

    lake: str
    catalog: str
    epoch: str = ""


def read_identity(lake: Path) -> LakeIdentity | None:
    """What the lake says of itself; None if it says nothing."""
    file = lake / FILE
    try:
        said = json.loads(file.read_text(encoding="utf-8"))
        return LakeIdentity(str(said["lake"]), str(said["catalog"]), str(said.get("epoch", "")))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise LakeDamaged(
            f"{file} cannot be read: {error}", subject=str(file), hint="`rollview recover` starts anew"
        ) from None


def write_identity(lake: Path, identity: LakeIdentity) -> None:
    """Says whose lake it is: all of it or nothing."""
    unfinished = lake / f"{FILE}.{os.getpid()}"
    unfinished.write_text(json.dumps(asdict(identity), indent=1) + "\n", encoding="utf-8")
    sync(unfinished)
    unfinished.rename(lake / FILE)
    sync(lake)


def newest_commit(table: Path) -> Commit | None:
    """What the newest entry of a table's log says of itself; None if rollview did not write it."""
    entries = sorted((table / "_delta_log").glob("[0-9]*.json"))
    if not entries:
        return None
    try:
        text = entries[-1].read_text(encoding="utf-8")
    except FileNotFoundError:
        # The table is being dropped.
        return None
    for line in text.splitlines():
        if line.startswith('{"commitInfo"'):
            try:
                return commit_of(json.loads(line)["commitInfo"])
            except (ValueError, KeyError):
                # It was cut off: whoever reads the table says so.
                return None
    return None


def tables_in(lake: Path) -> Iterator[Path]:
    """The folders of all Delta tables that are where the lake has its tables."""
    for name in FOLDERS:
        pattern = f"{name}/*/*" if name == "changes" else f"{name}/*"
        yield from (folder for folder in sorted(lake.glob(pattern)) if (folder / "_delta_log").is_dir())
