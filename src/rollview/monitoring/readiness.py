"""Whether a project is ready: its catalog can be read, views are set up, and not all of them have stopped."""

from __future__ import annotations

from rollview.errors import RollviewError
from rollview.service.measures import Measures
from rollview.service.project import Project


def look_at(project: Project) -> tuple[Measures | None, str]:
    """The numbers of a project, if they can be had, and why it is not ready; empty if it is."""
    if project.is_new:
        return None, "the project was never set up: run `rollview setup`"
    try:
        found = project.figures.measures()
    except (RollviewError, OSError) as error:
        return None, project.hide(str(error).splitlines()[0])
    return found, _why_not(found)


def _why_not(found: Measures) -> str:
    if not found.views:
        return "no view is set up: run `rollview setup`"
    if all(view.halted for view in found.views):
        return "every view has stopped: `rollview status` says why"
    return ""
