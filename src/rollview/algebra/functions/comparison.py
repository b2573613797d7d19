"""Comparisons. Values of mixed kinds are first made alike, as Spark does: text is read as what it meets.

Joins and conditions spend their time here, so each comparison is written out: values of one kind cost one
look at their types.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

from rollview.algebra.functions.casts import cast_function, to_bigint, to_double
from rollview.algebra.functions.dates import Timestamp, to_date, to_timestamp
from rollview.algebra.functions.null import Value

_boolean = cast_function("BOOLEAN")


def alike(left: Value, right: Value) -> tuple[Value, Value]:
    """Two values that are not NULL, as values of one kind."""
    if isinstance(left, str) != isinstance(right, str):
        return (_read(left, right), right) if isinstance(left, str) else (left, _read(right, left))
    if isinstance(left, Timestamp) != isinstance(right, Timestamp):
        return to_timestamp(left), to_timestamp(right)
    if isinstance(left, float) != isinstance(right, float):
        return to_double(left), to_double(right)
    return left, right


def _read(text: str, other: Value) -> Value:
    if isinstance(other, bool):
        return _boolean(text)
    if isinstance(other, int):
        return to_bigint(text)
    if isinstance(other, float | Decimal):
        return to_double(text)
    return to_timestamp(text) if isinstance(other, Timestamp) else to_date(text)


def _equal(left: Value, right: Value) -> Value:
    if left is None or right is None:
        return None
    return left == right or (type(left) is not type(right) and _equal_alike(left, right))


def _equal_alike(left: Value, right: Value) -> bool:
    left, right = alike(left, right)
    return bool(left == right)


def _unequal(left: Value, right: Value) -> Value:
    if left is None or right is None:
        return None
    return left != right and (type(left) is type(right) or not _equal_alike(left, right))


def _less(left: Value, right: Value) -> Value:
    if left is None or right is None:
        return None
    if type(left) is not type(right):
        left, right = alike(left, right)
    return left < right


def _at_most(left: Value, right: Value) -> Value:
    if left is None or right is None:
        return None
    if type(left) is not type(right):
        left, right = alike(left, right)
    return left <= right


def _greater(left: Value, right: Value) -> Value:
    if left is None or right is None:
        return None
    if type(left) is not type(right):
        left, right = alike(left, right)
    return left > right


def _at_least(left: Value, right: Value) -> Value:
    if left is None or right is None:
        return None
    if type(left) is not type(right):
        left, right = alike(left, right)
    return left >= right


def _not_distinct(left: Value, right: Value) -> Value:
    if left is None or right is None:
        return left is right
    return left == right or (type(left) is not type(right) and _equal_alike(left, right))


def _is_in(value: Value, *candidates: Value) -> Value:
    if value is None:
        return None
    if value in candidates:
        return True
    unknown = False
    for candidate in candidates:
        if candidate is None:
            unknown = True
        elif type(candidate) is not type(value) and _equal_alike(value, candidate):
            return True
    return None if unknown else False


COMPARISONS: dict[str, Callable[..., Value]] = {
    "=": _equal,
    "<>": _unequal,
    "<": _less,
    "<=": _at_most,
    ">": _greater,
    ">=": _at_least,
    "<=>": _not_distinct,
    "IN": _is_in,
}
