"""Templates become pages; errors become pages that say what `status` would say."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from starlette.requests import Request
from starlette.responses import HTMLResponse

from rollview import __version__
from rollview.errors import InputError, RollviewError
from rollview.service.project import Project
from rollview.web import words
from rollview.web.address import Access
from rollview.web.watch import Watch

_BAD_INPUT, _UNAVAILABLE, _DEFECT = 400, 503, 500
_FILTERS = {
    "duration": words.duration,
    "ago": words.ago,
    "clock": words.clock,
    "iso": words.iso,
    "moment_of": words.moment_of,
    "number": words.number,
    "size": words.size,
    "signed": words.signed,
    "health": words.health,
    "cell": words.cell,
    "kind": words.kind,
}


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
            "plural": words.plural,
            "heads": words.heads,
            "project_name": project.name,
            "release": __version__,
            "form_key": access.form_key,
            "allows_actions": access.allows_actions,
        }

    def page(self, template: str, status: int = 200, **values: Any) -> HTMLResponse:
        """A page of a template."""
        text = self._templates.get_template(template).render(activity=self._watch.activity, **values)
        return HTMLResponse(text, status)

    def sign_in(self, code: int, is_wrong: bool) -> HTMLResponse:
        """The page that asks for the token."""
        return self.page("sign_in.html", code, is_wrong=is_wrong)

    def missing(self, request: Request, _: Exception) -> HTMLResponse:
        """The page of an address that leads nowhere."""
        told = {"message": f"there is no page {request.url.path}", "hint": "", "kind": ""}
        return self.page("problem.html", 404, told=told)

    def problem(self, error: Exception) -> HTMLResponse:
        """The page of an error: what, why, the way out; nothing secret."""
        code = _UNAVAILABLE if isinstance(error, RollviewError) else _DEFECT
        code = _BAD_INPUT if isinstance(error, InputError) else code
        return self.page("problem.html", code, told=self.told(error))

    def told(self, error: Exception) -> dict[str, str]:
        """What a page says of an error."""
        hide = self._project.hide
        if isinstance(error, RollviewError):
            return {"message": hide(error.message), "hint": hide(error.hint), "kind": type(error).__name__}
        line = next(iter(str(error).splitlines()), "")
        hint = "the log has the full traceback"
        return {"message": hide(f"{type(error).__name__}: {line}"), "hint": hint, "kind": ""}
