"""How far views were behind, minute by minute, from the record of refreshes and the commit times.

Nothing is measured for it, so the answer is the same later and after a restart. A view showed the result of
its last refresh, and was behind since the first change after that. A minute has the greater of two lags: the
one just before its first refresh, and the one at its end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rollview.catalog import Catalog
from rollview.catalog.observations import RefreshedMinute

MINUTE_SECONDS = 60.0
MINUTES = 60
_STEADY_SECONDS, _STEADY_PART = 2.0, 0.05
"""A change of a lag by less than this does not count."""
_RECENT_SECONDS = 30.0


@dataclass(frozen=True)
class LagSeries:
    """The lag of a view in seconds, of each of the last minutes, the oldest first; None where not known."""

    view: str
    until: float
    seconds: tuple[float | None, ...]


@dataclass(frozen=True)
class Trend:
    """The trend of a lag: `falling back`, `catching up` or `steady`, and since when."""

    direction: str
    since: float


@dataclass(frozen=True)
class _Sample:
    """The csn that a view showed, and the moment at which that counts for a minute."""

    minute: int
    csn: int
    at: float


def lag_series(catalog: Catalog, tables: Mapping[str, Sequence[str]], now: float) -> list[LagSeries]:
    """The last hour of some views, given the base tables of each."""
    last = int(now // MINUTE_SECONDS)
    first = last - MINUTES + 1
    samples = {name: _samples(catalog, name, first, now) for name in tables}
    wanted = {
        (table, sample.csn) for name, own in tables.items() for table in own for sample in samples[name]
    }
    later = catalog.observations.next_touches(wanted)
    times = catalog.observations.commit_times(later.values())
    series = []
    for name, own in tables.items():
        lags: dict[int, float] = {}
        for sample in samples[name]:
            ends = [later[table, sample.csn] for table in own if (table, sample.csn) in later]
            since = times.get(min(ends, default=0), sample.at)
            lags[sample.minute] = max(lags.get(sample.minute, 0.0), sample.at - since)
        series.append(LagSeries(name, now, tuple(lags.get(each) for each in range(first, last + 1))))
    return series


def trend_of(series: LagSeries, lag_seconds: float, now: float) -> Trend:
    """The trend of the lag of a view that is so far behind now: since it last turned, in the last hour."""
    end = (int(series.until // MINUTE_SECONDS) + 1) * MINUTE_SECONDS
    ends = [end - MINUTE_SECONDS * place for place in reversed(range(len(series.seconds)))]
    points = [
        (at, lag)
        for at, lag in zip(ends, series.seconds, strict=True)
        if lag is not None and at < now - _RECENT_SECONDS
    ]
    # Before the first change that it does not show, it was not behind.
    points = [*(points or [(now - lag_seconds, 0.0)]), (now, lag_seconds)]
    change = points[-1][1] - points[-2][1]
    if abs(change) <= max(_STEADY_SECONDS, _STEADY_PART * lag_seconds):
        return Trend("steady", points[-2][0])
    turned = len(points) - 2
    while turned and (points[turned][1] - points[turned - 1][1]) * change > 0:
        turned -= 1
    return Trend("falling back" if change > 0 else "catching up", points[turned][0])


def _samples(catalog: Catalog, view: str, first: int, now: float) -> list[_Sample]:
    """What the view showed before the first refresh of each minute, and at its end."""
    found = catalog.observations.refreshed_minutes(view, first * MINUTE_SECONDS, MINUTE_SECONDS)
    by_minute: dict[int, RefreshedMinute] = {each.number: each for each in found}
    shown: int | None = next((each.to_csn for each in found if each.number < first), None)
    samples = []
    for minute in range(first, int(now // MINUTE_SECONDS) + 1):
        if (refreshed := by_minute.get(minute)) is not None:
            samples.append(_Sample(minute, refreshed.from_csn, refreshed.first_at))
            shown = refreshed.to_csn
        if shown is not None:
            samples.append(_Sample(minute, shown, min(now, (minute + 1) * MINUTE_SECONDS)))
    return samples
