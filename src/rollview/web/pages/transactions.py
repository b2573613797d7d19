"""Transactions: the newest of them, and single ones with everything that is known."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from rollview.errors import PointError
from rollview.web.context import PageContext, csn_in, number_in, whole_number
from rollview.web.row_history import changed_rows

_PAGE, _ROWS = 50, 100


def recent(context: PageContext, request: Request) -> Response:
    """The newest, page by page; of one table if a request names it."""
    csn, table = request.query_params.get("csn", "").strip(), request.query_params.get("of", "")
    if csn:
        return RedirectResponse(f"/transactions/{whole_number(csn, 'csn')}", 303)
    before = number_in(request, "before")
    units = context.project.observe.recent(before, _PAGE + 1, table)
    return context.renderer.page(
        "transactions.html",
        units=units[:_PAGE],
        before=before,
        table=table,
        older=units[_PAGE - 1].csn if len(units) > _PAGE else 0,
        last_csn=context.state().last_csn,
    )


def one(context: PageContext, request: Request) -> Response:
    """One transaction: its sources, time, changes, its effect on each view, and when that was shown."""
    csn = csn_in(request)
    last_csn = context.state().last_csn
    detail = context.project.observe.transaction(csn, _ROWS)
    if detail is None:
        hint = f"the last one is csn:{last_csn}; old ones are forgotten when nothing needs them"
        raise PointError(f"no transaction csn:{csn} is known", subject=str(csn), hint=hint)
    changes = []
    for each in detail.changes:
        rows = None if each.rows is None else changed_rows(each.rows)
        names = [] if each.rows is None else [n for n in each.rows.column_names if n != "_count"]
        changes.append((each, names, rows))
    return context.renderer.page(
        "transaction.html", detail=detail, unit=detail.unit, changes=changes, last_csn=last_csn
    )
