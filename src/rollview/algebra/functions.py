"""The functions that expressions may call, on values: Spark SQL's meaning with ANSI mode on.

NULL in is NULL out, except where a function is about NULL. AND, OR and IF are not here: they stop early, so
they are compiled, not called.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from rollview.errors import EvaluationError

Value = Any


def _strict(function: Callable[..., Value]) -> Callable[..., Value]:
    """NULL in, NULL out."""

    def applied(*values: Value) -> Value:
        return None if None in values else function(*values)

    return applied


def _strict_pair(function: Callable[[Value, Value], Value]) -> Callable[[Value, Value], Value]:
    """The same for two arguments, which is what comparisons in joins spend their time on."""

    def applied(left: Value, right: Value) -> Value:
        return None if left is None or right is None else function(left, right)

    return applied


def _arithmetic(function: Callable[[Value, Value], Value]) -> Callable[[Value, Value], Value]:
    """As Spark has it, a decimal beside a double becomes a double."""

    def applied(left: Value, right: Value) -> Value:
        if left is None or right is None:
            return None
        if isinstance(left, float) or isinstance(right, float):
            return function(float(left), float(right))
        return function(left, right)

    return applied


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _divide(left: Value, right: Value) -> Value:
    if right == 0:
        raise EvaluationError("division by zero", hint="guard it: CASE WHEN divisor <> 0 THEN ... END")
    return left / right


def _remainder(left: Value, right: Value) -> Value:
    """Spark's %: the sign follows the dividend."""
    if right == 0:
        raise EvaluationError("remainder by zero", hint="guard it: CASE WHEN divisor <> 0 THEN ... END")
    magnitude = abs(left) % abs(right)
    return -magnitude if left < 0 else magnitude


def _is_in(value: Value, *candidates: Value) -> bool | None:
    if value is None:
        return None
    if value in [candidate for candidate in candidates if candidate is not None]:
        return True
    return None if None in candidates else False


FUNCTIONS: dict[str, Callable[..., Value]] = {
    "=": _strict_pair(operator.eq),
    "<>": _strict_pair(operator.ne),
    "<": _strict_pair(operator.lt),
    "<=": _strict_pair(operator.le),
    ">": _strict_pair(operator.gt),
    ">=": _strict_pair(operator.ge),
    "+": _arithmetic(operator.add),
    "-": _arithmetic(operator.sub),
    "*": _arithmetic(operator.mul),
    "/": _arithmetic(_divide),
    "%": _arithmetic(_remainder),
    "NEGATIVE": _strict(operator.neg),
    "||": _strict(lambda *parts: "".join(map(_text, parts))),
    "NOT": _strict(operator.not_),
    "IS NULL": lambda value: value is None,
    "<=>": operator.eq,
    "IN": _is_in,
    "COALESCE": lambda *values: next((value for value in values if value is not None), None),
    "LEAST": lambda *values: min((value for value in values if value is not None), default=None),
    "ABS": _strict(abs),
    "UPPER": _strict(str.upper),
    "LOWER": _strict(str.lower),
    "LENGTH": _strict(len),
}
