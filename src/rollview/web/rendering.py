"""Templates become pages; errors become pages with the same words as `status`."""

from __future__ import annotations

import shlex
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse

from rollview.errors import EvaluationError, InputError, RollviewError
from rollview.observe import times
from rollview.project.project import Project
from rollview.storage.points_in_time import iso
from rollview.version import __version__
from rollview.web import formats
from rollview.web.address import Access
from rollview.web.watch import Watch

_BAD_INPUT, _UNAVAILABLE, _DEFECT = 400, 503, 500
_FILTERS = {
    "duration": times.duration,
    "ago": times.ago,
    "clock": times.clock,
    "iso": iso,
    "moment_of": times.moment_of,
    "number": formats.number,
    "size": formats.size,
    "signed": formats.signed,
    "health": formats.health,
    "cell": formats.cell,
    "quoted": shlex.quote,
    "kind": formats.kind,
}


def is_of_spark(error: Exception) -> bool:
    """Whether Spark raised it, without loading Spark."""
    return type(error).__module__.startswith("pyspark.")


class Renderer:
    """Makes pages of one project."""

    def __init__(self, project: Project, watch: Watch, access: Access) -> None:
        self._project, self._watch, self._access = project, watch, access
        self._templates = Environment(
            loader=PackageLoader("rollview.web"),
            autoescape=select_autoescape(("html", "svg")),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters["part"] = lambda text: quote(str(text), safe="")
        self._templates.filters |= _FILTERS
        self._templates.globals |= {
            "plural": formats.plural,
            "heads": formats.heads,
            "project_name": project.name,
            "release": __version__,
            "form_key": access.form_key,
            "allows_actions": access.allows_actions,
        }

    def page(self, template: str, status: int = 200, **values: Any) -> HTMLResponse:
        text = self._templates.get_template(template).render(activity=self._watch.activity, **values)
        return HTMLResponse(text, status)

    def sign_in(self, code: int, is_wrong: bool) -> HTMLResponse:
        return self.page("sign_in.html", code, is_wrong=is_wrong)

    def refused(self, request: Request, error: Exception) -> HTMLResponse:
        """The page of a request that is refused for its address, its method or its size."""
        assert isinstance(error, HTTPException)
        # Not its URL: the client chose the host name in it.
        missing = f"there is no page {request.scope['path']}"
        message = missing if error.status_code in (404, 405) else str(error.detail)
        problem = {"message": message, "hint": "", "kind": ""}
        return self.page("problem.html", error.status_code, problem=problem)

    def failed(self, _: Request, error: Exception) -> HTMLResponse:
        """The page of an uncaught programming error."""
        return self.problem(error)

    def problem(self, error: Exception) -> HTMLResponse:
        """The page of an error: what, why, the way out; nothing secret."""
        return self.page("problem.html", self.status_of(error), problem=self.describe(error))

    def status_of(self, error: Exception) -> int:
        """The HTTP status of an error. Errors of Spark about a query are the client's."""
        if isinstance(error, InputError | EvaluationError) or is_of_spark(error):
            return _BAD_INPUT
        return _UNAVAILABLE if isinstance(error, RollviewError) else _DEFECT

    def describe(self, error: Exception) -> dict[str, str]:
        """The text of an error for a page, without secrets."""
        hide = self._project.hide
        if isinstance(error, RollviewError):
            return {"message": hide(error.message), "hint": hide(error.hint), "kind": type(error).__name__}
        line = next(iter(str(error).splitlines()), "")
        hint = "the log has the full traceback"
        line = self._project.hide_foreign(f"{type(error).__name__}: {line}")
        return {"message": line, "hint": hint, "kind": ""}
