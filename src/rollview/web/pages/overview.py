"""The first page: what needs attention, sources, views."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from rollview.observe.lag_chart import LagChart, sparkline
from rollview.observe.lags import LagSeries
from rollview.observe.observer import SourceAnswer
from rollview.observe.state import ProjectState, SourceState, ViewState
from rollview.web.attention import first_line, matters
from rollview.web.context import PageContext, number_in

PAGE = 50
"""Views on a page."""
_HOW_HIDDEN = ("tables",)
"""Facts of sources that are on the page anyway."""


@dataclass(frozen=True)
class SourceShown:
    """A source with its last description of itself."""

    line: SourceState
    answer: SourceAnswer | None

    @property
    def state(self) -> str:
        """The state, in a word or two."""
        if self.line.halted is not None:
            return "stopped"
        if self.answer is None:
            return "asking"
        return "not reachable" if self.problem else "reachable"

    @property
    def problem(self) -> str:
        """Why it does not answer; empty if it does."""
        if self.answer is None:
            return ""
        said = self.answer.how.get("server", "")
        return self.answer.problem or (said if said.startswith("unavailable") else "")

    @property
    def how(self) -> dict[str, str]:
        """How it is captured, and the cost at the source."""
        said = self.answer.how if self.answer is not None else {}
        return {key: text for key, text in said.items() if key not in _HOW_HIDDEN}


@dataclass(frozen=True)
class ViewShown:
    """A view with its last hour."""

    line: ViewState
    lag: LagChart


@dataclass(frozen=True)
class Pages:
    """Which of several pages this is."""

    number: int
    of: int
    total: int


def show(context: PageContext, request: Request) -> Response:
    """Answers a request."""
    known = context.watch.known()
    found = known.state if known.state is not None else context.state()
    wanted, state = request.query_params.get("find", "").strip(), request.query_params.get("state", "")
    chosen = _chosen(found, wanted, state)
    count = max(1, -(-len(chosen) // PAGE))
    number = min(max(1, number_in(request, "page", 1)), count)
    lines = chosen[(number - 1) * PAGE : number * PAGE]
    lags = _lags(context, lines)
    needed = matters(known, found, time.time(), context.renderer.describe)
    listed = " ".join(each.text for each in needed)
    retries = [each for each in context.watch.retries() if each.message not in listed]
    states = {each: sum(_kind(view) == each for view in found.views) for each in _STATES}
    return context.renderer.page(
        "overview.html",
        project=found,
        matters=needed,
        first_line=first_line(found, lambda names: _hour(context, names), time.time()),
        retries=retries,
        sources=[SourceShown(line, known.sources.get(line.site)) for line in found.sources],
        views=[ViewShown(line, lags[line.name]) for line in lines],
        states=states,
        pages=Pages(number, count, len(chosen)),
        find=wanted,
        state=state,
    )


_STATES = ("stopped", "waiting", "catching up", "running")


def _kind(view: ViewState) -> str:
    """A state without what it waits for."""
    return view.state.partition(" for ")[0]


def _chosen(project: ProjectState, wanted: str, state: str) -> list[ViewState]:
    """The views that match the search; stopped ones first."""
    found = [
        view for view in project.views if wanted.lower() in view.name.lower() and state in ("", _kind(view))
    ]
    return sorted(found, key=lambda view: view.state != "stopped")


def _lags(context: PageContext, lines: list[ViewState]) -> dict[str, LagChart]:
    found = _hour(context, [line.name for line in lines])
    return {line.name: sparkline(found.get(line.name)) for line in lines}


def _hour(context: PageContext, views: list[str]) -> Mapping[str, LagSeries]:
    try:
        return context.watch.lags(views)
    except Exception:  # The page is useful without it.
        return {}
