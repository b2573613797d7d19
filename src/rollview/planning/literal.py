"""Constants: which syntax the parser uses for them, and what they are.

Typed numbers (3L, 1.5D, 1.5BD) arrive as casts of a constant. A cast that a user wrote looks the same, so
only those are taken for constants that cannot change the value.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from sqlglot import exp

from rollview.algebra.expression import Literal

NULL = Literal(None)

_Type = exp.DataType.Type
_KINDS: dict[Any, Callable[[str], int | float | Decimal]] = {
    _Type.BIGINT: int,
    _Type.DOUBLE: float,
    _Type.DECIMAL: Decimal,
}


def is_typed_number(node: exp.TryCast) -> bool:
    """Whether a cast is only how the parser spells a typed number."""
    constant, kind = node.this, node.to.this
    if not isinstance(constant, exp.Literal):
        return False
    text = constant.name
    if kind == _Type.DECIMAL:
        digits = re.fullmatch(r"(\d*)\.?(\d*)", text)
        limits = [limit.name for limit in node.to.expressions]
        return digits is not None and limits == [str(len(digits[1] + digits[2])), str(len(digits[2]))]
    return not constant.is_string and (kind == _Type.DOUBLE or (kind == _Type.BIGINT and text.isdigit()))


def is_adjacent_strings(node: exp.Concat) -> bool:
    """Whether a concatenation is how the parser reads 'a' 'b': then the later constants have no place."""
    return any(part.is_string and "start" not in part.meta for part in node.expressions)


def literal(node: exp.Expr) -> Literal:
    """The value of a constant; a number with a point is a decimal, one with an exponent a double."""
    if isinstance(node, exp.Null):
        return NULL
    if isinstance(node, exp.Boolean):
        return Literal(bool(node.this))
    if isinstance(node, exp.TryCast):
        return Literal(_KINDS[node.to.this](node.this.name))
    if node.is_string:
        return Literal(node.name)
    return Literal(_number(node.name))


def _number(text: str) -> int | float | Decimal:
    if "e" in text.lower():
        return float(text)
    return Decimal(text) if "." in text else int(text)
