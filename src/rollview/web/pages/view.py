"""A view: its state, its text, its plan, its refreshes, its rolling picture."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from rollview.observe.lag_chart import lag_chart
from rollview.observe.rolling_chart import rolling_chart, shown_range, wanted_csns
from rollview.web.context import PageContext, number_in

_RECENT, _PAGE = 8, 50
SPANS = (0, 50, 200, 1000, 10_000)
"""How many csn the rolling picture shows; 0 is the last few intervals."""


def summary(context: PageContext, request: Request) -> Response:
    """Its state and its text."""
    view, observe = context.view(request.path_params["name"]), context.project.observe
    series = context.watch.lags([view.name]).get(view.name)
    return context.renderer.page(
        "view.html",
        view=view,
        tab="summary",
        note=context.watch.known().notes.of_views.get(view.name, ""),
        chart=lag_chart(series),
        sql=observe.sql(view.name),
        columns=observe.columns(view.name),
        readable=observe.readable(view.name),
        refreshes=observe.refreshes(view.name, 0, _RECENT),
        verifications=observe.verifications([view.name], 1),
        tasks=context.tasks.of(view.name),
    )


def plan(context: PageContext, request: Request) -> Response:
    """The operator tree, with the costs of each part."""
    view = context.view(request.path_params["name"])
    found = context.project.explain(view.name)
    # Relations with equal look-ups share a line, and one that is read several times is named once.
    paths: dict[tuple[tuple[str, ...], ...], dict[str, None]] = {}
    for path in found.paths:
        paths.setdefault(path.rounds, {})[path.relation] = None
    return context.renderer.page("plan.html", view=view, tab="plan", plan=found, paths=paths)


def rolling(context: PageContext, request: Request) -> Response:
    """The rolling picture."""
    view, observe = context.view(request.path_params["name"]), context.project.observe
    picture = observe.rolling(view.name)
    span, by_time = number_in(request, "span"), request.query_params.get("axis") == "time"
    times = observe.commit_times(wanted_csns(picture, *shown_range(picture, span)))
    chart = rolling_chart(picture, span, times, by_time)
    return context.renderer.page(
        "rolling.html",
        view=view,
        tab="rolling",
        picture=picture,
        chart=chart,
        span=span,
        spans=SPANS,
        by_time=by_time,
    )


def refreshes(context: PageContext, request: Request) -> Response:
    """The record of refreshes, page by page."""
    view, before = context.view(request.path_params["name"]), number_in(request, "before")
    found = context.project.observe.refreshes(view.name, before, _PAGE + 1)
    return context.renderer.page(
        "refreshes.html",
        view=view,
        tab="refreshes",
        refreshes=found[:_PAGE],
        before=before,
        older=found[_PAGE - 1].step if len(found) > _PAGE else 0,
    )
