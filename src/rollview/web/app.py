"""The application: its routes; how open pages hear that something is new, by server-sent events."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from rollview.answer.open_connections import most_connections
from rollview.answer.pool import AnswerPool
from rollview.errors import RollviewError
from rollview.monitoring import Answer, Monitor, health, metrics_text, ready
from rollview.project.project import Project
from rollview.web.address import Access
from rollview.web.context import LOOP, PageContext, fields_of
from rollview.web.guard import SIGN_IN, Guard, with_pass
from rollview.web.pages import lineage, overview, query, rows, transactions, verify, view
from rollview.web.rendering import Renderer
from rollview.web.row_history import RowHistories
from rollview.web.tasks import Tasks
from rollview.web.watch import Watch

_LOOK_SECONDS = 0.25
_BEAT_SECONDS = 10.0


async def _stream(context: PageContext, _: Request) -> Response:
    """A stream that lasts as long as the page is open.

    Streams take half of the connections at most: a new one ends the oldest, whose page connects again.
    """
    headers = {"x-accel-buffering": "no"}
    context.streams.append(token := object())
    del context.streams[: -max(1, most_connections() // 2)]
    return StreamingResponse(_events(context, token), media_type="text/event-stream", headers=headers)


async def _events(context: PageContext, token: object) -> AsyncIterator[str]:
    watch = context.watch
    last: tuple[int, str] = (-1, "")
    silent = 0.0
    yield "retry: 2000\n\n"
    while not watch.is_closed and token in context.streams:
        watch.somebody_watches()
        now = (watch.version, watch.activity)
        if now != last:
            last, silent = now, 0.0
            data = json.dumps({"version": now[0], "activity": now[1]})
            yield f"event: changed\ndata: {data}\n\n"
        elif silent >= _BEAT_SECONDS:
            # A comment line, so that a broken connection is noticed.
            silent = 0.0
            yield ": still here\n\n"
        await asyncio.sleep(_LOOK_SECONDS)
        silent += _LOOK_SECONDS


_log = logging.getLogger(__name__)
_ASSETS = Path(__file__).with_name("assets")

Handler = Callable[[PageContext, Request], Any]
_GET: tuple[tuple[str, Handler], ...] = (
    ("/", overview.show),
    ("/lineage", lineage.show),
    ("/transactions", transactions.recent),
    ("/transactions/{csn}", transactions.one),
    ("/verify", verify.show),
    ("/query", query.ask),
    ("/views/{name}", view.summary),
    ("/views/{name}/rolling", view.rolling),
    ("/views/{name}/rows", rows.rows),
    ("/views/{name}/rows.csv", partial(rows.download, kind="csv")),
    ("/views/{name}/rows.parquet", partial(rows.download, kind="parquet")),
    ("/views/{name}/deltas", rows.deltas),
    ("/views/{name}/deltas/{csn}", rows.effect),
    ("/views/{name}/refreshes", view.refreshes),
    ("/views/{name}/plan", view.plan),
    ("/views/{name}/verify", verify.show),
    ("/live", _stream),
)
_POST: tuple[tuple[str, Handler], ...] = (
    ("/query", query.answer),
    ("/views/{name}/refresh", partial(verify.act, what="refresh")),
    ("/views/{name}/verify", partial(verify.act, what="verify")),
)


def make_app(
    project: Project, watch: Watch, access: Access, monitor: Monitor, answers: AnswerPool
) -> Starlette:
    """The application of a project."""
    renderer = Renderer(project, watch, access)
    context = PageContext(
        project, watch, access, renderer, Tasks(watch, renderer.describe), RowHistories(project), answers
    )
    routes: list[BaseRoute] = [Mount("/assets", StaticFiles(directory=_ASSETS), name="assets")]
    routes += [Route(path, _answering(context, handler), methods=["GET"]) for path, handler in _GET]
    routes += [Route(path, _answering(context, handler), methods=["POST"]) for path, handler in _POST]
    routes += _probes(monitor)
    routes.append(Route(SIGN_IN, partial(_sign_in, context), methods=["GET", "POST"]))
    return Starlette(
        routes=routes,
        middleware=[Middleware(Guard, access=access, renderer=renderer)],
        exception_handlers={HTTPException: renderer.refused, 500: renderer.failed},
    )


def _answering(context: PageContext, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    """A handler whose errors are shown as pages."""

    async def answer(request: Request) -> Response:
        request.scope[LOOP] = asyncio.get_running_loop()
        try:
            if iscoroutinefunction(handler):
                found = await handler(context, request)
            else:
                found = await run_in_threadpool(handler, context, request)
            assert isinstance(found, Response)
            return found
        except HTTPException:
            raise
        except Exception as error:
            if not isinstance(error, RollviewError):
                _log.exception("the page %s failed", request.scope["path"])
            return await run_in_threadpool(context.renderer.problem, error)

    return answer


async def _sign_in(context: PageContext, request: Request) -> Response:
    """Takes the token from a form; the browser need not show it again."""
    if request.method == "GET":
        return context.renderer.sign_in(200, is_wrong=False)
    form = await fields_of(request)
    if not context.access.knows(form.get("token", "").strip()):
        return context.renderer.sign_in(401, is_wrong=True)
    return with_pass(RedirectResponse("/", 303), context.access)


def _probes(monitor: Monitor) -> Iterator[Route]:
    """`/metrics`, `/healthz` and `/readyz`, as `rollview run --metrics PORT` serves them.

    They need the token as all other addresses do.
    """

    def metrics(_: Request) -> Response:
        return Response(metrics_text(monitor), headers={"content-type": CONTENT_TYPE_LATEST})

    def healthz(_: Request) -> Response:
        return _probe(health(monitor))

    def readyz(_: Request) -> Response:
        return _probe(ready(monitor))

    for path, answer in (("/metrics", metrics), ("/healthz", healthz), ("/readyz", readyz)):
        yield Route(path, answer, methods=["GET"])


def _probe(answer: Answer) -> Response:
    return JSONResponse(answer.body, 200 if answer.ok else 503)
