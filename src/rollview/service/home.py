"""Where a project was set up. One that was moved or copied asks before it captures.

A copy has the catalog of the original, and with it the names of its replication slots: it would take away
what the original has not read yet. Only a person knows which of both is meant to go on.
"""

from __future__ import annotations

from rollview.catalog import Catalog
from rollview.errors import ProjectMoved
from rollview.service.project_file import ProjectFile
from rollview.sources.source import SetupResult, Source

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
            hint="`rollview setup --moved` if it was moved; `rollview setup --copy` if the other one goes on",
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
