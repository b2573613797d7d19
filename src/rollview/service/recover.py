"""recover: a way back from a lake and a catalog that do not fit.

What is there is set aside, not mixed in and not deleted: the tables stay readable for any Delta reader. Then
a catalog begins that counts on from the last csn that the tables tell of, so that no csn is given twice, and
every view is loaded from its sources, which are the truth.
"""

from __future__ import annotations

import shutil
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from rollview.catalog import Catalog
from rollview.errors import CatalogUnavailable, InputError, LakeDamaged, LakeMisfit, LakeUnavailable
from rollview.lake.identity import FILE, FOLDERS, newest_commit, tables_in
from rollview.service.apply import LEASE as APPLY
from rollview.service.capture import LEASE as CAPTURE
from rollview.service.lake_fit import check_fit, check_new_catalog
from rollview.service.private_files import make_private_folder
from rollview.service.project_file import ProjectFile

SET_ASIDE = "set-aside"
_PATIENCE_SECONDS = 5.0


def why_recover(project: ProjectFile) -> str:
    """Why lake and catalog cannot be used as they are; refuses if they can."""
    file = catalog_file(project)
    try:
        if not file.exists():
            check_new_catalog(project.lake)
        else:
            catalog = Catalog.open(project.catalog)
            try:
                check_fit(catalog, project.lake)
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
        "there is nothing to recover: lake and catalog fit",
        subject=project.name,
        hint="`rollview setup --reload all` loads the views anew",
    )


def last_known(lake: Path) -> tuple[int, float]:
    """The newest csn that any table tells of, also one that was set aside, and its commit time."""
    lakes = [lake, *(lake / SET_ASIDE).glob("*")]
    commits = [newest_commit(table) for each in lakes for table in tables_in(each)]
    return max(((each.csn, each.commit_time) for each in commits if each is not None), default=(0, 0.0))


def set_aside(project: ProjectFile) -> Path:
    """Moves tables and catalog away, once nobody works with them; returns where they are."""
    file = catalog_file(project)
    with ExitStack() as stack:
        if file.exists():
            _keep_others_out(stack, project)
        make_private_folder(project.lake / SET_ASIDE)
        folder = _new_folder(project.lake / SET_ASIDE)
        # The catalog goes first: what is left of an interrupted move is a lake without a catalog.
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
    raise LakeUnavailable(f"{parent} has too many folders of this second", subject=str(parent))


def _keep_others_out(stack: ExitStack, project: ProjectFile) -> None:
    try:
        catalog = Catalog.open(project.catalog)
    except CatalogUnavailable as error:
        # A catalog that is damaged keeps nobody at work.
        if _is_damaged(error):
            return
        raise
    stack.callback(catalog.close)
    for name in ("run", CAPTURE, APPLY):
        stack.enter_context(catalog.lease(name, _PATIENCE_SECONDS))


def _is_damaged(error: CatalogUnavailable) -> bool:
    return any(words in error.message for words in ("not a database", "malformed"))


def catalog_file(project: ProjectFile) -> Path:
    """The file of the catalog; refuses a catalog on a server, which has its own ways."""
    path = project.catalog.removeprefix("sqlite:///")
    if path == project.catalog:
        raise InputError(
            "this needs a catalog that is a file",
            subject="catalog",
            hint="name an empty database in `catalog` and an empty folder in `lake`, then `rollview setup`",
        )
    return Path(path)
