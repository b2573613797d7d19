"""Durations as users write them: `30s`, `5 minutes`, `1h`, `7d`."""

from __future__ import annotations

import re

_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(s|m|h|d|seconds?|minutes?|hours?|days?)\s*")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds_of(text: str) -> float | None:
    """The seconds; None if it is no duration."""
    match = _DURATION.fullmatch(text)
    return None if match is None else float(match[1]) * _SECONDS[match[2][0]]
