"""Numbers: the operators, and functions that round.

Numbers of one kind go the short way. Beside a double everything becomes a double; beside a decimal, a
decimal, computed with as many digits as Spark's widest one. A quotient of decimals is not rounded to a type's
scale here, since values do not know their type: a CAST around it gives the same digits everywhere.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Context, Decimal

from rollview.algebra.dates import Date, Value, plus_days
from rollview.errors import EvaluationError
from rollview.lab.memory.casts import to_bigint, to_double

_EXACT = Context(prec=38, rounding=ROUND_HALF_UP)
_WIDE = Context(prec=1200, rounding=ROUND_HALF_UP)
_LARGEST, _SMALLEST = (1 << 63) - 1, -(1 << 63)

Operator = Callable[[Value, Value], Value]


def _arithmetic(on_numbers: Operator, on_decimals: Operator) -> Operator:
    def applied(left: Value, right: Value) -> Value:
        kind = type(left)
        if kind is type(right):
            if kind is int or kind is float:
                return on_numbers(left, right)
            if kind is Decimal:
                return on_decimals(left, right)
        if left is None or right is None:
            return None
        if isinstance(left, str) or isinstance(right, str):
            left, right = _read(left, right), _read(right, left)
        if isinstance(left, float) or isinstance(right, float):
            return on_numbers(float(left), float(right))
        if isinstance(left, Decimal) or isinstance(right, Decimal):
            return on_decimals(left, right)
        if isinstance(left, Date) and isinstance(right, int):
            return plus_days(left, on_numbers(0, right))
        return on_numbers(left, right)

    return applied


def _read(value: Value, other: Value) -> Value:
    """Text beside a number is read as one: beside a whole number as a whole number, else as a double."""
    if not isinstance(value, str):
        return value
    if isinstance(other, str):
        raise EvaluationError(
            f"arithmetic with two strings, {value!r} and {other!r}", hint="CAST them to numbers"
        )
    return to_bigint(value) if isinstance(other, int) else to_double(value)


def _divisor(value: Value, what: str) -> Value:
    if value == 0:
        raise EvaluationError(f"{what} by zero", hint="guard it: CASE WHEN divisor <> 0 THEN ... END")
    return value


def _divide(left: Value, right: Value) -> Value:
    # Spark divides whole numbers as doubles, each rounded on its own.
    return float(left) / float(_divisor(right, "division"))


def _divide_decimals(left: Value, right: Value) -> Decimal:
    return _EXACT.divide(left, _divisor(right, "division"))


def _remainder(left: Value, right: Value) -> Value:
    """Spark's %: the sign follows the dividend."""
    magnitude = abs(left) % abs(_divisor(right, "remainder"))
    return -magnitude if left < 0 else magnitude


def _remainder_decimals(left: Value, right: Value) -> Decimal:
    return _EXACT.remainder(left, _divisor(right, "remainder"))


OPERATORS: dict[str, Operator] = {
    "+": _arithmetic(operator.add, _EXACT.add),
    "-": _arithmetic(operator.sub, _EXACT.subtract),
    "*": _arithmetic(operator.mul, _EXACT.multiply),
    "/": _arithmetic(_divide, _divide_decimals),
    "%": _arithmetic(_remainder, _remainder_decimals),
}


def rounded(value: Value, places: int = 0) -> Value:
    """ROUND: half up, of a double by its shortest text."""
    if isinstance(value, str):
        value = to_double(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            return value
        return float(_half_up(Decimal(repr(value)), places))
    result = _half_up(Decimal(value), places)
    return int(result) if isinstance(value, int) else result


def _half_up(value: Decimal, places: int) -> Decimal:
    exponent = value.as_tuple().exponent
    if isinstance(exponent, int) and exponent >= -places:
        return value
    result = value.quantize(Decimal(1).scaleb(-places), context=_WIDE)
    return result if places >= 0 else result.quantize(Decimal(1), context=_WIDE)


def floor(value: Value) -> Value:
    """FLOOR."""
    return _integral(value, math.floor, ROUND_FLOOR)


def ceiling(value: Value) -> Value:
    """CEIL."""
    return _integral(value, math.ceil, ROUND_CEILING)


def _integral(value: Value, function: Callable[[float], int], rounding: str) -> Value:
    """A double becomes the nearest BIGINT there is; a decimal stays one."""
    if isinstance(value, Decimal):
        return value.to_integral_value(rounding=rounding)
    if isinstance(value, int):
        return value
    number = to_double(value)
    if math.isnan(number):
        return 0
    if math.isinf(number):
        return _LARGEST if number > 0 else _SMALLEST
    return max(_SMALLEST, min(_LARGEST, function(number)))
