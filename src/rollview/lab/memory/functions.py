"""All functions by name; comparisons, and functions of text, whose arguments are cast to text first.

As in Spark. Values of mixed kinds are made alike before they are compared: text is read as what it meets.
Joins and conditions spend their time in comparisons, so each is written out: values of one kind cost one
look at their types.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache

from rollview.algebra import dates
from rollview.algebra.averages import average_function, average_type
from rollview.algebra.dates import Timestamp, Value
from rollview.algebra.expression import cast_type
from rollview.lab.memory import arithmetic, moments
from rollview.lab.memory.casts import (
    cast_function,
    strict,
    strict_pair,
    strict_single,
    to_bigint,
    to_double,
    to_text,
)
from rollview.lab.memory.moments import to_date, to_timestamp

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


def _on_text(function: Callable[[str], Value]) -> Callable[[Value], Value]:
    """A function of one text; NULL in, NULL out."""

    def applied(value: Value) -> Value:
        return None if value is None else function(value if type(value) is str else to_text(value))

    return applied


def _concatenated(*parts: Value) -> str:
    """`||` and CONCAT."""
    return "".join(map(to_text, parts))


def _substring(value: Value, start: Value, length: Value = None) -> str:
    """SUBSTRING: places are counted from 1, negative ones from the end, also those before the text."""
    text = to_text(value)
    first = int(start)
    first = first - 1 if first > 0 else len(text) + first if first < 0 else 0
    end = len(text) if length is None else first + int(length)
    return text[max(first, 0) : max(end, 0)]


def _like(value: Value, pattern: str) -> bool:
    """LIKE: % stands for any text, _ for one character; there is no escape."""
    return _pattern(pattern).fullmatch(to_text(value)) is not None


@lru_cache(maxsize=1024)
def _pattern(pattern: str) -> re.Pattern[str]:
    wild = {"%": ".*", "_": "."}
    return re.compile("".join(wild.get(letter) or re.escape(letter) for letter in pattern), re.DOTALL)


FUNCTIONS: dict[str, Callable[..., Value]] = {
    **COMPARISONS,
    **arithmetic.OPERATORS,
    "NEGATIVE": strict_single(operator.neg),
    "ABS": strict_single(abs),
    "ROUND": strict(arithmetic.rounded),
    "FLOOR": strict_single(arithmetic.floor),
    "CEIL": strict_single(arithmetic.ceiling),
    "NOT": strict_single(operator.not_),
    "IS NULL": lambda value: value is None,
    "LEAST": lambda *values: min((value for value in values if value is not None), default=None),
    "GREATEST": lambda *values: max((value for value in values if value is not None), default=None),
    "||": strict(_concatenated),
    "LIKE": strict_pair(_like),
    "UPPER": _on_text(str.upper),
    "LOWER": _on_text(str.lower),
    "LENGTH": _on_text(len),
    # Spaces alone, no other blanks.
    "TRIM": _on_text(lambda text: text.strip(" ")),
    "LTRIM": _on_text(lambda text: text.lstrip(" ")),
    "RTRIM": _on_text(lambda text: text.rstrip(" ")),
    "SUBSTRING": strict(_substring),
    "YEAR": strict_single(lambda value: moments.to_date(value).year),
    "QUARTER": strict_single(lambda value: (moments.to_date(value).month + 2) // 3),
    "MONTH": strict_single(lambda value: moments.to_date(value).month),
    "DAY": strict_single(lambda value: moments.to_date(value).day),
    "DATE_TRUNC": strict_pair(moments.truncated),
    "DATE_ADD": strict_pair(moments.date_add),
    "DATEDIFF": strict_pair(moments.date_difference),
    "PLUS DAYS": strict_pair(dates.plus_days),
    "PLUS MONTHS": strict_pair(dates.plus_months),
}


def function_named(name: str) -> Callable[..., Value]:
    """The function of that name; `CAST AS type` is the cast to that type, `AVERAGE AS type` an average."""
    if (kind := cast_type(name)) is not None:
        return cast_function(kind)
    return FUNCTIONS[name] if average_type(name) is None else average_function(name)
