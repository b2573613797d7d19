"""Conditions tested at the driver, where Arrow and Spark cannot disagree about them.

Comparisons of columns and constants of one and the same type (whole numbers, decimals, texts, dates,
booleans), and of decimals with decimals and whole numbers, computed ones as well; whether a text begins with,
ends with or contains another, tests for NULL, and AND, OR and NOT over these, with SQL's three values.
Anything else, and any floating-point number above all, is left to Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rollview.algebra.averages import average_function, average_type
from rollview.algebra.bag import COUNT, Output
from rollview.algebra.expression import TRUE, Call, Column, Expression, Literal
from rollview.bags.spark_sums import MOST_DIGITS
from rollview.rows import arrow_type

# Sums, differences and products of whole numbers and decimals at the driver, over an Arrow table.
#
# They are exact: computed with twice as many digits as Spark has, then given the type that Spark gives
# them. Values that do not fit that type, and results that Spark would round because 38 digits are too few, is
# left to Spark, as are floating-point numbers and divisions.


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
    """The values of such an expression, one for each row; None if only Spark can decide.

    `other` computes calls inside that are no arithmetic, and is believed where they are decimals.
    """
    try:
        values = _values(expression, table, other)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        # It does not fit: Spark knows what to say.
        return None
    return None if isinstance(values, pa.Scalar) else values


def _values(expression: Expression, table: pa.Table, compute: Other | None) -> Any:
    """A constant is a scalar; None if only Spark can decide."""
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


_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


class _LeftToSpark(Exception):
    """The condition has a part whose meaning only Spark knows."""


def evaluate_condition(condition: Expression, table: pa.Table) -> pa.ChunkedArray | None:
    """For every row whether the condition is true, false or unknown; None if only Spark can decide."""
    try:
        return _tested(condition, table)
    except _LeftToSpark:
        return None


def _tested(condition: Expression, table: pa.Table) -> Any:
    if condition == TRUE:
        return pa.chunked_array([pa.repeat(pa.scalar(True), table.num_rows)])
    if not isinstance(condition, Call):
        raise _LeftToSpark
    function, arguments = condition.function, condition.arguments
    if function in ("AND", "OR"):
        combine = pc.and_kleene if function == "AND" else pc.or_kleene
        return _combined(combine, [_tested(each, table) for each in arguments])
    if function == "NOT":
        return pc.invert(_tested(arguments[0], table))
    if function == "IS NULL" and isinstance(arguments[0], Column):
        return pc.is_null(table[arguments[0].name])
    if function == "<=>":
        one, other = _alike(arguments[0], arguments[1], table)
        both_null = pc.and_(pc.is_null(one), pc.is_null(other))
        return pc.or_(pc.fill_null(pc.equal(one, other), False), both_null)
    if function in _COMPARISONS:
        return _COMPARISONS[function](*_alike(arguments[0], arguments[1], table))
    if function == "LIKE" and isinstance(arguments[0], Column) and isinstance(arguments[1], Literal):
        return _like(table[arguments[0].name], arguments[1].value)
    if function == "IN" and isinstance(arguments[0], Column):
        return _combined(
            pc.or_kleene, [pc.equal(*_alike(arguments[0], each, table)) for each in arguments[1:]]
        )
    raise _LeftToSpark


def _combined(combine: Callable[[Any, Any], Any], parts: list[Any]) -> Any:
    result = parts[0]
    for part in parts[1:]:
        result = combine(result, part)
    return result


def _alike(left: Expression, right: Expression, table: pa.Table) -> tuple[Any, Any]:
    """Both sides, if they have the same type, or are decimals that Spark compares digit by digit."""
    if (exact := _exact(left, right, table)) is not None:
        return exact
    kinds = [table.schema.field(each.name).type for each in (left, right) if isinstance(each, Column)]
    if not kinds or any(kind != kinds[0] for kind in kinds) or not _is_plain(kinds[0]):
        raise _LeftToSpark
    return _side(left, kinds[0], table), _side(right, kinds[0], table)


def _exact(left: Expression, right: Expression, table: pa.Table) -> tuple[Any, Any] | None:
    """Both sides as decimals of one type: columns or what is computed from them, at least one a decimal."""
    sides = [arithmetic(each, table) for each in (left, right)]
    if any(each is None for each in sides) or not any(pa.types.is_decimal(each.type) for each in sides):
        return None
    one, other = map(as_decimal, sides)
    kind = common_decimal(one.type, other.type)
    return None if kind is None else (one.cast(kind), other.cast(kind))


def _side(expression: Expression, kind: pa.DataType, table: pa.Table) -> Any:
    if isinstance(expression, Column):
        return table[expression.name]
    if isinstance(expression, Literal) and _fits(expression.value, kind):
        return pa.scalar(expression.value, kind)
    raise _LeftToSpark


def _like(texts: Any, pattern: Any) -> Any:
    """Whether texts begin with, end with or contain something; all other patterns are left to Spark."""
    if not pa.types.is_string(texts.type) or not isinstance(pattern, str):
        raise _LeftToSpark
    inner = pattern.strip("%")
    if not inner or any(each in inner for each in "%_\\"):
        raise _LeftToSpark
    match pattern.startswith("%"), pattern.endswith("%"):
        case True, True:
            return pc.match_substring(texts, inner)
        case False, True:
            return pc.starts_with(texts, inner)
        case True, False:
            return pc.ends_with(texts, inner)
        case _:
            return pc.equal(texts, inner)


def _is_plain(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_string(kind)
        or pa.types.is_date(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal(kind)
    )


def _fits(value: Any, kind: pa.DataType) -> bool:
    """Whether a constant is one of the column's own values, so that nothing is converted."""
    if isinstance(value, bool):
        return bool(pa.types.is_boolean(kind))
    if pa.types.is_decimal(kind):
        return _is_decimal(value, kind)
    if isinstance(value, int):
        return bool(pa.types.is_integer(kind)) and abs(value) < 2 ** (kind.bit_width - 1)
    if isinstance(value, str):
        return bool(pa.types.is_string(kind))
    return type(value).__name__ == "date" and bool(pa.types.is_date(kind))


def _is_decimal(value: Any, kind: pa.DataType) -> bool:
    """Whether a number is one of a decimal type, digit by digit."""
    if not isinstance(value, int | Decimal):
        return False
    number = Decimal(value)
    digits, exponent = number.as_tuple().digits, number.as_tuple().exponent
    if not isinstance(exponent, int) or -exponent > kind.scale:
        return False
    return bool(len(digits) + exponent <= kind.precision - kind.scale)


# Projections at the driver: columns, whole numbers, and what COUNT, SUM and AVG show of a group.
#
# Only what Arrow, Python and Spark cannot disagree about is computed here: IF over a condition that can be
# tested at the driver, sums, differences and products of whole numbers and decimals, a quotient of two
# whole numbers, which is one of two doubles, and an average of decimals from its sum and number, which
# `averages` defines. All else is left to Spark.


_MOST_AVERAGES = 200_000
"""These are computed one by one."""
_INT_DIGITS = 10
"""Digits of an int that becomes a decimal."""


def projected(table: pa.Table, outputs: Sequence[Output]) -> pa.Table | None:
    """The projection of a bag; None if an output has to be computed by Spark.

    Of no rows there is nothing to compute, so that NULL stands for whatever it is.
    """
    columns, names = [], []
    for name, expression in outputs:
        is_nothing = expression == Literal(None) and not table.num_rows
        values = pa.nulls(0) if is_nothing else computed(expression, table)
        if values is None:
            return None
        columns.append(values)
        names.append(name)
    return pa.Table.from_arrays([*columns, table[COUNT]], names=[*names, COUNT])


def computed(expression: Expression, table: pa.Table) -> Any:
    """The values of an expression, one for each row; None if only Spark can decide."""
    match expression:
        case Column():
            return table[expression.name]
        case Literal(value=int(number)) if not isinstance(number, bool):
            return pa.repeat(pa.scalar(number, pa.int64()), table.num_rows)
        case Call("IF", (condition, one, other)):
            return _either(condition, one, other, table)
        case Call("/", (one, other)):
            return _quotient(computed(one, table), computed(other, table))
        case Call("+" | "-" | "*"):
            return arithmetic(expression, table, computed)
        case Call(function, (total, number)) if (kind := average_type(function)) is not None:
            return _average(function, kind, computed(total, table), computed(number, table))
    return None


def _either(condition: Expression, one: Expression, other: Expression, table: pa.Table) -> Any:
    """The first where the condition is true; each is computed for those rows alone that show it."""
    holds = evaluate_condition(condition, table)
    if holds is None:
        return None
    holds = pc.fill_null(holds, False)
    parts = []
    for branch, mask in ((one, holds), (other, pc.invert(holds))):
        rows = table.filter(mask)
        parts.append(pa.nulls(rows.num_rows) if branch == Literal(None) else computed(branch, rows))
    if any(part is None for part in parts):
        return None
    kind = _common([part.type for part in parts], [_is_small(branch) for branch in (one, other)])
    if kind is None:
        return None
    both = pa.concat_arrays([_converted(_whole(part), kind) for part in parts])
    chosen = holds.to_numpy(zero_copy_only=False).astype(bool)
    places = np.where(chosen, np.cumsum(chosen) - 1, chosen.sum() + np.cumsum(~chosen) - 1)
    return both.take(pa.array(places, pa.int64()))


def _is_small(branch: Expression) -> bool:
    """Whether it is a constant that Spark takes for an int."""
    return isinstance(branch, Literal) and type(branch.value) is int and abs(branch.value) < 2**31


def _common(kinds: Sequence[pa.DataType], are_small: Sequence[bool]) -> pa.DataType | None:
    """The type of what is of one of two types: only beside a decimal, a small constant becomes one."""
    known = [
        pa.decimal128(_INT_DIGITS, 0) if is_small and any(map(pa.types.is_decimal, kinds)) else kind
        for kind, is_small in zip(kinds, are_small, strict=True)
        if not pa.types.is_null(kind)
    ]
    if len(set(known)) == 1:
        return known[0]
    if not known or not any(are_small) or not all(map(pa.types.is_decimal, known)):
        return None
    return common_decimal(*known)


def _converted(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """A small constant that becomes a decimal has the digits of an int, not those of a bigint."""
    is_small = pa.types.is_integer(values.type) and pa.types.is_decimal(kind)
    return (values.cast(pa.int32()) if is_small else values).cast(kind)


def _quotient(one: Any, other: Any) -> Any:
    """Whole numbers are divided as doubles; a division by zero is Spark's to report."""
    if one is None or other is None:
        return None
    if not pa.types.is_integer(one.type) or not pa.types.is_integer(other.type):
        return None
    divisor = pc.fill_null(other, 1).to_numpy().astype(np.float64)
    if (divisor == 0).any():
        return None
    values = pc.fill_null(one, 0).to_numpy().astype(np.float64) / divisor
    is_known = pc.and_(pc.is_valid(one), pc.is_valid(other))
    return pa.array(values, mask=~is_known.to_numpy(zero_copy_only=False).astype(bool))


def _average(function: str, kind: str, total: Any, number: Any) -> Any:
    if total is None or number is None or len(total) > _MOST_AVERAGES:
        return None
    if not pa.types.is_decimal(total.type) or not pa.types.is_integer(number.type):
        return None
    pairs = list(zip(total.to_pylist(), number.to_pylist(), strict=True))
    if any(count == 0 for _, count in pairs):
        return None
    average = average_function(function)
    try:
        return pa.array([average(*pair) for pair in pairs], arrow_type(kind.lower()))
    except pa.ArrowInvalid:
        # It does not fit: Spark knows what to say.
        return None


def _whole(values: Any) -> pa.Array:
    combined = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    return pa.concat_arrays(combined.chunks) if isinstance(combined, pa.ChunkedArray) else combined
