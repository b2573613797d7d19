"""A view: what it shows, its text, how it is maintained, its refreshes, its rolling picture."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from rollview.web.desk import Desk, number_in
from rollview.web.lag_chart import lag_chart
from rollview.web.rolling_chart import rolling_chart, shown_range, wanted_csns

_RECENT, _PAGE = 8, 50
SPANS = (0, 50, 200, 1000, 10_000)
"""How much of the rolling picture is shown; 0 is the last few intervals."""


def summary(desk: Desk, request: Request) -> Response:
    """What it shows, and its text."""
    view, observe = desk.view(request.path_params["name"]), desk.project.observe
    series = desk.watch.lags([view.name]).get(view.name)
    return desk.renderer.page(
        "view.html",
        view=view,
        tab="summary",
        note=desk.watch.known().notes.of_views.get(view.name, ""),
        chart=lag_chart(series),
        sql=observe.sql(view.name),
        columns=observe.columns(view.name),
        readable=observe.readable(view.name),
        refreshes=observe.refreshes(view.name, 0, _RECENT),
        verifications=observe.verifications([view.name], 1),
        tasks=desk.tasks.of(view.name),
    )


def plan(desk: Desk, request: Request) -> Response:
    """The operator tree, with what each part costs."""
    view = desk.view(request.path_params["name"])
    found = desk.project.explain(view.name)
    return desk.renderer.page("plan.html", view=view, tab="plan", plan=found)


def rolling(desk: Desk, request: Request) -> Response:
    """The rolling picture."""
    view, observe = desk.view(request.path_params["name"]), desk.project.observe
    picture = observe.rolling(view.name)
    span, by_time = number_in(request, "span"), request.query_params.get("axis") == "time"
    times = observe.commit_times(wanted_csns(picture, *shown_range(picture, span)))
    chart = rolling_chart(picture, span, times, by_time)
    return desk.renderer.page(
        "rolling.html",
        view=view,
        tab="rolling",
        picture=picture,
        chart=chart,
        span=span,
        spans=SPANS,
        by_time=by_time,
    )


def refreshes(desk: Desk, request: Request) -> Response:
    """The record of refreshes, page by page."""
    view, before = desk.view(request.path_params["name"]), number_in(request, "before")
    found = desk.project.observe.refreshes(view.name, before, _PAGE + 1)
    return desk.renderer.page(
        "refreshes.html",
        view=view,
        tab="refreshes",
        refreshes=found[:_PAGE],
        before=before,
        older=found[_PAGE - 1].step if len(found) > _PAGE else 0,
    )
