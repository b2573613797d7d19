"""Simplification by NULL: an outer join gives rows in which whole relations are NULL, and conditions over
them often cannot hold. Seeing that turns `LEFT JOIN … WHERE right.x > 5` into the inner join that it is.

Only what is so for every function of a list is used; what is not listed stays as it is.
"""

from __future__ import annotations

from functools import lru_cache

from rollview.algebra.expression import Call, Column, Expression, Literal, cast_type

_STRICT = {"=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "||", "LIKE", "NEGATIVE", "NOT"}
_STRICT |= {"ABS", "ROUND", "FLOOR", "CEIL", "UPPER", "LOWER", "LENGTH", "SUBSTRING", "YEAR", "QUARTER"}
_STRICT |= {"MONTH", "DAY", "DATE_ADD", "DATEDIFF", "PLUS DAYS", "PLUS MONTHS"}
"""Functions of ours that are NULL where any argument is."""

_NULL, _TRUE, _FALSE = Literal(None), Literal(True), Literal(False)


@lru_cache(maxsize=4096)
def _folded(expression: Expression) -> Expression:
    """The expression, simplified where NULL decides its value. It may lose its type: only test it."""
    if not isinstance(expression, Call):
        return expression
    arguments = tuple(map(_folded, expression.arguments))
    function = expression.function
    result = Call(function, arguments)
    if function == "AND":
        return _connected(result, _FALSE, _TRUE)
    if function == "OR":
        return _connected(result, _TRUE, _FALSE)
    if function in ("IS NULL", "<=>", "COALESCE", "IF", "IN"):
        return _decided_by_null(result)
    if function in _STRICT and any(map(_is_null, arguments)):
        return _NULL
    return result


def _connected(whole: Call, decisive: Literal, neutral: Literal) -> Expression:
    """AND and OR without what does not matter."""
    parts = [part for part in whole.arguments if part != neutral]
    if decisive in parts:
        return decisive
    if not parts:
        return neutral
    return parts[0] if len(parts) == 1 else Call(whole.function, tuple(parts))


def _decided_by_null(whole: Call) -> Expression:
    first, *rest = whole.arguments
    match whole.function:
        case "IS NULL":
            return _TRUE if _is_null(first) else whole
        case "<=>" if _is_null(first) and _is_null(rest[0]):
            return _TRUE
        case "COALESCE" if _is_null(first) and len(rest) > 1:
            return Call("COALESCE", tuple(rest))
        case "IF" if _is_null(first) or first == _FALSE:
            return rest[1]
        case "IN" if _is_null(first):
            return _NULL
    return whole


def _is_null(expression: Expression) -> bool:
    """A NULL, whatever its type."""
    if isinstance(expression, Call) and cast_type(expression.function) is not None:
        return _is_null(expression.arguments[0])
    return expression == _NULL


def is_never_true(condition: Expression) -> bool:
    """Whether a condition can be seen not to hold for any row."""
    if isinstance(condition, Call) and condition.function == "AND":
        return any(map(is_never_true, condition.arguments))
    result = _folded(condition)
    return result == _FALSE or _is_null(result)


def rejects_null(condition: Expression, column: str) -> bool:
    """Whether a condition cannot hold where a column is NULL."""

    def without(part: Expression) -> Expression:
        if isinstance(part, Column):
            return _NULL if part.name == column else part
        return Call(part.function, tuple(map(without, part.arguments))) if isinstance(part, Call) else part

    return is_never_true(without(condition))
