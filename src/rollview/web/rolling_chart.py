"""The rolling picture as places on a page: csn or time across, one lane for each relation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rollview.algebra.view import is_stage
from rollview.service.rolling_picture import Lane, RollingPicture
from rollview.web.lag_chart import Tick
from rollview.web.words import clock

WIDTH, LEFT, RIGHT = 1000.0, 190.0, 24.0
TOP, LANE, GAP = 60.0, 26.0, 12.0
_SHOWN_INTERVALS = 12
_LEAST_SPAN = 12
_TICKS = 8


@dataclass(frozen=True)
class Bar:
    """A stretch of a lane; `kind` says how it is drawn, `told` what it is."""

    x: float
    width: float
    kind: str
    told: str


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
    """A point in time, from top to bottom; `anchor` says on which side of it the label stands."""

    x: float
    kind: str
    label: str
    anchor: str
    row: int


@dataclass(frozen=True)
class RollingChart:
    """All that is drawn."""

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
    """Where everything stands on the page."""
    first, last = shown_range(picture, span)
    place = _placed(first, last, times, by_time)
    lanes = tuple(
        _drawn(lane, picture, place, TOP + number * (LANE + GAP)) for number, lane in enumerate(picture.lanes)
    )
    bottom = TOP + max(1, len(lanes)) * (LANE + GAP)
    pruned = None
    if picture.oldest > first:
        told = f"pruned: nothing before csn {picture.oldest} can be read"
        pruned = Bar(place(first), place(min(picture.oldest, last)) - place(first), "pruned", told)
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
        height=bottom + 34,
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
    # What came before the first interval that is remembered: loaded, or propagated long ago.
    begin = done[0].after if done else lane.position
    bars = [Bar(place(picture.oldest), place(begin) - place(picture.oldest), "loaded", f"up to csn {begin}")]
    for number, each in enumerate(done):
        kind = "even" if (len(done) - number) % 2 == 0 else "odd"
        told = f"csn {each.after + 1} to {each.upto}, propagated at {clock(each.finished_at)} UTC"
        bars.append(Bar(place(each.after), place(each.upto) - place(each.after), kind, told))
    for each in lane.intervals:
        if not each.finished_at:
            told = f"csn {each.after + 1} to {each.upto}, being propagated"
            bars.append(Bar(place(each.after), place(each.upto) - place(each.after), "under-way", told))
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
