"""Expressions and facts as text for people: the normal form that `explain` shows and fixtures compare."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from rollview.algebra.averages import average_type
from rollview.algebra.bag import Output
from rollview.algebra.expression import Expression, to_sql

_QUOTED = re.compile(r"('(?:\\.|[^'\\])*')|`([\w.]+)`")


def facts(title: str, lines: Iterable[str]) -> Iterator[str]:
    """A title with its facts below; nothing if there are none."""
    lines = list(lines)
    if lines:
        yield f"  {title}"
        yield from (f"    {line}" for line in lines)


def plain_sql_of(outputs: Iterable[Output]) -> list[str]:
    """Named expressions, one a line."""
    return [f"{name} = {plain_sql(expression)}" for name, expression in outputs]


def plain_sql(expression: Expression) -> str:
    """SQL as a person would write it: no quotes around plain names, no outermost parentheses."""
    sql = to_sql(
        expression, lambda function, total, number: f"CAST({total} / {number} AS {average_type(function)})"
    )
    # An operator's text is always wrapped as a whole, and a function's text starts with its name.
    bare = sql[1:-1] if sql.startswith("(") else sql
    return _QUOTED.sub(lambda match: match[1] or match[2], bare)
