"""Casts to dates and timestamps, and the functions on them that only bags in memory compute."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from rollview.algebra.dates import moved, plus_days, read_date, read_timestamp
from rollview.errors import EvaluationError

_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)


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
        return moved(_EPOCH, microseconds=int(value * 1_000_000))
    hint = "a timestamp is written 2024-01-31 12:30:00"
    raise EvaluationError(f"{value!r} is not a valid timestamp", subject=repr(value), hint=hint)


def microseconds(value: datetime) -> int:
    """How long after the start of 1970 a timestamp is."""
    return (value - _EPOCH) // _MICROSECOND


def timestamp_text(value: datetime) -> str:
    """CAST AS STRING of a timestamp: a fraction of a second only as long as needed."""
    text = value.isoformat(sep=" ")
    return text.rstrip("0").rstrip(".") if "." in text else text


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
        return moved(day, days=-day.weekday())
    if unit == "DAY":
        return day
    months = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}[unit]
    return day.replace(month=(day.month - 1) // months * months + 1, day=1)
