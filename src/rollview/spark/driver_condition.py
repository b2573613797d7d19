"""Conditions tested at the driver, where Arrow and Spark cannot disagree about them.

Comparisons of columns and constants of one and the same type (whole numbers, decimals, texts, dates,
booleans), and of decimals with decimals and whole numbers, computed ones as well; how a text begins, ends or
goes on, tests for NULL, and AND, OR and NOT over these, with SQL's three values. Anything else, and any
floating-point number above all, is left to Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rollview.algebra.expression import TRUE, Call, Column, Expression, Literal
from rollview.spark.driver_arithmetic import arithmetic, as_decimal, common_decimal

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
    """For every row whether the condition is true, false or unknown; None if only Spark can tell."""
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
    """Whether texts begin, end, or go on with something; all other patterns are left to Spark."""
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
