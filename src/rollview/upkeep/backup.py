"""backup, restore, move-lake, move-catalog: lake and catalog copied while the project is in use.

Between two steps lake and catalog agree. So all writers are stopped first; then the catalog and the logs of
all tables are copied, which is quick. Files of data never change, and those that are removed from a table
stay for as long as `retention.files` says: they are copied while the writers continue.
"""

from __future__ import annotations

import sqlite3
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

from rollview.catalog import Catalog
from rollview.config.files import make_private_folder
from rollview.config.project_file import ProjectFile
from rollview.config.results import MoveReport
from rollview.errors import InputError, LeaseHeld
from rollview.lake.copying import (
    check_complete,
    clear_unfinished,
    copy_data,
    copy_logs,
    link_or_copy,
    size_of,
)
from rollview.lake.disk import Disk
from rollview.lake.identity import FILE, places_in, read_identity, write_identity
from rollview.lake.store import Store
from rollview.maintain.apply import LEASE as APPLY
from rollview.maintain.capture import LEASE as CAPTURE
from rollview.setup.recover import catalog_file, set_aside
from rollview.storage.lake_fit import check_fit
from rollview.storage.lake_tables import LEASE as EPOCH
from rollview.storage.lake_tables import claim

CATALOG = "catalog.db"
RUN = "run"
_PATIENCE_SECONDS = 120.0


def back_up(project: ProjectFile, catalog: Catalog, lake: Store, target: Path) -> int:
    """Copies lake and catalog to a new folder; returns how many bytes that were."""
    source, copy = catalog_file(project), Disk(target)
    if target.exists() and any(target.iterdir()):
        raise InputError(f"{target} is not empty", subject=str(target), hint="name a folder that is empty")
    make_private_folder(target)
    with ExitStack() as stack:
        _stop_writers(stack, catalog)
        _copy_database(source, target / CATALOG)
        copy.put(FILE, lake.get(FILE))
        copy_logs(lake, copy)
    copy_data(lake, copy)
    # A file that is gone meanwhile was needed by no copied version.
    check_complete(copy)
    return sum(file.stat().st_size for file in target.rglob("*") if file.is_file())


def restore(project: ProjectFile, lake: Store, backup: Path) -> Path | None:
    """Puts a backup in the place of lake and catalog; returns where these were set aside, if anywhere."""
    target, copy = catalog_file(project), Disk(backup)
    for needed in (backup / CATALOG, backup / FILE):
        if not needed.is_file():
            raise InputError(
                f"{backup} is not a backup: it has no {needed.name}",
                subject=str(backup),
                hint="`rollview backup FOLDER` makes one",
            )
    check_complete(copy)
    there = target.exists() or read_identity(lake) is not None or any(True for _ in places_in(lake))
    aside = set_aside(project) if there else None
    make_private_folder(project.lake)
    copy_data(copy, lake)
    copy_logs(copy, lake)
    lake.put(FILE, copy.get(FILE))
    # The catalog comes last: until then it is a lake without a catalog, which is refused.
    target.parent.mkdir(parents=True, exist_ok=True)
    _copy_database(backup / CATALOG, target)
    return aside


def move(project: ProjectFile, catalog: Catalog, lake: Store, target: Store) -> MoveReport:
    """Copies the lake to another store, where it continues.

    What has been copied when it fails is not copied again.
    """
    if read_identity(target) is not None:
        hint = "name an empty place; `lake` in the project file says where this project's lake is"
        raise InputError(f"{target.address} has a lake already", subject=target.address, hint=hint)
    target.check()
    clear_unfinished(target, catalog.identity)
    copy_data(lake, target, link_or_copy)
    with ExitStack() as stack:
        _stop_all(stack, catalog, "stop it and repeat this command: what has been copied is not copied again")
        copy_data(lake, target, link_or_copy)
        copy_logs(lake, target)
        check_complete(target)
        claim(catalog, lake, moves_to=target)
    settings = {"lake": target.address}
    if project.catalog == f"sqlite:///{project.lake / CATALOG}":
        # Otherwise the catalog would be looked for in the new place.
        settings["catalog"] = project.catalog
    return MoveReport(target.address, size_of(target), settings)


def move_catalog(project: ProjectFile, lake: Store, place: str) -> int:
    """Copies the catalog from a place to the one that the project file names; returns how many rows it has.

    Until the lake names the epoch of the copy, the old one is the catalog; from then on the new one is.
    """
    if place == project.catalog:
        hint = "write the new place in the project file; this command is given the old one"
        raise InputError("the catalog is where `catalog` says", subject="catalog", hint=hint)
    with closing(_existing(place)) as catalog:
        check_fit(catalog, lake)
        with closing(Catalog.open(project.catalog)) as target, ExitStack() as stack:
            _stop_all(stack, catalog, "stop it and repeat this command")
            stack.enter_context(catalog.lease(EPOCH, _PATIENCE_SECONDS))
            identity = read_identity(lake)
            assert identity is not None, "lake and catalog fit"
            epoch = uuid4().hex
            rows = catalog.copy_to(target, epoch)
            write_identity(lake, replace(identity, epoch=epoch))
            return rows


def _existing(place: str) -> Catalog:
    path = place.removeprefix("sqlite:///")
    if (path != place and not Path(path).is_file()) or not Catalog.inspect(place).exists:
        raise InputError(
            f"there is no catalog at {place.rpartition('@')[2]}",
            subject="catalog",
            hint="name the place that `catalog` in the project file had before",
        )
    return Catalog.open(place)


def _stop_all(stack: ExitStack, catalog: Catalog, hint: str) -> None:
    try:
        stack.enter_context(catalog.lease(RUN, 0.0))
    except LeaseHeld as error:
        raise InputError(f"`rollview run` is at work: {error.message}", hint=hint) from error
    _stop_writers(stack, catalog)


def _stop_writers(stack: ExitStack, catalog: Catalog) -> None:
    for name in (CAPTURE, APPLY, *(f"propagate:{view}" for view in catalog.views.all())):
        stack.enter_context(catalog.lease(name, _PATIENCE_SECONDS))


def _copy_database(source: Path, target: Path) -> None:
    target.touch(mode=0o600)
    with closing(sqlite3.connect(source)) as here, closing(sqlite3.connect(target)) as there:
        here.backup(there)
