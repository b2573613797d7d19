"""The query box: an answer from views and relations that are valid together, with its valid time."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from rollview.answer.requests import QueryPlanRequest, QueryRequest
from rollview.errors import InputError, RollviewError
from rollview.web.context import PageContext, form_of
from rollview.web.rendering import is_of_spark
from rollview.web.row_history import Row, rows_of

_MOST_ROWS = 500


@dataclass(frozen=True)
class Shown:
    """An answer, its first rows, and how long it took."""

    csn: int
    valid_from: str
    valid_until: str
    staleness: float
    views: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    total: int
    seconds: float


def ask(context: PageContext, request: Request) -> Response:
    """The empty box, or one with a query to begin with."""
    return _page(context, request.query_params.get("sql", ""), "", None, None)


async def answer(context: PageContext, request: Request) -> Response:
    """The answer, or why there is none."""
    form = await form_of(request, context.access)
    if form is None:
        return PlainTextResponse("The form is not one of this page; load the page again.\n", 403)
    compute = _explained if form.get("explain") else _answered
    return await run_in_threadpool(
        compute, context, request, form.get("sql", "").strip(), form.get("as_of", "").strip()
    )


def _explained(context: PageContext, request: Request, sql: str, as_of: str) -> Response:
    """What would be read, and which views were considered."""
    try:
        facts = context.asking(request)(QueryPlanRequest(_given(sql), as_of or None)).facts
    except Exception as error:
        if not isinstance(error, RollviewError) and not is_of_spark(error):
            raise
        return _page(context, sql, as_of, None, error)
    return _page(context, sql, as_of, None, None, facts)


def _answered(context: PageContext, request: Request, sql: str, as_of: str) -> Response:
    started = time.monotonic()
    try:
        reply = context.asking(request)(QueryRequest(_given(sql), as_of or None, limit=_MOST_ROWS))
    except Exception as error:
        if not isinstance(error, RollviewError) and not is_of_spark(error):
            raise
        return _page(context, sql, as_of, None, error)
    known, page = reply.facts, reply.page
    assert page is not None
    shown = Shown(
        csn=known["csn"],
        valid_from=known["valid_from"],
        valid_until=known["valid_until"],
        staleness=known["staleness"],
        views=tuple(known["views"]),
        columns=tuple(page.rows.column_names),
        rows=tuple(rows_of(page.rows)),
        total=page.total,
        seconds=time.monotonic() - started,
    )
    return _page(context, sql, as_of, shown, None)


def _given(sql: str) -> str:
    if not sql:
        raise InputError("there is no query", hint="such as SELECT * FROM a view")
    return sql


def _page(
    context: PageContext,
    sql: str,
    as_of: str,
    shown: Shown | None,
    error: Exception | None,
    plan: Mapping[str, Any] | None = None,
) -> Response:
    state = context.state()
    tables = sorted({table for source in state.sources for table in source.tables})
    return context.renderer.page(
        "query.html",
        200 if error is None else context.renderer.status_of(error),
        sql=sql,
        as_of=as_of,
        shown=shown,
        plan=plan,
        problem=None if error is None else context.renderer.describe(error),
        names=[view.name for view in state.views],
        tables=tables,
    )
