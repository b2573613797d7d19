"""Where a project was set up. One that was moved or copied asks before it captures.

A copy has the catalog of the original, and with it the names of its replication slots: it would take away
what the original has not read yet. Only a person knows which of both is meant to go on.
"""

from __future__ import annotations

from collections.abc import Iterable

from rollview.catalog import Catalog
from rollview.errors import ProjectMoved
from rollview.service.project_file import ProjectFile


def check_home(catalog: Catalog, project: ProjectFile) -> None:
    """Refuses to capture for a project that was set up elsewhere; the first time settles where that is."""
    here, known = str(project.path.resolve()), catalog.home()
    if not known:
        catalog.set_home(here)
    elif known != here:
        raise ProjectMoved(
            f"project {project.name} was set up as {known}, and is now {here}",
            subject=project.name,
            hint="`rollview setup --moved` if it was moved; `rollview setup --copy` if the other one goes on",
        )


def check_own_capture(project: ProjectFile, source: str, changes: Iterable[str]) -> None:
    """Refuses a copy that would capture by what the original has installed at a source."""
    if not any(each.startswith("created replication slot") for each in changes):
        raise ProjectMoved(
            f"source {source}: the replication slot there belongs to the project that this one is a copy of",
            subject=source,
            hint=f"give it a slot of its own in {project.path.name}: `slot: NAME` below sources.{source}",
        )
