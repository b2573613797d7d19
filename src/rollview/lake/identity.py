"""Whose lake a folder is: a small file names the lake and the catalog that it belongs to.

Files of a lake mean nothing without their catalog, and two catalogs that write to one lake would be wrong on
both sides. So each start compares.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from rollview.ascii_text import lines_of
from rollview.errors import LakeDamaged
from rollview.lake.disk import FOLDERS
from rollview.lake.log import Commit, commit_of
from rollview.lake.store import Store, TableFolder

FILE = "lake.json"


@dataclass(frozen=True)
class LakeIdentity:
    """The lake's own name, that of its catalog, and the epoch: a new one when a process begins to write.

    `moved` is where the lake is now, if it is no longer here.
    """

    lake: str
    catalog: str
    epoch: str = ""
    moved: str = ""


def read_identity(lake: Store) -> LakeIdentity | None:
    """The identity in the lake; None if it has none."""
    try:
        said = json.loads(lake.get(FILE).decode("utf-8"))
        others = (str(said.get(name, "")) for name in ("epoch", "moved"))
        return LakeIdentity(str(said["lake"]), str(said["catalog"]), *others)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        file = f"{lake.address}/{FILE}"
        raise LakeDamaged(f"{file} cannot be read: {error}", subject=file, hint=lake.start_over) from None


def write_identity(lake: Store, identity: LakeIdentity) -> None:
    """Says whose lake it is: all of it or nothing."""
    lake.put(FILE, (json.dumps(asdict(identity), indent=1) + "\n").encode())


def newest_commit(table: TableFolder) -> Commit | None:
    """The commit of the newest entry of a table's log; None if rollview did not write it."""
    for line in lines_of(table.newest_entry() or ""):
        if line.startswith('{"commitInfo"'):
            try:
                return commit_of(json.loads(line)["commitInfo"])
            except (ValueError, KeyError):
                # It was cut off: reading the table reports that.
                return None
    return None


def places_in(lake: Store) -> Iterator[tuple[str, ...]]:
    """All folders that are where the lake has its tables."""
    for name in FOLDERS:
        for folder in lake.folders(name):
            if name == "changes":
                yield from ((name, folder, table) for table in lake.folders(f"{name}/{folder}"))
            else:
                yield name, folder


def tables_in(lake: Store) -> Iterator[TableFolder]:
    """All Delta tables among them."""
    return (table for place in places_in(lake) if (table := lake.table(*place)).written())
