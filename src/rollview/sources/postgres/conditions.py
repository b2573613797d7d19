"""Local conditions as SQL, where the server and Spark agree on what they mean."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from rollview.algebra.expression import Call, Column, Expression, Literal
from rollview.algebra.relation import Relation
from rollview.sources.postgres.connections import quote, text_literal
from rollview.sources.postgres.keys import comparable
from rollview.sources.postgres.registration import Registered
from rollview.sources.postgres.structure import PostgresColumn
from rollview.sources.server.sub_query import Pushed

_COMPARISONS = {"=", "<", "<=", ">", ">="}
_NUMBERS = ("int2", "int4", "int8", "numeric")
_TEXTS = ("text", "varchar")


def pushed_to(tables: Mapping[str, Registered]) -> Pushed:
    """What turns a condition on one relation into SQL, or into None."""

    def pushed(relation: Relation, condition: Expression) -> str | None:
        table = tables.get(relation.table.name)
        match condition:
            case Call(function=operator, arguments=(Column(name=name), *arguments)) if table is not None:
                own = dict(zip(relation.columns, relation.table.columns, strict=True)).get(name, "")
                column = table.by_name.get(own)
            case _:
                return None
        if column is None or not all(isinstance(each, Literal) for each in arguments):
            return None
        texts = [_literal(column, operator, each.value) for each in arguments if isinstance(each, Literal)]
        if not texts or any(text is None for text in texts):
            return None
        left = f"t.{quote(column.name)}"
        if operator == "IN":
            return f"{left} IN ({', '.join(text or '' for text in texts)})"
        return f"{left} {operator} {texts[0]}" if operator in _COMPARISONS and len(texts) == 1 else None

    return pushed


def _decimal(value: Decimal) -> str:
    """The type that Spark gives to a decimal constant."""
    _, digits, exponent = value.as_tuple()
    scale = max(-int(exponent), 0)
    return f"decimal({max(len(digits) + max(int(exponent), 0), scale)},{scale})"


def _literal(column: PostgresColumn, operator: str, value: Any) -> str | None:
    """A constant that the column's values are compared with alike in Spark; None otherwise."""
    if type(value) is int and column.kind in _NUMBERS and comparable("bigint", column.type):
        return f"({value})" if abs(value) < 1 << 63 else None
    if type(value) is Decimal and column.kind == "numeric" and value.is_finite():
        return f"({value:f})" if comparable(_decimal(value), column.type) else None
    # Texts are equal or not everywhere alike, but ordered by each server's own collation.
    if column.kind in _TEXTS and column.exact and type(value) is str and operator in ("=", "IN"):
        return None if "\0" in value else text_literal(value)
    if column.kind == "date" and isinstance(value, date) and not isinstance(value, datetime):
        return f"{text_literal(value.isoformat())}::date"
    return None
