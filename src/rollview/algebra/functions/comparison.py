"""Comparisons. Values of one kind go the short way; mixed kinds are first made alike, as Spark does.

Which of the two a call needs is decided when it is compiled: columns and whole numbers, of which the engine's
own conditions are made, never pay for the rest.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from decimal import Decimal

from rollview.algebra.functions.casts import cast_function, to_bigint, to_double
from rollview.algebra.functions.dates import Date, Timestamp, to_date, to_timestamp
from rollview.algebra.functions.null import Value, strict_pair

_ORDER: dict[str, Callable[[Value, Value], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_boolean = cast_function("BOOLEAN")


def alike(left: Value, right: Value) -> tuple[Value, Value]:
    """Two values that are not NULL, as values of one kind: text is read as what it is compared with."""
    if isinstance(left, str) != isinstance(right, str):
        return (_read(left, right), right) if isinstance(left, str) else (left, _read(right, left))
    if isinstance(left, Timestamp) != isinstance(right, Timestamp) and isinstance(left, Date):
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


def _coerced(compare: Callable[[Value, Value], bool]) -> Callable[[Value, Value], bool | None]:
    def applied(left: Value, right: Value) -> bool | None:
        if left is None or right is None:
            return None
        if type(left) is not type(right):
            left, right = alike(left, right)
        return compare(left, right)

    return applied


def _is_in(value: Value, *candidates: Value) -> bool | None:
    if value is None:
        return None
    if value in [candidate for candidate in candidates if candidate is not None]:
        return True
    return None if None in candidates else False


def _is_in_coerced(value: Value, *candidates: Value) -> bool | None:
    results = [_equal(value, candidate) for candidate in candidates]
    return True if True in results else None if None in results else False


def _not_distinct_coerced(left: Value, right: Value) -> bool:
    return left is right if left is None or right is None else bool(_equal(left, right))


_equal = _coerced(operator.eq)

COMPARISONS: dict[str, Callable[..., Value]] = {
    **{name: strict_pair(compare) for name, compare in _ORDER.items()},
    "<=>": operator.eq,
    "IN": _is_in,
}
COERCING_COMPARISONS: dict[str, Callable[..., Value]] = {
    **{name: _coerced(compare) for name, compare in _ORDER.items()},
    "<=>": _not_distinct_coerced,
    "IN": _is_in_coerced,
}
