"""Durations as users write them, in the project file, in views and on the command line: one grammar.

A number and a unit, `500ms`, `30s`, `5 minutes`, `1h`, `7d`; a number alone is seconds.
"""

from __future__ import annotations

import re

EXAMPLES = "500ms, 90s, 15m, 2h, 7d"

_DURATION = re.compile(
    r" *([0-9]{1,12}(?:\.[0-9]{1,12})?)"
    r" *(ms|milliseconds?|s|seconds?|m|minutes?|h|hours?|d|days?)? *"
)
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds_of(text: str) -> float | None:
    """The seconds; None if it is not a duration."""
    match = _DURATION.fullmatch(text)
    if match is None:
        return None
    unit = match[2] or "s"
    return float(match[1]) * (0.001 if unit.startswith(("ms", "milli")) else _SECONDS[unit[0]])
