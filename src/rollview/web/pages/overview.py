"""The first page: what needs somebody, sources, views."""

from __future__ import annotations

import time
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from rollview.service.observer import SourceAnswer
from rollview.service.overview import Overview, SourceLine, ViewLine
from rollview.web.attention import matters
from rollview.web.desk import Desk, number_in
from rollview.web.lag_chart import LagChart, sparkline

PAGE = 50
"""Views on a page."""
_HOW_HIDDEN = ("tables",)
"""What sources say that stands on the page anyway."""


@dataclass(frozen=True)
class SourceShown:
    """A source with what it said when it was asked last."""

    line: SourceLine
    answer: SourceAnswer | None

    @property
    def state(self) -> str:
        """In a word or two."""
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
        """How it is captured, and what that costs there."""
        said = self.answer.how if self.answer is not None else {}
        return {key: text for key, text in said.items() if key not in _HOW_HIDDEN}


@dataclass(frozen=True)
class ViewShown:
    """A view with its last hour."""

    line: ViewLine
    lag: LagChart


@dataclass(frozen=True)
class Pages:
    """Which of several pages this is."""

    number: int
    of: int
    total: int


def show(desk: Desk, request: Request) -> Response:
    """Answers a request."""
    known = desk.watch.known()
    overview = known.overview if known.overview is not None else desk.overview()
    wanted, state = request.query_params.get("find", "").strip(), request.query_params.get("state", "")
    chosen = _chosen(overview, wanted, state)
    count = max(1, -(-len(chosen) // PAGE))
    number = min(max(1, number_in(request, "page", 1)), count)
    lines = chosen[(number - 1) * PAGE : number * PAGE]
    lags = _lags(desk, lines)
    needed = matters(known, overview, time.time(), desk.renderer.told)
    told = " ".join(each.text for each in needed)
    retries = [each for each in desk.watch.retries() if each.message not in told]
    states = {each: sum(view.state == each for view in overview.views) for each in _STATES}
    return desk.renderer.page(
        "overview.html",
        overview=overview,
        matters=needed,
        retries=retries,
        sources=[SourceShown(line, known.sources.get(line.site)) for line in overview.sources],
        views=[ViewShown(line, lags[line.name]) for line in lines],
        states=states,
        pages=Pages(number, count, len(chosen)),
        find=wanted,
        state=state,
    )


_STATES = ("stopped", "catching up", "running")


def _chosen(overview: Overview, wanted: str, state: str) -> list[ViewLine]:
    """Those that somebody looks for; what is stopped first."""
    found = [
        view for view in overview.views if wanted.lower() in view.name.lower() and state in ("", view.state)
    ]
    return sorted(found, key=lambda view: view.state != "stopped")


def _lags(desk: Desk, lines: list[ViewLine]) -> dict[str, LagChart]:
    try:
        found = desk.watch.lags([line.name for line in lines])
    except Exception:  # The rest of the page is worth seeing without it.
        found = {}
    return {line.name: sparkline(found.get(line.name)) for line in lines}
