"""The rows of a view at any csn, what each transaction did to it, and downloads."""

from __future__ import annotations

import csv
import io
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import FileResponse, Response

from rollview.algebra.valid_time import Readable
from rollview.errors import PointError
from rollview.service.overview import ViewLine
from rollview.web.desk import Desk, number_in
from rollview.web.row_history import RowsAt, changed_rows, rows_of
from rollview.web.words import cell

PAGE = 100
_MOST_DELTAS = 2_000


@dataclass(frozen=True)
class Slider:
    """From which to which csn it goes, where it stands, and the stretches in between that can be read."""

    first: int
    last: int
    at: int
    stored: int
    stretches: tuple[Readable, ...]


def rows(desk: Desk, request: Request) -> Response:
    """The rows at a csn, marked by what changed since another one, or by that transaction itself."""
    view = desk.view(request.path_params["name"])
    slider = _slider(desk, request, view)
    since = number_in(request, "since", max(slider.first, slider.at - 1))
    found: RowsAt | None = None
    if "read" in request.query_params or not desk.histories.needs_spark(view, slider.at, since):
        with desk.one_reader():
            found = desk.histories.at(view, slider.at, since)
    elif slider.at == view.materialized:
        found = desk.histories.stored(view)
    shown = list(found.rows) if found is not None else []
    if len(shown) > PAGE:
        # What changed should be seen, wherever it stands.
        shown.sort(key=lambda each: not each[1])
    pages = max(1, -(-len(shown) // PAGE))
    number = min(max(1, number_in(request, "page", 1)), pages)
    times = desk.project.observe.commit_times([slider.at])
    return desk.renderer.page(
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
    """The address of the same page with what takes longer."""
    return str(request.url.include_query_params(read=1).query)


def _slider(desk: Desk, request: Request, view: ViewLine) -> Slider:
    stretches = desk.project.observe.readable(view.name)
    first, last = stretches[0].first, stretches[-1].last
    at = min(max(number_in(request, "at", view.materialized), first), last)
    # Between two stretches nothing can be read: the end of the one before is the nearest that can.
    ends = [each.last for each in stretches if each.first <= at and at > each.last]
    inside = any(each.first <= at <= each.last for each in stretches)
    return Slider(first, last, at if inside else max(ends), view.materialized, stretches)


def deltas(desk: Desk, request: Request) -> Response:
    """What each transaction did to the view, the newest first, a stretch at a time."""
    view = desk.view(request.path_params["name"])
    span = number_in(request, "span", 50, least=1)
    upto = min(number_in(request, "to", view.high_water), view.high_water)
    after = max(view.oldest, upto - min(span, 1000))
    table = desk.project.observe.local_deltas(view.name, after, upto) if not view.is_full else None
    is_later = table is None and not view.is_full and after < upto and "read" not in request.query_params
    if table is None and not view.is_full and after < upto and not is_later:
        with desk.one_reader():
            table = desk.project.deltas(view.name, after, upto).toArrow()
    found = changed_rows(table) if table is not None else []
    found.sort(key=lambda each: (-each[0], each[1]))
    names = [name for name, _ in desk.project.observe.columns(view.name)]
    shown = found[:_MOST_DELTAS]
    times = desk.project.observe.commit_times({csn for csn, _, _ in shown})
    return desk.renderer.page(
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


def _deltas(desk: Desk, view: str, after: int, upto: int) -> pa.Table:
    found = desk.project.observe.local_deltas(view, after, upto)
    return desk.project.deltas(view, after, upto).toArrow() if found is None else found


def effect(desk: Desk, request: Request) -> Response:
    """What one transaction did to one view: a piece of the page of the transaction."""
    view, csn = desk.view(request.path_params["name"]), int(request.path_params["csn"])
    if not view.oldest < csn <= view.high_water:
        raise PointError(f"the delta of {view.name} does not reach csn {csn}", subject=view.name)
    with desk.one_reader():
        found = changed_rows(_deltas(desk, view.name, csn - 1, csn))
    found.sort(key=lambda each: each[1])
    names = [name for name, _ in desk.project.observe.columns(view.name)]
    shown = found[:_MOST_DELTAS]
    return desk.renderer.page("effect.html", view=view, csn=csn, columns=names, changes=shown)


def download(desk: Desk, request: Request, kind: str) -> Response:
    """All rows at a csn as a file."""
    view = desk.view(request.path_params["name"])
    slider = _slider(desk, request, view)
    with desk.one_reader():
        stored = desk.project.read_stored(view.name) if slider.at == view.materialized else None
        if stored is not None and stored.csn == slider.at:
            table = stored.rows
        else:
            table = desk.project.read_as_of(view.name, slider.at).rows.toArrow()
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
