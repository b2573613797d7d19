"""Whether lake, catalog and the place of the project belong together and are of the same time.

Looked at whenever a process opens both. A catalog that was deleted, restored from a backup, or that is
another one's, would count from the start beside old data, or take new steps for repetitions of old ones.
"""

from __future__ import annotations

import math
import uuid

from rollview.catalog import Catalog
from rollview.config.project_file import ProjectFile
from rollview.errors import LakeDamaged, LakeMisfit, ProjectMoved
from rollview.lake import LakeTable
from rollview.lake.identity import LakeIdentity, newest_commit, read_identity, tables_in, write_identity
from rollview.lake.store import Store
from rollview.sources.source import SetupResult, Source
from rollview.storage.lake_tables import LakeTables, check_epoch


def check_new_catalog(lake: Store) -> None:
    """Refuses to begin a catalog beside tables that an earlier one has written."""
    if read_identity(lake) is not None or any(tables_in(lake)):
        raise _misfit(lake, "the lake has tables, but its catalog is gone")


def check_fit(catalog: Catalog, lake: Store) -> None:
    """Refuses a lake and a catalog that do not fit; a new lake is given to the catalog."""
    identity, own = read_identity(lake), catalog.identity
    if identity is None:
        _adopt(catalog, lake)
    elif identity.catalog != own:
        raise _misfit(lake, "the lake belongs to another catalog")
    commits = [(table.name, newest_commit(table)) for table in tables_in(lake)]
    # Asked last: others are at work meanwhile, and a step is begun before it writes to the lake.
    last_step = catalog.last_step()
    for name, commit in commits:
        if commit is not None and commit.writer.startswith(f"{own}/") and commit.step > last_step:
            raise _misfit(lake, f"the catalog is older than the lake: {name} has a later step")
    _check_not_older(catalog, lake)
    check_epoch(catalog, lake)


def _adopt(catalog: Catalog, lake: Store) -> None:
    """A lake that does not say whose it is: new, or written before lakes did so."""
    own = catalog.identity
    tables = list(tables_in(lake))
    commits = [newest_commit(table) for table in tables]
    ours = [commit for commit in commits if commit is not None and commit.writer.startswith(f"{own}/")]
    if catalog.views.all() and not tables:
        raise _misfit(lake, "the tables of this catalog are gone")
    if any(commit is not None and commit.writer != "create" for commit in commits) and not ours:
        raise _misfit(lake, "the lake belongs to another catalog")
    lake.check()
    write_identity(lake, LakeIdentity(uuid.uuid4().hex, own, catalog.epochs()[0]))


def _check_not_older(catalog: Catalog, lake: Store) -> None:
    """A lake that was restored from a backup does not have what the catalog relies on.

    A table that is missing altogether is reported where it is needed, with its own hint.
    """
    lake_tables = LakeTables(lake, catalog)
    for name, record in catalog.views.all().items():
        tables = lake_tables.of_view(name, record.generation)
        versions = (record.lake_version, record.state_version, record.delta_version)
        if any(_newest_version(table) < known for table, known in zip(tables, versions, strict=True)):
            raise _misfit(lake, f"the lake is older than the catalog: {name} is not what it was")
    versions_of_logs = catalog.captured.lake_versions()
    for name, captured in catalog.captured.tables().items():
        if _newest_version(lake_tables.change_log(captured)) < versions_of_logs[name]:
            raise _misfit(lake, f"the lake is older than the catalog: changes of {name} are missing")


def _newest_version(table: LakeTable) -> float:
    """Errors of a missing or damaged table are reported where it is needed, with their own hints."""
    try:
        return table.version() if table.exists() else math.inf
    except LakeDamaged:
        return math.inf


def _misfit(lake: Store, reason: str) -> LakeMisfit:
    return LakeMisfit(f"{lake.address}: {reason}", subject=lake.address, hint=lake.start_over)


# Where a project was set up. One that was moved or copied asks before it captures.
#
# A copy has the catalog of the original, and with it the names of its replication slots: it would take away
# what the original has not read yet. Only a person knows which of the two is meant to continue.

_OWN_CAPTURE = {
    "postgres": "a replication slot (`slot: NAME`)",
    "mariadb": "a registry (`registry: NAME`), and a `server_id` if it has one,",
}


def check_home(catalog: Catalog, project: ProjectFile) -> None:
    """Refuses to capture for a project that was set up elsewhere; the first time settles where that is."""
    here, known = str(project.path.resolve()), catalog.home()
    if not known:
        catalog.set_home(here)
    elif known != here:
        raise ProjectMoved(
            f"project {project.name} was set up as {known}, and is now {here}",
            subject=project.name,
            hint="`rollview setup --moved` if it was moved; `rollview setup --copy` if both are used",
        )


def check_own_capture(project: ProjectFile, source: Source, checked: SetupResult) -> None:
    """Refuses a copy that would capture by what the original has installed at a source."""
    if not checked.is_first:
        option = _OWN_CAPTURE.get(source.kind, "a setting")
        raise ProjectMoved(
            f"source {source.name}: what setup left there belongs to the project that this one is a copy of",
            subject=source.name,
            hint=f"give it {option} of its own in {project.path.name}, below sources.{source.name}",
        )
