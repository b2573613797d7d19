"""The rolling picture as places on a page: csn or time across, one lane for each relation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rollview.algebra.view import is_stage
from rollview.observe import svg
from rollview.observe.lag_chart import Tick
from rollview.observe.rolling_picture import Lane, RollingPicture
from rollview.observe.times import clock

WIDTH, LEFT, RIGHT = 1000.0, 190.0, 24.0
TOP, LANE, GAP = 60.0, 26.0, 12.0
_SHOWN_INTERVALS = 12
_LEAST_SPAN = 12
_TICKS = 8
_FOOT, _LONGEST_NOTE = 34.0, 30
_HATCH = (
    '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse"'
    ' patternTransform="rotate(45)">'
    f'<line x1="0" y1="0" x2="0" y2="6" stroke="{svg.SOFT}" /></pattern></defs>'
)
_BARS: dict[str, dict[str, object]] = {
    "loaded": {"fill": svg.RULE},
    "even": {"fill": "rgba(74,144,184,.75)"},
    "odd": {"fill": "rgba(74,144,184,.45)"},
    "under-way": {"fill": "none", "stroke": svg.WARN, "stroke-dasharray": "3 3"},
}
_LINES = {"shown": (svg.GOOD, ""), "high-water": (svg.ACCENT, "5 3"), "captured": (svg.SOFT, "1.5 3")}
"""How bars and lines of each kind look: the colour, and the dashes."""


@dataclass(frozen=True)
class Bar:
    """A stretch of a lane; `kind` says how it is drawn, `title` what it is."""

    x: float
    width: float
    kind: str
    title: str


@dataclass(frozen=True)
class LaneDrawn:
    """A lane at its height."""

    y: float
    label: str
    note: str
    position: int
    at: float
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class Line:
    """A point in time, from top to bottom; `anchor` says on which side of it the label is."""

    x: float
    kind: str
    label: str
    anchor: str
    row: int


@dataclass(frozen=True)
class RollingChart(svg.Chart):
    """Everything that is drawn."""

    width: float
    height: float
    left: float
    right: float
    top: float
    lane: float
    lanes: tuple[LaneDrawn, ...]
    lines: tuple[Line, ...]
    ticks: tuple[Tick, ...]
    pruned: Bar | None
    condensed: tuple[Bar, ...]
    first: int
    last: int

    def svg(self) -> str:
        """The chart as an SVG element."""
        ends = ", ".join(line.label for line in self.lines)
        reached = "".join(f"; {lane.label} propagated to {lane.position}" for lane in self.lanes)
        label = f"From csn {self.first} to {self.last}: {ends}{reached}"
        pieces = [
            _HATCH,
            *map(self._lane, self.lanes),
            *([self._column(self.pruned, "none")] if self.pruned else []),
            *(self._column(bar, "url(#hatch)") for bar in self.condensed),
            *map(self._line, self.lines),
            svg.line("axis", (self.left, self._bottom), (self.right, self._bottom), svg.RULE),
            *(piece for tick in self.ticks for piece in self._tick(tick)),
        ]
        return svg.frame("rolling", self.width, self.height, label, pieces)

    @property
    def _bottom(self) -> float:
        return self.height - _FOOT

    def _lane(self, lane: LaneDrawn) -> str:
        right: dict[str, object] = {"x": self.left - 12, "text-anchor": "end"}
        note = lane.note if len(lane.note) <= _LONGEST_NOTE else f"{lane.note[: _LONGEST_NOTE - 1]}…"
        box: dict[str, object] = {"y": lane.y, "height": self.lane}
        track = {"class": "track", "x": self.left, "width": self.right - self.left, "fill": "none"}
        name = {"class": "name", "y": lane.y + 11, "font-size": 12.5, "font-weight": 600}
        pieces = [
            svg.element("rect", {**track, **box}),
            svg.text(lane.label, {**right, **name}),
            svg.text(note, {**right, "class": "note", "y": lane.y + 23, "fill": svg.SOFT}),
        ]
        for bar in lane.bars:
            own: dict[str, object] = {"class": "bar", "data-kind": bar.kind, "x": bar.x, "width": bar.width}
            title = svg.tooltip(f"{lane.label}: {bar.title}")
            pieces.append(svg.element("rect", {**own, **box, **_BARS[bar.kind]}, [title]))
        top, bottom = (lane.at, lane.y - 3), (lane.at, lane.y + self.lane + 3)
        pieces.append(svg.line("front", top, bottom, svg.ACCENT, stroke_width=2))
        return svg.element("g", {"class": "lane"}, pieces)

    def _column(self, bar: Bar, fill: str) -> str:
        """Something that concerns all lanes."""
        place = {"x": bar.x, "y": self.top, "width": bar.width, "height": self._bottom - self.top}
        return svg.element("rect", {"class": bar.kind, **place, "fill": fill}, [svg.tooltip(bar.title)])

    def _line(self, line: Line) -> str:
        stroke, dashes = _LINES[line.kind]
        x, y = line.x + (4 if line.anchor == "start" else -4), 14 + 14 * line.row
        more: dict[str, object] = {"stroke_width": 1.5, **({"stroke_dasharray": dashes} if dashes else {})}
        drawn = svg.line("", (line.x, y + 2), (line.x, self._bottom), stroke, **more)
        place: dict[str, object] = {"x": x, "y": y, "text-anchor": line.anchor, "fill": stroke}
        label = svg.text(line.label, {**place, "font-size": 11.5, "font-weight": 600})
        return svg.element("g", {"class": "mark", "data-kind": line.kind}, [drawn, label])

    def _tick(self, tick: Tick) -> tuple[str, str]:
        place: dict[str, object] = {"x": tick.at, "y": self._bottom + 18, "text-anchor": "middle"}
        drawn = svg.line("axis", (tick.at, self._bottom), (tick.at, self._bottom + 4), svg.RULE)
        return drawn, svg.text(tick.label, {"class": "tick", **place})


def shown_range(picture: RollingPicture, span: int) -> tuple[int, int]:
    """The csn from which to which the picture goes: the last `span`, or (0) the last few intervals."""
    last = picture.last_csn
    if span:
        return max(0, last - span), last
    begins = [each.after for lane in picture.lanes for each in lane.intervals[-_SHOWN_INTERVALS:]]
    first = min([*begins, picture.materialized, last - _LEAST_SPAN])
    return max(0, first), last


def wanted_csns(picture: RollingPicture, first: int, last: int) -> list[int]:
    """The csn whose times are needed to draw by time, or to label the axis."""
    ends = [end for lane in picture.lanes for each in lane.intervals for end in (each.after, each.upto)]
    ends += [lane.position for lane in picture.lanes]
    ends += [picture.oldest, picture.materialized, picture.high_water, picture.last_csn]
    ends += [csn for after, upto in picture.condensed for csn in (after, upto)]
    return sorted({each for each in (*ends, *_tick_csns(first, last)) if each >= first})


def rolling_chart(
    picture: RollingPicture, span: int, times: Mapping[int, float], by_time: bool
) -> RollingChart:
    """The layout of the chart."""
    first, last = shown_range(picture, span)
    place = _placed(first, last, times, by_time)
    lanes = tuple(
        _drawn(lane, picture, place, TOP + number * (LANE + GAP)) for number, lane in enumerate(picture.lanes)
    )
    bottom = TOP + max(1, len(lanes)) * (LANE + GAP)
    pruned = None
    if picture.oldest > first:
        title = f"pruned: nothing before csn {picture.oldest} can be read"
        pruned = Bar(place(first), place(min(picture.oldest, last)) - place(first), "pruned", title)
    condensed = tuple(
        Bar(
            place(max(after, first)),
            place(upto) - place(max(after, first)),
            "condensed",
            _condensed(after, upto),
        )
        for after, upto in picture.condensed
        if upto > first
    )
    ticks = []
    for csn in _tick_csns(first, last):
        if not by_time:
            ticks.append(Tick(place(csn), str(csn)))
        elif csn in times:
            ticks.append(Tick(place(csn), clock(times[csn])))
    return RollingChart(
        width=WIDTH,
        height=bottom + _FOOT,
        left=LEFT,
        right=WIDTH - RIGHT,
        top=TOP - 6,
        lane=LANE,
        lanes=lanes,
        lines=_lines(picture, place, first),
        ticks=tuple(_apart(ticks)),
        pruned=pruned,
        condensed=condensed,
        first=first,
        last=last,
    )


def _placed(first: int, last: int, times: Mapping[int, float], by_time: bool) -> Callable[[int], float]:
    width = WIDTH - LEFT - RIGHT
    known = [times[csn] for csn in sorted(times) if first <= csn <= last]
    if not by_time or len(known) < 2 or known[-1] <= known[0]:
        return lambda csn: round(
            LEFT + width * (min(max(csn, first), last) - first) / max(1, last - first), 1
        )

    def by_clock(csn: int) -> float:
        moment = times.get(csn, known[0] if csn <= first else known[-1])
        share = (min(max(moment, known[0]), known[-1]) - known[0]) / (known[-1] - known[0])
        return round(LEFT + width * share, 1)

    return by_clock


def _drawn(lane: Lane, picture: RollingPicture, place: Callable[[int], float], y: float) -> LaneDrawn:
    done = [each for each in lane.intervals if each.finished_at]
    # Before the first interval in the record: loaded, or propagated long ago.
    begin = done[0].after if done else lane.position
    bars = [Bar(place(picture.oldest), place(begin) - place(picture.oldest), "loaded", f"up to csn {begin}")]
    for number, each in enumerate(done):
        kind = "even" if (len(done) - number) % 2 == 0 else "odd"
        title = f"csn {each.after + 1} to {each.upto}, propagated at {clock(each.finished_at)} UTC"
        bars.append(Bar(place(each.after), place(each.upto) - place(each.after), kind, title))
    for each in lane.intervals:
        if not each.finished_at:
            title = f"csn {each.after + 1} to {each.upto}, being propagated"
            bars.append(Bar(place(each.after), place(each.upto) - place(each.after), "under-way", title))
    note = f"in a stage of the view, over {lane.table}" if is_stage(lane.part) else lane.table
    label = lane.relation if not is_stage(lane.relation) else "stage"
    kept = tuple(bar for bar in bars if bar.width > 0)
    return LaneDrawn(y, label, note, lane.position, place(lane.position), kept)


def _lines(picture: RollingPicture, place: Callable[[int], float], first: int) -> tuple[Line, ...]:
    named = (
        ("shown", f"shown {picture.materialized}", picture.materialized, 2),
        ("high-water", f"high-water mark {picture.high_water}", picture.high_water, 1),
        ("captured", f"captured {picture.last_csn}", picture.last_csn, 0),
    )
    lines = []
    for kind, label, csn, row in named:
        x = place(max(csn, first))
        lines.append(Line(x, kind, label, "end" if x > LEFT + 170 else "start", row))
    return tuple(lines)


def _tick_csns(first: int, last: int) -> list[int]:
    wide = max(1, last - first)
    step = next(
        s for power in range(12) for s in (10**power, 2 * 10**power, 5 * 10**power) if s * _TICKS >= wide
    )
    return [csn for csn in range(first // step * step, last + 1, step) if csn >= first]


def _apart(ticks: list[Tick]) -> list[Tick]:
    """Ticks whose labels do not run into each other."""
    kept: list[Tick] = []
    for tick in ticks:
        if not kept or tick.at - kept[-1].at > 62:
            kept.append(tick)
    return kept


def _condensed(after: int, upto: int) -> str:
    return f"condensed: between csn {after} and csn {upto} nothing can be read"
