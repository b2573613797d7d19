"""Sums, differences and products of whole numbers and decimals at the driver, over an Arrow table.

They are exact: computed with twice as many digits as Spark has, then given the type that Spark gives them.
What does not fit that type, and where Spark would round because 38 digits are too few, is left to Spark, as
are floating-point numbers and divisions.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rollview.algebra.expression import Call, Column, Expression, Literal
from rollview.spark.weigh import MOST_DIGITS

Other = Callable[[Expression, pa.Table], Any]
_DECIMALS: dict[str, Callable[[Any, Any], Any]] = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}
_NUMBERS: dict[str, Callable[[Any, Any], Any]] = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
}
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}
"""As decimals, whole numbers of so many bits have so many digits."""
_LEAST_SCALE = 6
"""Digits behind the point that Spark gives up only behind these."""


def arithmetic(expression: Expression, table: pa.Table, other: Other | None = None) -> Any:
    """The values of such an expression, one for each row; None if only Spark can tell.

    `other` computes calls inside that are no arithmetic, and is believed where they are decimals.
    """
    try:
        values = _values(expression, table, other)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        # It does not fit: Spark knows what to say.
        return None
    return None if isinstance(values, pa.Scalar) else values


def _values(expression: Expression, table: pa.Table, compute: Other | None) -> Any:
    """A constant is a scalar; None if only Spark can tell."""
    match expression:
        case Column(name=name):
            return table[name] if _is_exact(table.schema.field(name).type) else None
        case Literal(value=value):
            return _constant(value)
        case Call(function, (left, right)) if function in _NUMBERS:
            one, other = _values(left, table, compute), _values(right, table, compute)
            # Of constants alone Spark forgets that they are some.
            if one is None or other is None or (isinstance(one, pa.Scalar) and isinstance(other, pa.Scalar)):
                return None
            if pa.types.is_integer(one.type) and pa.types.is_integer(other.type):
                return None if _is_reordered(left, right) else _of_numbers(function, one, other)
            return _of_decimals(function, as_decimal(one), as_decimal(other))
        case Call() if compute is not None:
            values = compute(expression, table)
            return values if values is not None and pa.types.is_decimal128(values.type) else None
    return None


def common_decimal(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The decimal that has all digits of both; None if Spark has none that wide."""
    scale = max(one.scale, other.scale)
    precision = max(one.precision - one.scale, other.precision - other.scale) + scale
    return pa.decimal128(precision, scale) if precision <= MOST_DIGITS else None


def _is_reordered(left: Expression, right: Expression) -> bool:
    """Whether Spark computes whole numbers in another order, constants last, in which others overflow."""
    is_nested = isinstance(left, Call) or isinstance(right, Call)
    return is_nested and _has_constant(left, right)


def _has_constant(*expressions: Expression) -> bool:
    return any(
        isinstance(each, Literal) or (isinstance(each, Call) and _has_constant(*each.arguments))
        for each in expressions
    )


def _of_numbers(function: str, one: Any, other: Any) -> Any:
    kind = max(one.type, other.type, key=lambda each: each.bit_width)
    return _NUMBERS[function](one.cast(kind), other.cast(kind))


def _is_exact(kind: pa.DataType) -> bool:
    return bool(pa.types.is_signed_integer(kind) or pa.types.is_decimal128(kind))


def _constant(value: Any) -> Any:
    """A constant with the type that Spark gives it. Whether a sign belongs to it, only Spark knows."""
    if type(value) is int and 0 <= value < 2**63:
        return pa.scalar(value, pa.int32() if value < 2**31 else pa.int64())
    if isinstance(value, Decimal) and value.is_finite() and not value.is_signed():
        _, digits, exponent = value.as_tuple()
        scale = -int(exponent)
        precision = max(len(digits), scale)
        if scale >= 0 and precision <= MOST_DIGITS:
            return pa.scalar(value, pa.decimal128(precision, scale))
    return None


def as_decimal(values: Any) -> Any:
    """A whole number beside a decimal: a constant has its own digits, a column all those of its type."""
    if pa.types.is_decimal(values.type):
        return values
    if isinstance(values, pa.Scalar):
        return pa.scalar(Decimal(values.as_py()), pa.decimal128(len(str(values.as_py())), 0))
    return values.cast(pa.decimal128(_DIGITS[values.type.bit_width], 0))


def _of_decimals(function: str, one: Any, other: Any) -> Any:
    kind = _type_of(function, one.type, other.type)
    if kind is None:
        return None
    wide = [each.cast(pa.decimal256(each.type.precision, each.type.scale)) for each in (one, other)]
    return _DECIMALS[function](*wide).cast(kind)


def _type_of(function: str, one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The type of a result; None if Spark would give up digits behind the point."""
    if function == "*":
        scale = one.scale + other.scale
        precision = one.precision + other.precision + 1
    else:
        scale = max(one.scale, other.scale)
        precision = max(one.precision - one.scale, other.precision - other.scale) + scale + 1
    if precision > MOST_DIGITS:
        if max(MOST_DIGITS - (precision - scale), min(scale, _LEAST_SCALE)) != scale:
            return None
        precision = MOST_DIGITS
    return pa.decimal128(precision, scale)
