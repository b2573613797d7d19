"""Durations as users write them: 90s, 15m, 2h, 7d."""

from __future__ import annotations

import re

import click

_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?\s*")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class Duration(click.ParamType[float]):
    """A number with a unit; a bare number is seconds."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The duration in seconds."""
        match = _DURATION.fullmatch(str(value))
        if match is None:
            self.fail(f"{value!r} is not a valid duration; for example 500ms, 90s, 15m, 2h, 7d", param, ctx)
        return float(match[1]) * _SECONDS[match[2] or "s"]
