"""Whether a lake and a catalog belong together and are of the same time.

Looked at whenever a process opens both. A catalog that was deleted, restored from a backup, or that is
another one's, would count anew beside old data, or take new steps for repetitions of old ones.
"""

from __future__ import annotations

import math
import uuid
from pathlib import Path

from rollview.catalog import Catalog
from rollview.errors import LakeDamaged, LakeMisfit
from rollview.lake import LakeTable
from rollview.lake.identity import LakeIdentity, newest_commit, read_identity, tables_in, write_identity
from rollview.service.epoch import HINT, check_epoch
from rollview.service.lake_tables import LakeTables


def check_new_catalog(lake: Path) -> None:
    """Refuses to begin a catalog beside tables that an earlier one has written."""
    if read_identity(lake) is not None or any(tables_in(lake)):
        raise _misfit(lake, "the lake has tables, but its catalog is gone")


def check_fit(catalog: Catalog, lake: Path) -> None:
    """Refuses a lake and a catalog that do not fit; a new lake is given to the catalog."""
    identity, own = read_identity(lake), catalog.identity
    if identity is None:
        _adopt(catalog, lake)
    elif identity.catalog != own:
        raise _misfit(lake, "the lake belongs to another catalog")
    commits = {folder: newest_commit(folder) for folder in tables_in(lake)}
    # Asked last: others are at work meanwhile, and a step is begun before it writes to the lake.
    last_step = catalog.last_step()
    for folder, commit in commits.items():
        if commit is not None and commit.writer.startswith(f"{own}/") and commit.step > last_step:
            raise _misfit(lake, f"the catalog is older than the lake: {folder.name} has a later step")
    _check_not_older(catalog, lake)
    check_epoch(catalog, lake)


def _adopt(catalog: Catalog, lake: Path) -> None:
    """A lake that does not say whose it is: new, or written before lakes did so."""
    own = catalog.identity
    tables = list(tables_in(lake))
    commits = [newest_commit(folder) for folder in tables]
    ours = [commit for commit in commits if commit is not None and commit.writer.startswith(f"{own}/")]
    if catalog.views() and not tables:
        raise _misfit(lake, "the tables of this catalog are gone")
    if any(commit is not None and commit.writer != "create" for commit in commits) and not ours:
        raise _misfit(lake, "the lake belongs to another catalog")
    write_identity(lake, LakeIdentity(uuid.uuid4().hex, own, catalog.epochs()[0]))


def _check_not_older(catalog: Catalog, lake: Path) -> None:
    """A lake that was restored from a backup does not have what the catalog relies on.

    A table that is missing altogether is reported by whoever needs it, with a way out of its own.
    """
    lake_tables = LakeTables(lake, catalog)
    for name, record in catalog.views().items():
        tables = lake_tables.of_view(name, record.generation)
        versions = (record.lake_version, record.state_version, record.delta_version)
        if any(_newest_version(table) < known for table, known in zip(tables, versions, strict=True)):
            raise _misfit(lake, f"the lake is older than the catalog: {name} is not what it was")
    versions_of_logs = catalog.lake_versions()
    for name, captured in catalog.tables().items():
        if _newest_version(lake_tables.change_log(captured)) < versions_of_logs[name]:
            raise _misfit(lake, f"the lake is older than the catalog: changes of {name} are missing")


def _newest_version(table: LakeTable) -> float:
    """A table that is missing or damaged is reported by whoever needs it, with a way out of its own."""
    try:
        return table.version() if table.exists() else math.inf
    except LakeDamaged:
        return math.inf


def _misfit(lake: Path, reason: str) -> LakeMisfit:
    return LakeMisfit(f"{lake}: {reason}", subject=str(lake), hint=HINT)
