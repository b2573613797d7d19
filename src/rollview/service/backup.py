"""backup and restore: lake and catalog copied together, while everything goes on.

Between two steps lake and catalog say the same. So the copy begins when all who write have been asked to
wait: then the catalog and the logs of all tables are copied, which is quick. The data files follow when
everybody is at work again; they never change, and those that are taken out of a table stay for as long as
`retention.files` says.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

from deltalake import DeltaTable

from rollview.catalog import Catalog
from rollview.errors import InputError, LakeUnavailable
from rollview.lake.identity import FILE, tables_in
from rollview.service.apply import LEASE as APPLY
from rollview.service.capture import LEASE as CAPTURE
from rollview.service.private_files import make_private_folder
from rollview.service.project_file import ProjectFile
from rollview.service.recover import catalog_file, set_aside

CATALOG = "catalog.db"
_PATIENCE_SECONDS = 120.0


def back_up(project: ProjectFile, catalog: Catalog, target: Path) -> int:
    """Copies lake and catalog to a new folder; returns how many bytes that were."""
    source = catalog_file(project)
    if target.exists() and any(target.iterdir()):
        raise InputError(f"{target} is not empty", subject=str(target), hint="name a folder that is empty")
    make_private_folder(target)
    with ExitStack() as stack:
        for name in (CAPTURE, APPLY, *(f"propagate:{view}" for view in catalog.views())):
            stack.enter_context(catalog.lease(name, _PATIENCE_SECONDS))
        _copy_database(source, target / CATALOG)
        shutil.copy2(project.lake / FILE, target / FILE)
        data = list(_copy_logs(project.lake, target))
    for file in data:
        # One that is gone was needed by no version that counts, which is checked below.
        if file.exists():
            copy = target / file.relative_to(project.lake)
            shutil.copy2(file, copy)
    _check_complete(target)
    return sum(file.stat().st_size for file in target.rglob("*") if file.is_file())


def restore(project: ProjectFile, backup: Path) -> Path | None:
    """Puts a backup in the place of lake and catalog; returns where these were set aside, if anywhere."""
    target = catalog_file(project)
    for needed in (backup / CATALOG, backup / FILE):
        if not needed.is_file():
            raise InputError(
                f"{backup} is not a backup: it has no {needed.name}",
                subject=str(backup),
                hint="`rollview backup FOLDER` makes one",
            )
    _check_complete(backup)
    there = target.exists() or any(tables_in(project.lake))
    aside = set_aside(project) if there else None
    make_private_folder(project.lake)
    for folder in sorted({table.relative_to(backup).parts[0] for table in tables_in(backup)}):
        shutil.copytree(backup / folder, project.lake / folder)
    shutil.copy2(backup / FILE, project.lake / FILE)
    # The catalog comes last: until then there is a lake without a catalog, which is refused.
    target.parent.mkdir(parents=True, exist_ok=True)
    _copy_database(backup / CATALOG, target)
    return aside


def _copy_database(source: Path, target: Path) -> None:
    target.touch(mode=0o600)
    with closing(sqlite3.connect(source)) as here, closing(sqlite3.connect(target)) as there:
        here.backup(there)


def _copy_logs(lake: Path, target: Path) -> Iterator[Path]:
    """Copies the logs of all tables; gives the data files."""
    for table in tables_in(lake):
        copy = target / table.relative_to(lake)
        shutil.copytree(table / "_delta_log", copy / "_delta_log")
        yield from table.glob("*.parquet")


def _check_complete(backup: Path) -> None:
    for table in tables_in(backup):
        for name in DeltaTable(table.absolute().as_uri()).file_uris():
            if not (table / Path(name).name).exists():
                raise LakeUnavailable(
                    f"{backup}: {table.name} is not complete: {Path(name).name} is missing",
                    subject=str(backup),
                    hint="make the backup again, in another folder",
                )
