"""Transactions: the newest of them, and one with all that is known of it."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from rollview.errors import PointError
from rollview.web.desk import Desk, number_in
from rollview.web.row_history import changed_rows

_PAGE, _ROWS = 50, 100


def recent(desk: Desk, request: Request) -> Response:
    """The newest, page by page; of one table if that is asked for."""
    csn, table = request.query_params.get("csn", "").strip(), request.query_params.get("of", "")
    if csn.isdecimal():
        return RedirectResponse(f"/transactions/{int(csn)}", 303)
    before = number_in(request, "before")
    units = desk.project.observe.recent(before, _PAGE + 1, table)
    return desk.renderer.page(
        "transactions.html",
        units=units[:_PAGE],
        before=before,
        table=table,
        older=units[_PAGE - 1].csn if len(units) > _PAGE else 0,
        last_csn=desk.overview().last_csn,
    )


def one(desk: Desk, request: Request) -> Response:
    """Which sources, when, what it changed there, what it did to each view, when that was shown."""
    csn = int(request.path_params["csn"])
    overview = desk.overview()
    detail = desk.project.observe.transaction(csn, _ROWS)
    if detail is None:
        hint = f"the last one is csn:{overview.last_csn}; old ones are forgotten when nothing needs them"
        raise PointError(f"no transaction csn:{csn} is known", subject=str(csn), hint=hint)
    changes = []
    for each in detail.changes:
        rows = None if each.rows is None else changed_rows(each.rows)
        names = [] if each.rows is None else [n for n in each.rows.column_names if n != "_count"]
        changes.append((each, names, rows))
    return desk.renderer.page(
        "transaction.html", detail=detail, unit=detail.unit, changes=changes, last_csn=overview.last_csn
    )
