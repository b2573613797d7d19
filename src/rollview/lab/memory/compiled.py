"""Expressions as functions of a row of Python values: the evaluator of bags in memory.

The meaning is Spark's; `tests/algebra/test_functions_spark.py` compares both. AND, OR, IF and COALESCE stop
early, so they are compiled, not called.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import lru_cache

from rollview.algebra.dates import Value
from rollview.algebra.expression import Call, Column, Expression, Literal, Row, is_in_spark, to_sql
from rollview.errors import UnsupportedError
from rollview.lab.memory.functions import function_named
from rollview.lab.memory.moments import in_utc

Compiled = Callable[[Row], Value]


@lru_cache(maxsize=4096)
def compile_expression(expression: Expression, columns: tuple[str, ...]) -> Compiled:
    """A function from a row with these columns to the expression's value."""
    if isinstance(expression, Column):
        return operator.itemgetter(columns.index(expression.name))
    if isinstance(expression, Literal):
        value = in_utc(expression.value)
        return lambda row: value
    compiled = tuple(compile_expression(argument, columns) for argument in expression.arguments)
    if expression.function == "AND":
        return _compile_connective(compiled, decisive=False)
    if expression.function == "OR":
        return _compile_connective(compiled, decisive=True)
    if expression.function == "IF":
        return _compile_if(compiled)
    if expression.function == "COALESCE":
        return _compile_coalesce(compiled)
    if is_in_spark(expression):
        raise UnsupportedError(f"`{to_sql(expression)}` can be computed by Spark alone")
    return _compile_function(expression, compiled, columns)


def _compile_connective(parts: tuple[Compiled, ...], decisive: bool) -> Compiled:
    """AND stops at the first false, OR at the first true; otherwise one unknown makes all unknown."""

    def connective(row: Row) -> Value:
        result: bool | None = not decisive
        for part in parts:
            value = part(row)
            if value is decisive:
                return decisive
            if value is None:
                result = None
        return result

    return connective


def _compile_if(parts: tuple[Compiled, ...]) -> Compiled:
    condition, positive, negative = parts
    return lambda row: positive(row) if condition(row) is True else negative(row)


def _compile_coalesce(parts: tuple[Compiled, ...]) -> Compiled:
    def coalesce(row: Row) -> Value:
        for part in parts:
            value = part(row)
            if value is not None:
                return value
        return None

    return coalesce


def _compile_function(expression: Call, parts: tuple[Compiled, ...], columns: tuple[str, ...]) -> Compiled:
    """Calls of two columns, or a column and a constant, are what joins test; they go the short way."""
    function = function_named(expression.function)
    match expression.arguments:
        case (Column() as one, Column() as other):
            left, right = columns.index(one.name), columns.index(other.name)
            return lambda row: function(row[left], row[right])
        case (Column() as one, Literal() as constant):
            left, value = columns.index(one.name), in_utc(constant.value)
            return lambda row: function(row[left], value)
        case (_, _):
            first, second = parts
            return lambda row: function(first(row), second(row))
        case (_,):
            only = parts[0]
            return lambda row: function(only(row))
    return lambda row: function(*[part(row) for part in parts])
