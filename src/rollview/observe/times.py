"""Moments and lengths of time, as people read them on charts and pages."""

from __future__ import annotations

import time
from datetime import UTC, datetime

_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0


def duration(seconds: float | None) -> str:
    """A length of time in two digits or so: 0.4 s, 12 s, 3 min, 2.5 h, 4 d."""
    if seconds is None:
        return "—"
    if seconds < 0.0005:
        return "0 s"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 2 * _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < 2 * _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    if seconds < 2 * _DAY:
        return f"{seconds / _HOUR:.1f} h"
    return f"{seconds / _DAY:.0f} d"


def ago(moment: float | None) -> str:
    """How long ago something was."""
    if not moment:
        return "never"
    passed = time.time() - moment
    return "now" if passed < 1 else f"{duration(passed)} ago"


def clock(moment: float | None) -> str:
    """A time for people: UTC, to the second; without the date if it is today's."""
    if not moment:
        return ""
    then, now = datetime.fromtimestamp(moment, UTC), datetime.now(UTC)
    return f"{then:%H:%M:%S}" if then.date() == now.date() else f"{then:%Y-%m-%d %H:%M:%S}"


def moment_of(text: str) -> float:
    """The time that a text in ISO means; 0 if it says nothing."""
    return datetime.fromisoformat(text).timestamp() if text else 0.0
