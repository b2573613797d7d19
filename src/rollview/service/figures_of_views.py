"""Figures for notebooks: how far views were behind, and the rolling picture of one (salem2000 Figure 9)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from rollview.extras import require
from rollview.service.lags import MINUTE_SECONDS, LagSeries
from rollview.service.rolling_picture import RollingPicture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LANE = 0.35
_GREY = "0.55"


def lag_figure(series: Sequence[LagSeries]) -> Figure:
    """One line for each view: its lag in seconds, minute by minute."""
    figure, axes = _empty("a plot of the lag", 8.0, 3.2)
    from matplotlib.dates import date2num  # noqa: PLC0415

    for each in series:
        until = datetime.fromtimestamp(each.until, UTC).astimezone()
        step = timedelta(seconds=MINUTE_SECONDS)
        times = [until - step * (len(each.seconds) - 1 - place) for place in range(len(each.seconds))]
        known = [float("nan") if seconds is None else seconds for seconds in each.seconds]
        places = date2num(times)  # type: ignore[no-untyped-call]
        axes.plot(places, known, label=each.view, drawstyle="steps-post")
    axes.xaxis_date(tz=datetime.now().astimezone().tzinfo)
    axes.set_ylabel("lag in seconds")
    axes.set_ylim(bottom=0.0)
    if series:
        axes.legend(loc="upper left", fontsize="small")
    figure.autofmt_xdate()
    return figure


def rolling_figure(picture: RollingPicture) -> Figure:
    """csn across, a lane for each relation with what was propagated, and where the view stands."""
    lanes = picture.lanes
    figure, axes = _empty("the rolling picture", 8.0, 1.4 + 0.45 * max(1, len(lanes)))
    for place, lane in enumerate(reversed(lanes)):
        axes.barh(
            place, lane.position - picture.oldest, left=picture.oldest, height=_LANE, color="C0", alpha=0.25
        )
        for interval in lane.intervals:
            color = "C0" if interval.finished_at else "C1"
            width = interval.upto - interval.after
            axes.barh(place, width, left=interval.after, height=_LANE, color=color, edgecolor="white")
    for after, upto in picture.condensed:
        axes.axvspan(after, upto, color=_GREY, alpha=0.2, hatch="//", linewidth=0)
    marks = (
        (picture.materialized, "C2", "-", "materialization time"),
        (picture.high_water, "C3", "--", "high-water mark"),
        (picture.last_csn, _GREY, ":", "captured"),
    )
    for csn, color, style, label in marks:
        axes.axvline(csn, color=color, linestyle=style, label=f"{label}: csn {csn}")
    axes.set_yticks(range(len(lanes)), [_label(lane.relation, lane.table) for lane in reversed(lanes)])
    axes.set_ylim(-0.6, max(1, len(lanes)) - 0.4)
    axes.set_xlabel("csn")
    axes.set_title(picture.view)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.35), ncols=3, fontsize="small", frameon=False)
    return figure


def _label(relation: str, table: str) -> str:
    return relation if relation == table else f"{relation}\n{table}"


def _empty(what: str, width: float, height: float) -> tuple[Figure, Axes]:
    require("notebook", what)
    # With it, a notebook knows how to show a figure; one that is not pyplot's own is shown once.
    import matplotlib.pyplot  # noqa: F401, PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()
