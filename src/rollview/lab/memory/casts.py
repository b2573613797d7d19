"""Casts, as ANSI mode has them: what does not fit the type is an error, never another value or NULL.
NULL becomes NULL, as in nearly every function.

Decimals round half up. Single-precision numbers are held as the double of the same value.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation

from rollview.algebra.dates import Date, Timestamp, Value, trimmed
from rollview.errors import EvaluationError
from rollview.lab.memory.moments import microseconds, timestamp_text, to_date, to_timestamp

_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_DECIMAL = re.compile(_NUMBER.pattern)
"""For decimals the digits of other scripts count, too, in Java as in Python."""
_INFINITE = re.compile(r"([+-]?)(inf|infinity)", re.IGNORECASE | re.ASCII)
_TRUE = {"t", "true", "y", "yes", "1"}
_FALSE = {"f", "false", "n", "no", "0"}
_WIDE = Context(prec=1200, rounding=ROUND_HALF_UP)
"""Holds every double exactly, so that rounding happens once."""


def strict(function: Callable[..., Value]) -> Callable[..., Value]:
    """NULL in, NULL out."""

    def applied(*values: Value) -> Value:
        return None if None in values else function(*values)

    return applied


def strict_single(function: Callable[[Value], Value]) -> Callable[[Value], Value]:
    """The same for one argument."""

    def applied(value: Value) -> Value:
        return None if value is None else function(value)

    return applied


def strict_pair(function: Callable[[Value, Value], Value]) -> Callable[[Value, Value], Value]:
    """The same for two arguments."""

    def applied(left: Value, right: Value) -> Value:
        return None if left is None or right is None else function(left, right)

    return applied


def cast_function(kind: str) -> Callable[[Value], Value]:
    """The cast to a type."""
    decimal = re.fullmatch(r"DECIMAL\((\d+),(\d+)\)", kind)
    if decimal is not None:
        precision, scale = int(decimal[1]), int(decimal[2])
        return strict_single(lambda value: _decimal(value, precision, scale))
    return strict_single(_CASTS[kind])


def to_text(value: Value) -> str:
    """CAST AS STRING."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _double_text(value)
    if isinstance(value, Decimal):
        return f"{value:f}"
    return timestamp_text(value) if isinstance(value, Timestamp) else str(value)


def _double_text(value: float) -> str:
    """A double as Java writes it: with a point always, with an exponent outside 0.001 to ten million."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    exact = Decimal(repr(value))
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        text = f"{exact:f}"
        return text if "." in text else f"{text}.0"
    sign, digits, _ = exact.normalize().as_tuple()
    rest = "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{digits[0]}.{rest}E{exact.adjusted()}"


def to_double(value: Value) -> float:
    """CAST AS DOUBLE."""
    if isinstance(value, float):
        return value
    if isinstance(value, int | Decimal):
        return float(value)
    if isinstance(value, str):
        text = trimmed(value)
        bare = text[:-1] if text[-1:] in "dDfF" else text
        if infinite := _INFINITE.fullmatch(text):
            return float(infinite[1] + "inf")
        if text.lower() == "nan" or _NUMBER.fullmatch(bare):
            return float("nan" if text.lower() == "nan" else bare)
    if isinstance(value, Timestamp):
        return microseconds(value) / 1e6
    raise _fault(value, "DOUBLE")


def _float(value: Value) -> float:
    double = to_double(value)
    try:
        return float(struct.unpack("f", struct.pack("f", double))[0])
    except OverflowError:
        return float("inf") if double > 0 else float("-inf")


def _whole(kind: str, bits: int) -> Callable[[Value], int]:
    """The cast to a whole number: a fraction is cut off, what is too large is an error."""
    limit = 1 << (bits - 1)

    def cast(value: Value) -> int:
        if isinstance(value, str):
            if not _WHOLE.fullmatch(trimmed(value)):
                raise _fault(value, kind)
            result = int(trimmed(value))
        elif isinstance(value, Timestamp):
            result = microseconds(value) // 1_000_000
        elif isinstance(value, int | Decimal) or (isinstance(value, float) and math.isfinite(value)):
            result = int(value)
        else:
            raise _fault(value, kind)
        if isinstance(value, float) and value == limit and bits == 64:
            # The largest BIGINT is no double; Spark takes the next one for it.
            return limit - 1
        if not -limit <= result < limit:
            raise _fault(value, kind)
        return result

    return cast


to_bigint = _whole("BIGINT", 64)


def _boolean(value: Value) -> bool:
    if isinstance(value, str):
        word = trimmed(value).lower()
        if word in _TRUE or word in _FALSE:
            return word in _TRUE
    elif isinstance(value, int | float | Decimal):
        return bool(value)
    raise _fault(value, "BOOLEAN")


def _decimal(value: Value, precision: int, scale: int) -> Decimal | None:
    kind = f"DECIMAL({precision},{scale})"
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        exact = Decimal(repr(value))
    elif isinstance(value, str):
        if not _DECIMAL.fullmatch(trimmed(value)):
            raise _fault(value, kind)
        exact = Decimal(trimmed(value))
    elif isinstance(value, Timestamp):
        exact = Decimal(microseconds(value)).scaleb(-6)
    elif isinstance(value, int | Decimal):
        exact = Decimal(value)
    else:
        raise _fault(value, kind)
    try:
        result = exact.quantize(Decimal(1).scaleb(-scale), context=_WIDE)
    except InvalidOperation:
        raise _fault(value, kind) from None
    if result.adjusted() >= precision - scale and result:
        raise _fault(value, kind)
    return result


def _date(value: Value) -> Date:
    if not isinstance(value, Date | str):
        raise _fault(value, "DATE")
    return to_date(value)


def _fault(value: Value, kind: str) -> EvaluationError:
    message = f"{value!r} cannot be cast to {kind}: it is malformed or out of range"
    return EvaluationError(message, subject=repr(value), hint="guard it: CASE WHEN ... THEN CAST(...) END")


_CASTS: dict[str, Callable[[Value], Value]] = {
    "TINYINT": _whole("TINYINT", 8),
    "SMALLINT": _whole("SMALLINT", 16),
    "INT": _whole("INT", 32),
    "BIGINT": to_bigint,
    "FLOAT": _float,
    "DOUBLE": to_double,
    "STRING": to_text,
    "BOOLEAN": _boolean,
    "DATE": _date,
    "TIMESTAMP": to_timestamp,
}
