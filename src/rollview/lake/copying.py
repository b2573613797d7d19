"""The tables of a lake in another store: each with its log, so that every step and its history are the same.

Data files never change, so they may be copied at any time; a log is copied while nobody writes to its table.
What is cut off halfway is no lake yet, as nothing says whose it is; the next attempt continues.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from deltalake import DeltaTable

from rollview.errors import InputError, LakeUnavailable
from rollview.lake.identity import newest_commit, places_in, tables_in
from rollview.lake.store import Store, TableFolder

_AT_ONCE = 64

Copy = Callable[[Path, Path], object]


def link_or_copy(here: Path, there: Path) -> None:
    """A second name of a file that never changes, where both are on one file system."""
    try:
        os.link(here, there)
    except OSError:
        shutil.copy2(here, there)


def clear_unfinished(target: Store, owner: str) -> None:
    """Removes the tables of an attempt that was cut off while it copied logs, and refuses any other table.

    `owner` is the identity of the catalog by which the tables of the lake were written.
    """
    for table in tables_in(target):
        commit = newest_commit(table)
        if commit is None or not commit.writer.startswith(f"{owner}/"):
            raise InputError(
                f"{target.address} is not empty: {table.address} is a table",
                subject=target.address,
                hint="name an empty place; or delete what an attempt that was cut off has left there",
            )
        table.drop()


def copy_data(source: Store, target: Store, copy: Copy = shutil.copy2) -> None:
    """Copies the data files that the target lacks."""
    for place in places_in(source):
        _copy_files(source.table(*place), target.table(*place), copy)


def _copy_files(source: TableFolder, target: TableFolder, copy: Copy) -> None:
    there = {file.name: file.size for file in target.data_files()}
    sizes = {file.name: file.size for file in source.data_files() if there.get(file.name) != file.size}
    for first in range(0, len(sizes), _AT_ONCE):
        names = list(sizes)[first : first + _AT_ONCE]
        source.fetch({name: sizes[name] for name in names})
        target.data.mkdir(parents=True, exist_ok=True)
        made = [path for name in names if (path := _copied(source, target, name, copy)) is not None]
        target.publish(made)


def _copied(source: TableFolder, target: TableFolder, name: str, copy: Copy) -> Path | None:
    """The copy; none if the file is gone meanwhile. Whether a copied log needs it is looked at in the end."""
    here, there = source.data / name, target.data / name
    if here == there:
        return there if there.exists() else None
    there.unlink(missing_ok=True)
    try:
        copy(here, there)
    except FileNotFoundError:
        return None
    return there


def copy_logs(source: Store, target: Store) -> None:
    """Copies the logs as they are now."""
    for place in places_in(source):
        table = source.table(*place)
        table.refresh()
        table.reach(None)
        target.table(*place).take_log(table.folder / "_delta_log")


def check_complete(lake: Store) -> None:
    """Refuses a lake that lacks a file which a log names."""
    for table in tables_in(lake):
        table.refresh()
        there = {file.name for file in table.data_files()}
        for uri in DeltaTable(table.folder.absolute().as_uri()).file_uris():
            if (name := Path(uri).name) not in there:
                raise LakeUnavailable(
                    f"{lake.address}: {table.name} is not complete: {name} is missing",
                    subject=lake.address,
                    hint="make the copy again, in another place",
                )


def size_of(lake: Store) -> int:
    """The bytes of all data files."""
    return sum(file.size for place in places_in(lake) for file in lake.table(*place).data_files())
