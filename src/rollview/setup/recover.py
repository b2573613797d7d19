"""recover: a way back from a lake and a catalog that do not match.

Both are moved aside, neither mixed in nor deleted: the tables stay readable for any Delta reader. Then a new
catalog continues from the last csn in the tables, so that no csn is assigned twice, and every view is loaded
from its sources.
"""

from __future__ import annotations

import shutil
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from rollview.catalog import Catalog
from rollview.config.files import make_private_folder
from rollview.config.project_file import ProjectFile
from rollview.errors import CatalogUnavailable, InputError, LakeDamaged, LakeMisfit, LakeUnavailable
from rollview.lake.disk import FOLDERS, Disk
from rollview.lake.identity import FILE, newest_commit, tables_in
from rollview.maintain.apply import LEASE as APPLY
from rollview.maintain.capture import LEASE as CAPTURE
from rollview.storage.lake_fit import check_fit, check_new_catalog

SET_ASIDE = "set-aside"
_PATIENCE_SECONDS = 5.0


def why_recover(project: ProjectFile) -> str:
    """Why lake and catalog cannot be used as they are; refuses if they can."""
    file = catalog_file(project)
    _check_folder(project)
    try:
        if not file.exists():
            check_new_catalog(Disk(project.lake))
        else:
            catalog = Catalog.open(project.catalog)
            try:
                check_fit(catalog, Disk(project.lake))
            finally:
                catalog.close()
    except (LakeMisfit, LakeDamaged) as error:
        return error.message
    except CatalogUnavailable as error:
        # A catalog that is only locked, or on a full disk, is not lost.
        if not _is_damaged(error):
            raise
        return error.message
    raise InputError(
        "there is nothing to recover: lake and catalog match",
        subject=project.name,
        hint="`rollview setup --reload all` reloads the views",
    )


def last_known(lake: Path) -> tuple[int, float]:
    """The newest csn in any table, those set aside included, and its commit time."""
    lakes = [lake, *(lake / SET_ASIDE).glob("*")]
    commits = [newest_commit(table) for each in lakes for table in tables_in(Disk(each))]
    return max(((each.csn, each.commit_time) for each in commits if each is not None), default=(0, 0.0))


def set_aside(project: ProjectFile) -> Path:
    """Moves tables and catalog aside, once nobody works with them; returns where they are."""
    file = catalog_file(project)
    _check_folder(project)
    with ExitStack() as stack:
        if file.exists():
            _keep_others_out(stack, project)
        make_private_folder(project.lake / SET_ASIDE)
        folder = _new_folder(project.lake / SET_ASIDE)
        # The catalog goes first: an interrupted move leaves a lake without a catalog.
        moved = [file.with_name(f"{file.name}{end}") for end in ("", "-wal", "-shm")]
        moved.append(project.lake / FILE)
        moved += [project.lake / name for name in FOLDERS]
        for path in moved:
            if path.exists():
                shutil.move(path, folder / path.name)
    return folder


def _new_folder(parent: Path) -> Path:
    now = time.strftime("%Y-%m-%dT%H-%M-%S")
    for name in (now, *(f"{now}-{number}" for number in range(2, 100))):
        with suppress(FileExistsError):
            (parent / name).mkdir(mode=0o700)
            return parent / name
    raise LakeUnavailable(f"could not create a unique folder in {parent}", subject=str(parent))


def _keep_others_out(stack: ExitStack, project: ProjectFile) -> None:
    try:
        catalog = Catalog.open(project.catalog)
    except CatalogUnavailable as error:
        # A damaged catalog has no leases.
        if _is_damaged(error):
            return
        raise
    stack.callback(catalog.close)
    for name in ("run", CAPTURE, APPLY):
        stack.enter_context(catalog.lease(name, _PATIENCE_SECONDS))


def _is_damaged(error: CatalogUnavailable) -> bool:
    return any(words in error.message for words in ("not a database", "malformed"))


def _check_folder(project: ProjectFile) -> None:
    """On object storage nothing is moved aside."""
    if project.lake_url:
        raise InputError(
            f"{project.lake_url} and its catalog stay where they are: only a folder can be set aside",
            subject="lake",
            hint="name another prefix in `lake` and another `catalog`, and repeat the command",
        )


def catalog_file(project: ProjectFile) -> Path:
    """The file of the catalog; refuses a catalog on a server, which has its own tools."""
    path = project.catalog.removeprefix("sqlite:///")
    if path == project.catalog:
        raise InputError(
            "this needs a catalog that is a file",
            subject="catalog",
            hint="name an empty database in `catalog` and an empty folder in `lake`, then `rollview setup`",
        )
    return Path(path)
