"""What is made of what."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from rollview.web.desk import Desk
from rollview.web.lineage_chart import around, lineage_chart


def show(desk: Desk, request: Request) -> Response:
    """Answers a request: the whole project, or what concerns one view."""
    graph, view = desk.project.observe.lineage(), request.query_params.get("view", "")
    if view:
        graph = around(graph, desk.view(view).name)
    names = [each.name for each in desk.overview().views]
    return desk.renderer.page("lineage.html", chart=lineage_chart(graph), graph=graph, view=view, names=names)
