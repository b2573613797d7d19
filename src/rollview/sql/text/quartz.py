"""Cron expressions as Quartz writes them, with seconds first, in the five fields that everybody else has."""

from __future__ import annotations

import re

from rollview.ascii_text import whole_number

_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_LAST = (59, 23, 31, 12, 6)
"""The last value of each field: minute, hour, day, month, day of the week."""


def cron_of(text: str) -> str:
    """The five fields that mean the same; ValueError says why there are none."""
    fields = text.upper().split()
    if len(fields) not in (6, 7):
        raise ValueError("Quartz has six or seven fields, seconds first")
    second, *five = fields[:6]
    if second != "0":
        raise ValueError("a schedule is no finer than a minute: the seconds must be 0")
    if len(fields) == 7 and fields[6] != "*":
        raise ValueError("years cannot be chosen")
    if "?" not in (five[2], five[4]):
        raise ValueError("one of day and day of the week must be ?")
    return " ".join(_field(each, place) for place, each in enumerate(five))


def _field(text: str, place: int) -> str:
    if text in ("?", "*"):
        return "*"
    parts = []
    for part in text.split(","):
        match = re.fullmatch(r"(\*|[0-9A-Z]+)(?:-([0-9A-Z]+))?(?:/([0-9]+))?", part)
        if match is None or re.fullmatch(r"L|LW|[0-9]+[LW]", match[1]):
            raise ValueError(f"`{part}` has no equal in five fields")
        first, last, step = match.groups()
        if place == 4:
            first, last = _day(first), last and _day(last)
        if step and first != "*" and last is None:
            last = str(_LAST[place])
        parts.append(f"{first}{f'-{last}' if last else ''}{f'/{step}' if step else ''}")
    return ",".join(parts)


def _day(text: str) -> str:
    """A day of the week: Quartz counts from 1, Sunday; others from 0."""
    if text in ("*", *_DAYS):
        return text
    if 1 <= (number := whole_number(text) or 0) <= 7:
        return str(number - 1)
    raise ValueError(f"`{text}` is no day of the week")
