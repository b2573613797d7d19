"""What verify found, and work that somebody asks for on a page: refresh and verify."""

from __future__ import annotations

from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from rollview.web.desk import Desk, form_of
from rollview.web.words import plural

_PAGE = 100


def show(desk: Desk, request: Request) -> Response:
    """The last verification of each view, or the record of one."""
    name = request.path_params.get("name", "")
    if name:
        view = desk.view(name)
        found = desk.project.observe.verifications([view.name], _PAGE)
        tasks = desk.tasks.of(view.name)
        return desk.renderer.page("verifications.html", view=view, tab="verify", found=found, tasks=tasks)
    views = desk.overview().views
    last = [(view, next(iter(desk.project.observe.verifications([view.name], 1)), None)) for view in views]
    return desk.renderer.page("verify.html", last=last)


async def act(desk: Desk, request: Request, what: str) -> Response:
    """Refreshes or verifies a view, if that is allowed here."""
    form = await form_of(request, desk.access)
    if form is None:
        return PlainTextResponse("The form is not one of this page; load the page again.\n", 403)
    if not desk.access.allows_actions:
        return PlainTextResponse("This page is for looking: --allow-actions was not given.\n", 403)
    view = (await run_in_threadpool(desk.view, request.path_params["name"])).name

    def refresh() -> str:
        return f"shows csn {desk.project.refresh(view).csn}"

    def verify() -> str:
        (found,) = desk.project.verify(view)
        compared = plural(found.rows, "row")
        if found.is_right:
            return f"{compared} at csn {found.csn}, identical when recomputed"
        return f"{plural(found.different, 'row')} of {found.rows} differ at csn {found.csn}"

    desk.tasks.begin(what, view, refresh if what == "refresh" else verify)
    return RedirectResponse(f"/views/{quote(view, safe='')}#tasks", 303)
