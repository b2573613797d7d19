"""Dates and timestamps: how text is read, arithmetic, and parts.

Nothing here looks at a clock: these are values that rows hold. A timestamp's value is written without a zone
and means UTC, the session time zone that views are computed in; text with a zone is moved to it.
"""

from __future__ import annotations

import calendar
import math
import re
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, TypeVar

from rollview.errors import EvaluationError

Date = date
Timestamp = datetime
Moment = TypeVar("Moment", bound=date)

_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
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
    """The date that text stands for, `yyyy[-m[-d[ …]]]`; None if it stands for none."""
    parts = _DATE.fullmatch(trimmed(text))
    if parts is None:
        return None
    try:
        return date(int(parts[1]), int(parts[2] or 1), int(parts[3] or 1))
    except ValueError:
        return None


def read_timestamp(text: str) -> datetime | None:
    """The timestamp that text stands for, with its zone if it names one; None if it stands for none."""
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


def in_utc(value: Any) -> Any:
    """A timestamp with a zone as the same moment without one; any other value is what it is."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None)
    return value


def to_date(value: Any) -> date:
    """CAST AS DATE, which functions on dates apply to what they are given."""
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, date):
        return value
    found = read_date(value) if isinstance(value, str) else None
    if found is None:
        raise EvaluationError(
            f"{value!r} is not a valid date", subject=repr(value), hint="a date is written 2024-01-31"
        )
    return found


def to_timestamp(value: Any) -> datetime:
    """CAST AS TIMESTAMP; a number counts seconds since 1970."""
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    if isinstance(value, str) and (found := read_timestamp(value)) is not None:
        moment: datetime = in_utc(found)
        return moment
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool) and math.isfinite(value):
        return _moved(_EPOCH, microseconds=int(value * 1_000_000))
    hint = "a timestamp is written 2024-01-31 12:30:00"
    raise EvaluationError(f"{value!r} is not a valid timestamp", subject=repr(value), hint=hint)


def microseconds(value: datetime) -> int:
    """How long after the start of 1970 a timestamp is."""
    return (value - _EPOCH) // _MICROSECOND


def timestamp_text(value: datetime) -> str:
    """CAST AS STRING of a timestamp: a fraction of a second only as long as needed."""
    text = value.isoformat(sep=" ")
    return text.rstrip("0").rstrip(".") if "." in text else text


def plus_days(value: Any, days: int) -> date:
    """A date or timestamp some days later, or earlier if there are less than none."""
    return _moved(_temporal(value), days=days)


def plus_months(value: Any, months: int) -> date:
    """The same day some months later, or the month's last day where it has no such day."""
    moment = _temporal(value)
    year, month = divmod(moment.year * 12 + moment.month - 1 + months, 12)
    if not 1 <= year <= 9999:
        raise _out_of_range(moment)
    last = calendar.monthrange(year, month + 1)[1]
    return moment.replace(year=year, month=month + 1, day=min(moment.day, last))


def date_add(value: Any, days: int) -> date:
    """DATE_ADD: always a date."""
    return plus_days(to_date(value), days)


def date_difference(end: Any, start: Any) -> int:
    """DATEDIFF: the days from the second argument to the first."""
    return (to_date(end) - to_date(start)).days


def truncated(unit: str, value: Any) -> datetime:
    """DATE_TRUNC: the timestamp at which the unit of time around it began."""
    moment = to_timestamp(value)
    if unit == "HOUR":
        return moment.replace(minute=0, second=0, microsecond=0)
    if unit == "MINUTE":
        return moment.replace(second=0, microsecond=0)
    if unit == "SECOND":
        return moment.replace(microsecond=0)
    day = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    if unit == "WEEK":
        return _moved(day, days=-day.weekday())
    if unit == "DAY":
        return day
    months = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}[unit]
    return day.replace(month=(day.month - 1) // months * months + 1, day=1)


def _temporal(value: Any) -> date:
    if not isinstance(value, date):
        raise EvaluationError(f"{value!r} is not a date", subject=repr(value), hint="CAST it AS DATE")
    return value


def _moved(value: Moment, *, days: int = 0, microseconds: int = 0) -> Moment:
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
