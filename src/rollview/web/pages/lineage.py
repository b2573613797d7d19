"""The lineage page."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from rollview.web.context import PageContext
from rollview.web.lineage_chart import around, lineage_chart


def show(context: PageContext, request: Request) -> Response:
    """Answers a request: the whole project, or the part around one view."""
    graph, view = context.project.observe.lineage(), request.query_params.get("view", "")
    if view:
        graph = around(graph, context.view(view).name)
    names = [each.name for each in context.state().views]
    return context.renderer.page(
        "lineage.html", chart=lineage_chart(graph), graph=graph, view=view, names=names
    )
