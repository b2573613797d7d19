"""The lag of a view over the last hour, as lines: a small one for a table, a large one with axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rollview.observe import svg
from rollview.observe.lags import MINUTE_SECONDS, LagSeries
from rollview.observe.times import clock, duration

_STEPS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 21600, 86400, 604800)
_LEAST_SCALE = 1.0


@dataclass(frozen=True)
class Tick:
    """A place on an axis and its label."""

    at: float
    label: str


@dataclass(frozen=True)
class LagChart(svg.Chart):
    """A line, the area below it, axes; `summary` says the same in words. A small one has no ticks."""

    width: float
    height: float
    left: float
    bottom: float
    line: str
    area: str
    across: tuple[Tick, ...]
    up: tuple[Tick, ...]
    summary: str

    def svg(self) -> str:
        """The chart as an SVG element."""
        area = svg.element("path", {"class": "area", "d": self.area, "fill": svg.ACCENT_SOFT})
        thick = {"fill": "none", "stroke": svg.ACCENT, "stroke-width": 1.4, "stroke-linejoin": "round"}
        drawn = [area, svg.element("path", {"class": "line", "d": self.line, **thick})]
        kind = "chart" if self.up else "spark"
        return svg.frame(kind, self.width, self.height, f"lag: {self.summary}", [*self._axes(), *drawn])

    def _axes(self) -> list[str]:
        if not self.up:
            return [svg.line("axis", (0, self.bottom), (self.width, self.bottom), svg.RULE)]
        found = []
        for tick in self.up:
            place: dict[str, object] = {"x": self.left - 8, "y": tick.at + 3.5, "text-anchor": "end"}
            found.append(svg.line("grid", (self.left, tick.at), (self.width - 10, tick.at), svg.RULE))
            found.append(svg.text(tick.label, {"class": "tick", **place}))
        for tick in self.across:
            place = {"x": tick.at, "y": self.bottom + 17, "text-anchor": "middle"}
            found.append(svg.line("grid", (tick.at, self.bottom), (tick.at, self.bottom + 4), svg.RULE))
            found.append(svg.text(tick.label, {"class": "tick", **place}))
        return found


def sparkline(series: LagSeries | None, width: float = 116, height: float = 22) -> LagChart:
    """A line without axes."""
    seconds = series.seconds if series is not None else ()
    top = max([_LEAST_SCALE, *(each for each in seconds if each is not None)])
    line, area = _paths(seconds, _Frame(0, 2, width, height - 3), top)
    return LagChart(width, height, 0, height - 1, line, area, (), (), lag_summary(series))


def lag_chart(series: LagSeries | None, width: float = 600, height: float = 150) -> LagChart:
    """A line with axes."""
    seconds = series.seconds if series is not None else ()
    peak = max([_LEAST_SCALE, *(each for each in seconds if each is not None)])
    step = next((each for each in _STEPS if each * 3 >= peak), _STEPS[-1])
    top, frame = step * 3, _Frame(52, 10, width - 62, height - 34)
    line, area = _paths(seconds, frame, top)
    up = tuple(Tick(frame.y(step * part, top), duration(step * part)) for part in range(4))
    across = []
    if series is not None and len(seconds) > 1:
        last = series.until // MINUTE_SECONDS
        for place in range(len(seconds)):
            minute = last - len(seconds) + 1 + place
            if minute % 10 == 0:
                label = clock(minute * MINUTE_SECONDS)[-8:-3]
                across.append(Tick(frame.x(place, len(seconds)), label))
    bottom = frame.top + frame.height
    return LagChart(width, height, frame.left, bottom, line, area, tuple(across), up, lag_summary(series))


def lag_summary(series: LagSeries | None) -> str:
    """The hour in words."""
    known = [each for each in series.seconds if each is not None] if series is not None else []
    if not known:
        return "no refresh in the last hour"
    return f"at most {duration(max(known))} in the last hour, {duration(known[-1])} in the last minute"


@dataclass(frozen=True)
class _Frame:
    left: float
    top: float
    width: float
    height: float

    def x(self, place: int, number: int) -> float:
        return round(self.left + self.width * place / max(1, number - 1), 1)

    def y(self, seconds: float, top: float) -> float:
        return round(self.top + self.height * (1 - min(1.0, seconds / top)), 1)


def _paths(seconds: Sequence[float | None], frame: _Frame, top: float) -> tuple[str, str]:
    """The line and the area below it; gaps where nothing is known."""
    line, area = [], []
    run: list[tuple[float, float]] = []
    for place, each in enumerate([*seconds, None]):
        if each is not None:
            run.append((frame.x(place, len(seconds)), frame.y(each, top)))
            continue
        if run:
            points = " L".join(f"{x:g},{y:g}" for x, y in run)
            low = frame.top + frame.height
            line.append(f"M{points}")
            area.append(f"M{run[0][0]:g},{low:g} L{points} L{run[-1][0]:g},{low:g} Z")
        run = []
    return " ".join(line), " ".join(area)
