"""Dates and timestamps: how text is read, arithmetic, and parts.

Nothing here looks at a clock: these are values that rows hold. A timestamp's value is written without a zone
and means UTC, the session time zone that views are computed in; text with a zone is moved to it.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any, TypeVar

from rollview.errors import EvaluationError

Value = Any
Date = date
Timestamp = datetime
Moment = TypeVar("Moment", bound=date)

_FARTHEST = timedelta(hours=18)
_BLANKS = "".join(map(chr, range(33))) + "\x7f"
_DAY = r"\+?(\d{4,7})(?:-(\d{1,2})(?:-(\d{1,2})"
_DATE = re.compile(_DAY + r"(?:[ T].*)?)?)?", re.ASCII | re.DOTALL)
_TIMESTAMP = re.compile(
    _DAY + r"(?:[ T](\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?"
    r" *(Z|UTC|GMT|[+-]\d{1,2}(?::?\d{2})?)?)?)?)?)?)?",
    re.ASCII,
)


def trimmed(text: str) -> str:
    """Text without the blanks and control characters around it, which casts ignore."""
    return text.strip(_BLANKS)


def read_date(text: str) -> date | None:
    """The date of a text, `yyyy[-m[-d[ …]]]`; None if it is not one."""
    parts = _DATE.fullmatch(trimmed(text))
    if parts is None:
        return None
    try:
        return date(int(parts[1]), int(parts[2] or 1), int(parts[3] or 1))
    except ValueError:
        return None


def read_timestamp(text: str) -> datetime | None:
    """The timestamp of a text, with its zone if it names one; None if it is not one."""
    parts = _TIMESTAMP.fullmatch(trimmed(text))
    if parts is None:
        return None
    year, month, day, hour, minute, second, fraction, zone = parts.groups()
    clock = (int(hour or 0), int(minute or 0), int(second or 0), int((fraction or "").ljust(6, "0")[:6]))
    try:
        return datetime(int(year), int(month or 1), int(day or 1), *clock, tzinfo=_zone(zone))
    except ValueError:
        return None


def _zone(text: str | None) -> timezone | None:
    if text is None:
        return None
    if text in ("Z", "UTC", "GMT"):
        return UTC
    digits = text[1:].replace(":", "")
    hours, minutes = (digits[:-2], digits[-2:]) if len(digits) > 2 else (digits, "0")
    offset = timedelta(hours=int(hours), minutes=int(minutes))
    if offset > _FARTHEST or int(minutes) > 59:
        raise ValueError("no such zone")
    return timezone(-offset if text[0] == "-" else offset)


def plus_days(value: Any, days: int) -> date:
    """A date or timestamp some days later, or earlier if there are less than none."""
    return moved(_temporal(value), days=days)


def plus_months(value: Any, months: int) -> date:
    """The same day some months later, or the month's last day where it has no such day."""
    moment = _temporal(value)
    year, month = divmod(moment.year * 12 + moment.month - 1 + months, 12)
    if not 1 <= year <= 9999:
        raise _out_of_range(moment)
    last = calendar.monthrange(year, month + 1)[1]
    return moment.replace(year=year, month=month + 1, day=min(moment.day, last))


MOVES: dict[str, Callable[[Any, Any], date]] = {"PLUS DAYS": plus_days, "PLUS MONTHS": plus_months}
"""The functions that add an interval to a date, by name."""


def _temporal(value: Any) -> date:
    if not isinstance(value, date):
        raise EvaluationError(f"{value!r} is not a date", subject=repr(value), hint="CAST it AS DATE")
    return value


def moved(value: Moment, *, days: int = 0, microseconds: int = 0) -> Moment:
    """The value so much later; an error beyond the years that there are."""
    try:
        return value + timedelta(days=days, microseconds=microseconds)
    except OverflowError:
        raise _out_of_range(value) from None


def _out_of_range(value: date) -> EvaluationError:
    return EvaluationError(
        f"arithmetic with {value} leaves the range of years 1 to 9999",
        subject=str(value),
        hint="add or subtract less",
    )
