"""Constants: which syntax the parser uses for them, and what they are."""

from __future__ import annotations

import math
from decimal import Decimal

from sqlglot import exp

from rollview.algebra.expression import Literal
from rollview.sql.place import mistake

NULL = Literal(None)


def literal(node: exp.Expr) -> Literal:
    """The value of a constant; a number with a point is a decimal, one with an exponent a double."""
    if isinstance(node, exp.Null):
        return NULL
    if isinstance(node, exp.Boolean):
        return Literal(bool(node.this))
    if node.is_string:
        return Literal(node.name)
    return Literal(_number(node))


def _number(node: exp.Expr) -> int | float | Decimal:
    text = node.name
    if "e" in text.lower():
        double = float(text)
        if math.isinf(double):
            raise mistake(node, f"{text} is too large for a double", subject=text)
        return double
    if len(text.replace(".", "").lstrip("0")) > 38:
        raise mistake(node, f"{text} has more than 38 digits", subject=text)
    return Decimal(text) if "." in text else int(text)
