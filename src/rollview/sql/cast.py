"""Constants and casts; typed constants are both: DATE '…' and 1.5D arrive as casts, as CAST and `::` do.

A cast of a constant that cannot change the value is the constant itself, so that sources can use it.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

from sqlglot import exp

from rollview.algebra.dates import read_date, read_timestamp
from rollview.algebra.expression import Expression, Literal, call, cast_to
from rollview.sql.dialect import DIALECT
from rollview.sql.errors import mistake

_Type = exp.DataType.Type
_NAMES: dict[Any, str] = {
    _Type.BIGINT: "BIGINT",
    _Type.INT: "INT",
    _Type.SMALLINT: "SMALLINT",
    _Type.TINYINT: "TINYINT",
    _Type.DOUBLE: "DOUBLE",
    _Type.FLOAT: "FLOAT",
    _Type.TEXT: "STRING",
    _Type.DATE: "DATE",
    _Type.BOOLEAN: "BOOLEAN",
    # The parser has several names for Spark's one timestamp, which is a moment.
    _Type.TIMESTAMP: "TIMESTAMP",
    _Type.TIMESTAMPTZ: "TIMESTAMP",
    _Type.TIMESTAMPLTZ: "TIMESTAMP",
}


def check_cast(node: exp.Cast) -> None:
    """Refuses casts that cannot be maintained, and typed constants that cannot be read."""
    if not is_known_type(node.to):
        return
    kind = _type(node.to)
    constant = node.this
    if not isinstance(node, exp.TryCast) and isinstance(constant, exp.Literal) and kind in _READERS:
        example = "2024-01-31" if kind == "DATE" else "2024-01-31 12:30:00"
        if _READERS[kind](constant.name) is None:
            message = f"{kind} '{constant.name}' is not a valid {kind.lower()}"
            raise mistake(constant, message, subject=constant.name, hint=f"write {kind} '{example}'")


def is_known_type(node: exp.DataType) -> bool:
    """Whether rollview itself can cast to the type; Spark can cast to others."""
    return bool(node.this == _Type.DECIMAL or (node.this in _NAMES and not node.expressions))


def cast(node: exp.Cast, value: Expression) -> Expression:
    """The value cast to the type; `value` is what the cast's argument became."""
    kind = _type(node.to)
    if isinstance(value, Literal):
        same = _constant(value.value, kind)
        if same is not None:
            return same
    return call(cast_to(kind), value)


def _type(node: exp.DataType) -> str:
    """Spark's name of the type."""
    if node.this == _Type.DECIMAL:
        limits = [int(limit.name) for limit in node.expressions]
        precision, scale = (*limits, *(10, 0)[len(limits) :])
        if not 0 <= scale <= precision <= 38 or precision == 0:
            message = f"DECIMAL({precision},{scale}): at most 38 digits, and of these the scale"
            raise mistake(node, message, subject=node.sql(dialect=DIALECT))
        return f"DECIMAL({precision},{scale})"
    return _NAMES[node.this]


def _constant(value: Any, kind: str) -> Literal | None:
    """The constant that the cast of a constant is, where both are sure to be the same."""
    if value is None or isinstance(value, bool):
        return None
    if kind == "DOUBLE" and isinstance(value, int | Decimal):
        return Literal(float(value))
    if isinstance(value, str) and kind in _READERS:
        found = _READERS[kind](value)
        return None if found is None else Literal(found)
    if isinstance(value, str) and kind.startswith("DECIMAL"):
        return _decimal(value, kind)
    return None


def _decimal(text: str, kind: str) -> Literal | None:
    """How the parser spells 1.5BD: digits in quotes, and the type that these digits need."""
    whole, _, fraction = text.partition(".")
    if (whole + fraction).isdigit() and kind == f"DECIMAL({len(whole + fraction)},{len(fraction)})":
        return Literal(Decimal(text))
    return None


_READERS = {"DATE": read_date, "TIMESTAMP": read_timestamp}


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
