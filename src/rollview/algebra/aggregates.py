"""Aggregate functions over the rows of a group, for bags in memory.

Only the few that the simulator's worlds use; on Spark, whatever Spark knows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rollview.algebra.expression import Call, Column, Expression, Row, compile_expression

Members = Sequence[tuple[Row, int]]
"""The rows of a group with their counts."""

_Values = list[tuple[Any, int]]

AGGREGATES: dict[str, Callable[[_Values], Any]] = {
    "MIN": lambda values: min((value for value, _ in values), default=None),
    "MAX": lambda values: max((value for value, _ in values), default=None),
    "COUNT": lambda values: sum(count for _, count in values),
    "COUNT DISTINCT": lambda values: len({value for value, _ in values}),
    "SUM": lambda values: sum(value * count for value, count in values) if values else None,
}
"""What each makes of the values that are not NULL."""


def compile_aggregate(expression: Expression, columns: tuple[str, ...]) -> Callable[[Members], Any]:
    """A function from the rows of a group to the expression's value; bare columns are those of a key."""
    if isinstance(expression, Call) and expression.function in AGGREGATES:
        function = AGGREGATES[expression.function]
        argument = compile_expression(expression.arguments[0], columns)

        def aggregate(members: Members) -> Any:
            values = [(argument(row), count) for row, count in members]
            return function([each for each in values if each[0] is not None])

        return aggregate
    if not isinstance(expression, Call):
        compiled = compile_expression(expression, columns)
        return lambda members: compiled(members[0][0])
    # The parts first, then the function over their values.
    parts = [compile_aggregate(each, columns) for each in expression.arguments]
    names = tuple(f"_{number}" for number in range(len(parts)))
    whole = compile_expression(Call(expression.function, tuple(map(Column, names))), names)
    return lambda members: whole(tuple([part(members) for part in parts]))
