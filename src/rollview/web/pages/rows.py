"""The rows of a view at any csn, what each transaction did to it, and downloads."""

from __future__ import annotations

import csv
import io
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa
import pyarrow.parquet as pq
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import FileResponse, Response

from rollview.algebra.valid_time import Readable
from rollview.answer.requests import DeltasRequest, ReadRequest
from rollview.errors import PointError
from rollview.observe.state import ViewState
from rollview.web.context import PageContext, csn_in, number_in
from rollview.web.formats import cell
from rollview.web.row_history import RowsAt, changed_rows, rows_in, rows_of

PAGE = 100
_MOST_DELTAS = 2_000


@dataclass(frozen=True)
class Slider:
    """Its range of csn, its position, and the readable ranges in between."""

    first: int
    last: int
    at: int
    stored: int
    stretches: tuple[Readable, ...]


def rows(context: PageContext, request: Request) -> Response:
    """The rows at a csn, marked by what changed since another one, or by that transaction itself."""
    view = context.view(request.path_params["name"])
    slider = _slider(context, request, view)
    since = number_in(request, "since", max(slider.first, slider.at - 1))
    found: RowsAt | None = None
    if not context.histories.needs_spark(view, slider.at, since):
        found = context.histories.at(view, slider.at, since, context.project.answer)
    elif "read" in request.query_params:
        found = context.histories.at(view, slider.at, since, context.asking(request))
    elif slider.at == view.materialized:
        found = context.histories.stored(view)
    shown = list(found.rows) if found is not None else []
    if len(shown) > PAGE:
        # Changed rows should be visible wherever they are.
        shown.sort(key=lambda each: not each[1])
    pages = max(1, -(-len(shown) // PAGE))
    number = min(max(1, number_in(request, "page", 1)), pages)
    times = context.project.observe.commit_times([slider.at])
    return context.renderer.page(
        "rows.html",
        view=view,
        tab="rows",
        slider=slider,
        found=found,
        later=_later(request),
        rows=shown[(number - 1) * PAGE : number * PAGE],
        number=number,
        pages=pages,
        commit_time=times.get(slider.at),
    )


def _later(request: Request) -> str:
    """The address of the same page with the slow part included."""
    return urlencode({**request.query_params, "read": "1"})


def _slider(context: PageContext, request: Request, view: ViewState) -> Slider:
    stretches = context.project.observe.readable(view.name)
    first, last = stretches[0].first, stretches[-1].last
    at = min(max(number_in(request, "at", view.materialized), first), last)
    # Between two ranges nothing can be read: the nearest readable csn is the end of the one before.
    ends = [each.last for each in stretches if each.first <= at and at > each.last]
    inside = any(each.first <= at <= each.last for each in stretches)
    return Slider(first, last, at if inside else max(ends), view.materialized, stretches)


def deltas(context: PageContext, request: Request) -> Response:
    """The changes of each transaction to the view, the newest first, page by page."""
    view = context.view(request.path_params["name"])
    span = number_in(request, "span", 50, least=1)
    upto = min(number_in(request, "to", view.high_water), view.high_water)
    after = max(view.oldest, upto - min(span, 1000))
    table = context.project.observe.local_deltas(view.name, after, upto) if not view.is_full else None
    is_later = table is None and not view.is_full and after < upto and "read" not in request.query_params
    if table is None and not view.is_full and after < upto and not is_later:
        table = _deltas(context, request, view.name, after, upto)
    found = changed_rows(table) if table is not None else []
    found.sort(key=lambda each: (-each[0], each[1]))
    names = [name for name, _ in context.project.observe.columns(view.name)]
    shown = found[:_MOST_DELTAS]
    times = context.project.observe.commit_times({csn for csn, _, _ in shown})
    return context.renderer.page(
        "deltas.html",
        view=view,
        tab="deltas",
        columns=names,
        changes=shown,
        left_out=len(found) - len(shown),
        after=after,
        upto=upto,
        span=span,
        times=times,
        later=_later(request) if is_later else "",
    )


def _deltas(context: PageContext, request: Request, view: str, after: int, upto: int) -> pa.Table:
    found = context.project.observe.local_deltas(view, after, upto)
    if found is not None:
        return found
    return rows_in(context.asking(request)(DeltasRequest(view, f"csn:{after}", f"csn:{upto}")))


def effect(context: PageContext, request: Request) -> Response:
    """The changes of one transaction to one view: a part of the page of the transaction."""
    view, csn = context.view(request.path_params["name"]), csn_in(request)
    if not view.oldest < csn <= view.high_water:
        raise PointError(f"the delta of {view.name} does not reach csn {csn}", subject=view.name)
    found = changed_rows(_deltas(context, request, view.name, csn - 1, csn))
    found.sort(key=lambda each: each[1])
    names = [name for name, _ in context.project.observe.columns(view.name)]
    shown = found[:_MOST_DELTAS]
    return context.renderer.page("effect.html", view=view, csn=csn, columns=names, changes=shown)


def download(context: PageContext, request: Request, kind: str) -> Response:
    """All rows at a csn as a file."""
    view = context.view(request.path_params["name"])
    slider = _slider(context, request, view)
    stored = context.project.read_stored(view.name) if slider.at == view.materialized else None
    if stored is not None and stored.csn == slider.at:
        table = stored.rows
    else:
        table = rows_in(context.asking(request)(ReadRequest(view.name, f"csn:{slider.at}")))
    name = f"{view.name}-csn-{slider.at}.{kind}"
    if kind == "csv":
        headers = {"content-disposition": _attachment(name)}
        return Response(as_csv(table), media_type="text/csv; charset=utf-8", headers=headers)
    with tempfile.NamedTemporaryFile(prefix="rollview-", suffix=".parquet", delete=False) as file:
        path = Path(file.name)
    pq.write_table(table, path)
    return FileResponse(
        path,
        media_type="application/vnd.apache.parquet",
        headers={"content-disposition": _attachment(name)},
        background=BackgroundTask(path.unlink, missing_ok=True),
    )


def _attachment(name: str) -> str:
    plain = "".join(each if each.isascii() and (each.isalnum() or each in "-_.") else "_" for each in name)
    return f'attachment; filename="{plain}"'


def as_csv(table: pa.Table) -> str:
    """A table as CSV; NULL is empty."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(table.column_names)
    writer.writerows(_plain(row) for row in rows_of(table))
    return file.getvalue()


def _plain(row: Sequence[Any]) -> list[Any]:
    return [value if value is None or isinstance(value, int | float | str) else cell(value) for value in row]
