"""Schedules: the times at which a stored view is rolled, if not always (beyer2000 §1.2: periodic copies).

A due time is a point in time: the stored view shows the last state of that moment, however late it is rolled.
The delta is made all the time, so any other point in time can be read as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from rollview.algebra.view import View, is_stage
from rollview.config.durations import EXAMPLES, seconds_of
from rollview.errors import InputError

SCHEDULE, CONDENSE = "rollview.schedule", "rollview.condense_after"
MAX_STALENESS = "rollview.max_staleness"
_CRON = re.compile(r"((?:\S+\s+){4}\S+)(?:\s+([A-Za-z]\S*))?")
_HINT = (
    "such as: every 1h, or as cron has it: 0 0 * * *, in UTC unless a zone follows: 0 0 * * * Europe/Berlin"
)


@dataclass(frozen=True)
class Schedule:
    """Due times: multiples of `seconds` since 1970, or those of a cron expression in a time zone."""

    text: str
    seconds: float = 0.0
    cron: str = ""
    zone: str = "UTC"

    def last(self, now: float) -> float:
        """The last time that was due, up to now."""
        return now // self.seconds * self.seconds if self.seconds else next(self._times(now, reverse=True))

    def next(self, now: float) -> float:
        """The next time that is due."""
        return self.last(now) + self.seconds if self.seconds else next(self._times(now))

    def _times(self, now: float, reverse: bool = False) -> Iterator[float]:
        # It begins before or after a moment; a moment that is itself due counts as past.
        start = datetime.fromtimestamp(int(now) + (60 if reverse else 0), ZoneInfo(self.zone))
        for each in CronSim(self.cron, start, reverse=reverse):
            moment = each.timestamp()
            if (moment <= now) if reverse else (moment > now):
                yield moment


def schedule_of(view: View) -> Schedule | None:
    """The schedule of a view; None if it is rolled all the time."""
    text = view.properties.get(SCHEDULE, "")
    if not text or is_stage(view.name):
        # A stage has no readers; its stored rows, which the delta continues from, are rolled all the time.
        return None
    if text.startswith("every "):
        seconds = seconds_of(text.removeprefix("every "))
        if seconds:
            return Schedule(text, seconds)
    elif found := _CRON.fullmatch(text.strip()):
        zone = found[2] or "UTC"
        try:
            next(CronSim(found[1], datetime.now(ZoneInfo(zone))))
            return Schedule(text, cron=found[1], zone=zone)
        except (CronSimError, ZoneInfoNotFoundError, ValueError, StopIteration):
            pass
    raise InputError(f"{SCHEDULE} is `{text}`", subject=text, hint=_HINT)


def staleness_of(view: View) -> float:
    """The seconds that a change may be old when the view shows it; 0 if it is shown as soon as possible."""
    text = view.properties.get(MAX_STALENESS, "")
    if not text:
        return 0.0
    if seconds := seconds_of(text):
        return seconds
    raise InputError(f"{MAX_STALENESS} is `{text}`", subject=text, hint=f"a duration, such as {EXAMPLES}")


@dataclass(frozen=True)
class Condensing:
    """Changes older than `age` are condensed to one per `period`, both in seconds."""

    age: float
    period: float

    def ends(self, oldest: float, now: float) -> list[float]:
        """The bounds of periods to condense, from the oldest on: whole periods that are old enough."""
        first = oldest // self.period
        last = (now - self.age) // self.period
        return [number * self.period for number in range(int(first), int(last) + 1)]


def condensing_of(view: View) -> Condensing | None:
    """The condensing of a view; None if it is done by hand."""
    text = view.properties.get(CONDENSE, "")
    if not text:
        return None
    age, _, per = text.partition(" per ")
    found = seconds_of(age), seconds_of(per) if per else seconds_of(age)
    if not found[0] or not found[1]:
        hint = "an age, such as 7d, or an age and the period that one change is kept for: 7d per 1h"
        raise InputError(f"{CONDENSE} is `{text}`", subject=text, hint=hint)
    return Condensing(found[0], found[1])
