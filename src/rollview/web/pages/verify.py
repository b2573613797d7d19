"""Results of verify, and the buttons of the page: refresh and verify."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from rollview.errors import RollviewError
from rollview.upkeep.verify import Verification, doubtful
from rollview.web.context import PageContext, form_of
from rollview.web.formats import plural

_PAGE = 100


def show(context: PageContext, request: Request) -> Response:
    """The last verification of each view, or the record of one."""
    name = request.path_params.get("name", "")
    if name:
        view = context.view(name)
        found = context.project.observe.verifications([view.name], _PAGE)
        tasks = context.tasks.of(view.name)
        return context.renderer.page("verifications.html", view=view, tab="verify", found=found, tasks=tasks)
    views = context.state().views
    last = [(view, next(iter(context.project.observe.verifications([view.name], 1)), None)) for view in views]
    return context.renderer.page("verify.html", last=last)


async def act(context: PageContext, request: Request, what: str) -> Response:
    """Refreshes or verifies a view, if that is allowed here."""
    form = await form_of(request, context.access)
    if form is None:
        return PlainTextResponse("The form is not one of this page; load the page again.\n", 403)
    if not context.access.allows_actions:
        return PlainTextResponse("This page is read-only: --allow-actions was not given.\n", 403)
    view = (await run_in_threadpool(context.view, request.path_params["name"])).name

    def refresh() -> str:
        return f"shows csn {context.project.refresh(view).csn}"

    def verify() -> str:
        found, *suspects = context.project.verify(view)
        if found.problem:
            raise RollviewError(found.problem, subject=view)
        compared = plural(found.rows, "row")
        if found.is_right:
            return f"{compared} at csn {found.csn}, identical when recomputed"
        raise _wrong(found, suspects)

    context.tasks.begin(what, view, refresh if what == "refresh" else verify)
    return RedirectResponse(f"/views/{quote(view, safe='')}#tasks", 303)


def _wrong(found: Verification, suspects: Sequence[Verification]) -> RollviewError:
    """The differences, and the command that reloads every view that is or may be wrong."""
    doubts = doubtful([found, *suspects])
    text = f"{plural(found.different, 'row')} of {found.rows} differ at csn {found.csn}"
    others = [name for name in doubts.wrong if name != found.view]
    if others:
        text += f"; {', '.join(others)}: read the same tables, and differ, too"
    if doubts.unknown:
        text += f"; {', '.join(doubts.unknown)}: could not be verified, and may be wrong as well"
    return RollviewError(text, subject=found.view, hint=f"`{doubts.command}` reloads what is wrong")
