"""The query box: an answer from views and relations that are valid together, with its valid time."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from rollview.errors import InputError, RollviewError
from rollview.web.desk import Desk, form_of
from rollview.web.row_history import Row, rows_of

_MOST_ROWS = 500
_CALLS_JAVA = re.compile(r"\b(?:try_)?reflect\b|\bjava_method\b", re.IGNORECASE)
"""Functions of Spark that call any method of Java: whoever may ask here need not be who runs rollview."""


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
    is_cut: bool
    seconds: float


def ask(desk: Desk, request: Request) -> Response:
    """The empty box, or one with a query to begin with."""
    return _page(desk, request.query_params.get("sql", ""), "", None, None)


async def answer(desk: Desk, request: Request) -> Response:
    """The answer, or why there is none."""
    form = await form_of(request, desk.access)
    if form is None:
        return PlainTextResponse("The form is not one of this page; load the page again.\n", 403)
    return await run_in_threadpool(
        _answered, desk, form.get("sql", "").strip(), form.get("as_of", "").strip()
    )


def _answered(desk: Desk, sql: str, as_of: str) -> Response:
    started = time.monotonic()
    try:
        if not sql:
            raise InputError("there is no query", hint="such as SELECT * FROM a view")
        if called := _CALLS_JAVA.search(sql):
            hint = "`rollview query` has no such limit"
            raise InputError(f"`{called[0]}` cannot be used on this page", subject=called[0], hint=hint)
        with desk.one_reader():
            found = desk.project.query(sql, as_of=as_of or None)
            table = found.rows.limit(_MOST_ROWS + 1).toArrow()
    except RollviewError as error:
        return _page(desk, sql, as_of, None, desk.renderer.told(error))
    shown = Shown(
        csn=found.csn,
        valid_from=found.valid_from,
        valid_until=found.valid_until,
        staleness=found.staleness,
        views=found.views,
        columns=tuple(table.column_names),
        rows=tuple(rows_of(table.slice(0, _MOST_ROWS))),
        is_cut=table.num_rows > _MOST_ROWS,
        seconds=time.monotonic() - started,
    )
    return _page(desk, sql, as_of, shown, None)


def _page(desk: Desk, sql: str, as_of: str, shown: Shown | None, problem: dict[str, str] | None) -> Response:
    overview = desk.overview()
    tables = sorted({table for source in overview.sources for table in source.tables})
    return desk.renderer.page(
        "query.html",
        400 if problem else 200,
        sql=sql,
        as_of=as_of,
        shown=shown,
        problem=problem,
        names=[view.name for view in overview.views],
        tables=tables,
    )
