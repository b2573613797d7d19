"""Pushed conditions: which the server and Spark agree on, and their SQL."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

from rollview.sources.postgres.connections import quote, text_literal
from rollview.sources.postgres.keys import comparable
from rollview.sources.postgres.structure import PostgresColumn
from rollview.sources.source import IN, Comparison, Constant

_TEXTS = ("text", "varchar")
_MOST_INTEGER = (1 << 63) - 1


def can_push(comparison: Comparison, column_type: str) -> bool:
    """Whether all constants are compared with values of a Spark type as Spark compares them."""
    return all(_alike(value, comparison.operator, column_type) for value in comparison.values)


def _alike(value: Constant, operator: str, kind: str) -> bool:
    if type(value) is int:
        return abs(value) <= _MOST_INTEGER and comparable("bigint", kind)
    if type(value) is Decimal:
        return kind.startswith("decimal") and value.is_finite() and comparable(_decimal(value), kind)
    # Texts are equal or not everywhere alike, but ordered by each server's own collation.
    if type(value) is str:
        return kind == "string" and operator in ("=", IN) and "\0" not in value
    return kind == "date" and isinstance(value, date) and not isinstance(value, datetime)


def _decimal(value: Decimal) -> str:
    """The type that Spark gives to a decimal constant."""
    _, digits, exponent = value.as_tuple()
    scale = max(-int(exponent), 0)
    return f"decimal({max(len(digits) + max(int(exponent), 0), scale)},{scale})"


def condition_sql(column: PostgresColumn, comparison: Comparison) -> str | None:
    """A condition that can be pushed, as SQL; None where a type that is only shown as text is in the way."""
    if column.type == "string" and not (column.kind in _TEXTS and column.exact):
        return None
    left, texts = f"t.{quote(column.name)}", [_literal(value) for value in comparison.values]
    if comparison.operator == IN:
        return f"{left} IN ({', '.join(texts)})"
    return f"{left} {comparison.operator} {texts[0]}"


def _literal(value: Constant) -> str:
    if isinstance(value, str):
        return text_literal(value)
    if isinstance(value, date):
        return f"{text_literal(value.isoformat())}::date"
    return f"({value:f})" if isinstance(value, Decimal) else f"({value})"
