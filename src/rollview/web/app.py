"""The application: which address leads to which page."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from rollview.errors import RollviewError
from rollview.monitoring import Monitor
from rollview.service.project import Project
from rollview.web import live
from rollview.web.address import Access
from rollview.web.desk import Desk, fields_of
from rollview.web.guard import SIGN_IN, Guard, with_pass
from rollview.web.machines import machine_routes
from rollview.web.pages import lineage, overview, query, rows, transactions, verify, view
from rollview.web.rendering import Renderer
from rollview.web.row_history import RowHistories
from rollview.web.tasks import Tasks
from rollview.web.watch import Watch

_log = logging.getLogger(__name__)
_ASSETS = Path(__file__).with_name("assets")

Handler = Callable[[Desk, Request], Any]
_GET: tuple[tuple[str, Handler], ...] = (
    ("/", overview.show),
    ("/lineage", lineage.show),
    ("/transactions", transactions.recent),
    ("/transactions/{csn:int}", transactions.one),
    ("/verify", verify.show),
    ("/query", query.ask),
    ("/views/{name}", view.summary),
    ("/views/{name}/rolling", view.rolling),
    ("/views/{name}/rows", rows.rows),
    ("/views/{name}/rows.csv", partial(rows.download, kind="csv")),
    ("/views/{name}/rows.parquet", partial(rows.download, kind="parquet")),
    ("/views/{name}/deltas", rows.deltas),
    ("/views/{name}/deltas/{csn:int}", rows.effect),
    ("/views/{name}/refreshes", view.refreshes),
    ("/views/{name}/plan", view.plan),
    ("/views/{name}/verify", verify.show),
    ("/live", live.stream),
)
_POST: tuple[tuple[str, Handler], ...] = (
    ("/query", query.answer),
    ("/views/{name}/refresh", partial(verify.act, what="refresh")),
    ("/views/{name}/verify", partial(verify.act, what="verify")),
)


def make_app(project: Project, watch: Watch, access: Access, monitor: Monitor) -> Starlette:
    """The application of a project."""
    renderer = Renderer(project, watch, access)
    desk = Desk(project, watch, access, renderer, Tasks(watch, renderer.told), RowHistories(project))
    routes: list[BaseRoute] = [Mount("/assets", StaticFiles(directory=_ASSETS), name="assets")]
    routes += [Route(path, _answering(desk, handler), methods=["GET"]) for path, handler in _GET]
    routes += [Route(path, _answering(desk, handler), methods=["POST"]) for path, handler in _POST]
    routes += machine_routes(monitor)
    routes.append(Route(SIGN_IN, partial(_sign_in, desk), methods=["GET", "POST"]))
    return Starlette(
        routes=routes,
        middleware=[Middleware(Guard, access=access, renderer=renderer)],
        exception_handlers={404: renderer.missing},
    )


def _answering(desk: Desk, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    """A handler whose errors are pages, too."""

    async def answer(request: Request) -> Response:
        try:
            if iscoroutinefunction(handler):
                found = await handler(desk, request)
            else:
                found = await run_in_threadpool(handler, desk, request)
            assert isinstance(found, Response)
            return found
        except Exception as error:
            if not isinstance(error, RollviewError):
                _log.exception("the page %s failed", request.url.path)
            return await run_in_threadpool(desk.renderer.problem, error)

    return answer


async def _sign_in(desk: Desk, request: Request) -> Response:
    """Takes the token from a form; a browser that has shown it need not do so again."""
    if request.method == "GET":
        return desk.renderer.sign_in(200, is_wrong=False)
    form = await fields_of(request)
    if not desk.access.knows(form.get("token", "").strip()):
        return desk.renderer.sign_in(401, is_wrong=True)
    return with_pass(RedirectResponse("/", 303), desk.access)
