"""Formulas of views as the server's SQL, where it computes what Spark computes.

Whole numbers are computed as `numeric`, so that nothing overflows and no writer fails: where Spark would
fail, the view has no value that could be missed. Decimals are exact on both sides as long as Spark's result
has room for all digits. Texts are the same or not, whatever the collation; their order is each server's own.
Dates and timestamps without a zone are ordered alike. Everything else is refused, with its reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal

from rollview.sources.deltas import Applied, Formula, OfGroup, OfTable, Value
from rollview.sources.postgres.connections import text_literal
from rollview.sources.postgres.structure import PostgresColumn

_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
WHOLE = tuple(_DIGITS)
"""The types of whole numbers."""

_DECIMAL = re.compile(r"decimal\((\d+), *(\d+)\)")
_MOST_DIGITS = 38
_MOST_INT, _MOST_BIGINT = (1 << 31) - 1, (1 << 63) - 1
_ORDERED = ("date", "timestamp_ntz")
_TEXT_KINDS = ("text", "varchar")
_CAST = "CAST AS "
_PARTS = {"YEAR": "year", "QUARTER": "quarter", "MONTH": "month", "DAY": "day"}
_NULL, _BOOLEAN, _DOUBLE, _STRING = "void", "boolean", "double", "string"


class NotAlike(Exception):
    """The server does not compute this as Spark does."""


@dataclass(frozen=True)
class Term:
    """SQL text that the server computes, and the Spark type of what it computes."""

    sql: str
    kind: str

    @property
    def is_number(self) -> bool:
        """Whether it is a whole number or a decimal."""
        return self.kind in WHOLE or self.kind.startswith("decimal")

    @property
    def room(self) -> tuple[int, int]:
        """How many digits it may have before the point, and behind it."""
        if found := _DECIMAL.fullmatch(self.kind):
            return int(found[1]) - int(found[2]), int(found[2])
        return _DIGITS[self.kind], 0

    @property
    def stored(self) -> str:
        """The same as a column has it that is kept: whole numbers that were computed have any size."""
        if self.kind in WHOLE:
            return f"({self.sql})::numeric"
        return typed(self)

    @property
    def shown(self) -> str:
        """The same as readers see it."""
        return f"({self.sql})::int8" if self.kind in WHOLE else typed(self)


def typed(term: Term) -> str:
    """The value with the digits that Spark gives it."""
    # Rounded and not cast: a value without room is an error in Spark, and must be none of a writer's.
    return f"round(({term.sql})::numeric, {term.room[1]})" if term.kind.startswith("decimal") else term.sql


def decimal_kind(whole: int, fraction: int) -> str:
    """The decimal type with so many digits; Spark has none with more than 38."""
    if whole + fraction > _MOST_DIGITS:
        raise NotAlike(f"a decimal of {whole + fraction} digits, which Spark rounds,")
    return f"decimal({whole + fraction},{fraction})"


def sum_kind(term: Term) -> str:
    """The type of a sum of such values."""
    if term.kind in WHOLE:
        return "bigint"
    whole, fraction = term.room
    return f"decimal({min(_MOST_DIGITS, whole + fraction + 10)},{fraction})"


Leaf = Callable[[OfTable | OfGroup], Term]


def term_of(formula: Formula, leaf: Leaf) -> Term:
    """The formula as SQL; NotAlike if the server does not compute it as Spark does."""
    if isinstance(formula, OfTable | OfGroup):
        return leaf(formula)
    if isinstance(formula, Value):
        return _constant(formula.value)
    arguments = [term_of(each, leaf) for each in formula.arguments]
    rule = _cast if formula.function.startswith(_CAST) else _RULES.get(formula.function)
    if rule is None:
        raise NotAlike(_name(formula))
    return rule(formula.function, arguments)


def _name(formula: Applied) -> str:
    return formula.function.partition("\x01")[0].removeprefix("SQL ").strip().rstrip("(") or "an expression"


def column_term(column: PostgresColumn, sql: str) -> Term:
    """A column of a table."""
    is_plain = column.type in (*WHOLE, *_ORDERED, _BOOLEAN) or column.type.startswith("decimal")
    is_text = column.type == _STRING and column.kind in _TEXT_KINDS
    if not (is_plain or is_text) or not column.exact:
        raise NotAlike(f"column {column.name}")
    return Term(sql, column.type)


def _constant(value: bool | int | float | Decimal | str | date | None) -> Term:
    match value:
        case None:
            return Term("NULL", _NULL)
        case bool():
            return Term(str(value).lower(), _BOOLEAN)
        case int() if abs(value) <= _MOST_BIGINT:
            return Term(f"({value})", "int" if abs(value) <= _MOST_INT else "bigint")
        case Decimal() if value.is_finite():
            _, digits, exponent = value.as_tuple()
            fraction = max(-int(exponent), 0)
            return Term(f"({value:f})", decimal_kind(max(len(digits) + int(exponent), 1), fraction))
        case str() if "\0" not in value and DOUBLE_TEXT not in value:
            return Term(f"{text_literal(value)}::text", _STRING)
        case date() if not isinstance(value, datetime):
            return Term(f"{text_literal(value.isoformat())}::date", "date")
    raise NotAlike(f"the constant {value!r}")


def _arithmetic(function: str, parts: Sequence[Term]) -> Term:
    left, right = parts
    if not (left.is_number and right.is_number):
        raise NotAlike(f"{function} of a {left.kind} and a {right.kind}")
    sql = f"(({left.sql})::numeric {function} ({right.sql})::numeric)"
    if left.kind in WHOLE and right.kind in WHOLE:
        return Term(sql, max(left.kind, right.kind, key=WHOLE.index))
    (whole, fraction), (other_whole, other_fraction) = left.room, right.room
    if function == "*":
        # Spark counts one digit more than a product can have.
        return Term(sql, decimal_kind(whole + other_whole + 1, fraction + other_fraction))
    return Term(sql, decimal_kind(max(whole, other_whole) + 1, max(fraction, other_fraction)))


def _quotient(_: str, parts: Sequence[Term]) -> Term:
    """Of whole numbers: both become doubles, which are divided alike everywhere."""
    left, right = parts
    if left.kind not in WHOLE or right.kind not in WHOLE:
        raise NotAlike(f"/ of a {left.kind} and a {right.kind}")
    return Term(f"(({left.sql})::float8 / nullif(({right.sql})::float8, 0))", _DOUBLE)


def _average(_: str, parts: Sequence[Term]) -> Term:
    """Of decimals, rounded half up behind a long division in whole numbers."""
    total, number, precision, fraction = (each.sql for each in parts)
    digits, behind = int(precision.strip("()")), int(fraction.strip("()"))
    twice = f"2 * ({number})::numeric"
    quotient = f"div(abs({total}) * 2 * 1e{behind} + ({number})::numeric, nullif({twice}, 0))"
    return Term(f"(sign({total}) * {quotient} * 1e-{behind})", f"decimal({digits},{behind})")


def _average_of_doubles(_: str, parts: Sequence[Term]) -> Term:
    """Of short decimals: Spark divides their unscaled sum as a double, and casts the text of that."""
    total, number, precision, fraction = (each.sql for each in parts)
    digits, behind = int(precision.strip("()")), int(fraction.strip("()"))
    scale = f"1e{behind - 4}"
    quotient = f"(({total}) * {scale})::float8 / nullif(({number})::float8, 0) / {scale}::float8"
    return Term(f"round({DOUBLE_TEXT}({quotient})::numeric, {behind})", f"decimal({digits},{behind})")


DOUBLE_TEXT = "rollview_double_text"
"""Stands for the function that gives the shortest text of a double, whatever the session's settings are."""


def _negative(function: str, parts: Sequence[Term]) -> Term:
    (part,) = parts
    if not part.is_number:
        raise NotAlike(f"{function} of a {part.kind}")
    return Term(f"{'-' if function == 'NEGATIVE' else 'abs'}(({part.sql})::numeric)", part.kind)


def _cast(function: str, parts: Sequence[Term]) -> Term:
    """Of a number to another type of numbers; one that does not fit is an error in Spark."""
    (part,), kind = parts, function.removeprefix(_CAST).lower()
    found = _DECIMAL.fullmatch(kind)
    if not part.is_number or not (found or kind in WHOLE):
        raise NotAlike(f"a cast of a {part.kind} to {kind}")
    digits = int(found[2]) if found else 0
    is_cut = part.kind not in WHOLE and part.room[1] > digits
    # Spark rounds half up to decimals, and cuts to whole numbers.
    shortened = f"{'round' if found else 'trunc'}(({part.sql})::numeric, {digits})"
    return Term(shortened if is_cut else f"({part.sql})::numeric", kind)


def _check_comparable(parts: Sequence[Term], is_ordered: bool) -> None:
    kinds = {"number" if each.is_number else each.kind for each in parts if each.kind != _NULL}
    if len(kinds) > 1:
        raise NotAlike(f"a comparison of a {' and a '.join(sorted(each.kind for each in parts))}")
    (kind,) = kinds or {"number"}
    if kind == "number":
        rooms = [each.room for each in parts if each.kind != _NULL]
        decimal_kind(max((r[0] for r in rooms), default=0), max((r[1] for r in rooms), default=0))
    elif is_ordered and kind not in _ORDERED:
        raise NotAlike(f"the order of values that are a {kind}")
    elif kind == _DOUBLE:
        raise NotAlike("a comparison of doubles")


def _compared(term: Term) -> str:
    return f'({term.sql}) COLLATE "C"' if term.kind == _STRING else f"({term.sql})"


def _comparison(function: str, parts: Sequence[Term]) -> Term:
    left, right = parts
    _check_comparable(parts, function not in ("=", "<>", "<=>"))
    operator = "IS NOT DISTINCT FROM" if function == "<=>" else function
    return Term(f"({_compared(left)} {operator} {_compared(right)})", _BOOLEAN)


def _membership(_: str, parts: Sequence[Term]) -> Term:
    _check_comparable(parts, is_ordered=False)
    first, *others = map(_compared, parts)
    return Term(f"({first} IN ({', '.join(others)}))", _BOOLEAN)


def _check_conditions(function: str, parts: Sequence[Term]) -> None:
    for each in parts:
        if each.kind not in (_BOOLEAN, _NULL):
            raise NotAlike(f"{function} of a {each.kind}")


def _logic(function: str, parts: Sequence[Term]) -> Term:
    _check_conditions(function, parts)
    if function == "NOT":
        return Term(f"(NOT {parts[0].sql})", _BOOLEAN)
    return Term("(" + f" {function} ".join(each.sql for each in parts) + ")", _BOOLEAN)


def _is_null(_: str, parts: Sequence[Term]) -> Term:
    return Term(f"(({parts[0].sql}) IS NULL)", _BOOLEAN)


def _common(parts: Sequence[Term]) -> str:
    """The type that has room for all of them."""
    kinds = dict.fromkeys(each.kind for each in parts if each.kind != _NULL)
    if len(kinds) <= 1:
        return next(iter(kinds), _NULL)
    if all(kind in WHOLE for kind in kinds):
        return max(kinds, key=WHOLE.index)
    numbers = [each for each in parts if each.is_number]
    if len(numbers) < sum(each.kind != _NULL for each in parts):
        raise NotAlike(f"a value that is a {' or a '.join(kinds)}")
    return decimal_kind(max(each.room[0] for each in numbers), max(each.room[1] for each in numbers))


def _choice(_: str, parts: Sequence[Term]) -> Term:
    condition, *values = parts
    _check_conditions("IF", [condition])
    kind = _common(values)
    then, otherwise = (_one_type(each, kind) for each in values)
    return Term(f"(CASE WHEN {condition.sql} THEN {then} ELSE {otherwise} END)", kind)


def _first_known(_: str, parts: Sequence[Term]) -> Term:
    kind = _common(parts)
    return Term(f"coalesce({', '.join(_one_type(each, kind) for each in parts)})", kind)


def _one_type(term: Term, kind: str) -> str:
    return f"({term.sql})::numeric" if term.is_number and kind != term.kind else term.sql


def _joined_texts(function: str, parts: Sequence[Term]) -> Term:
    if any(each.kind != _STRING for each in parts):
        raise NotAlike(f"{function} of values that are no texts")
    return Term("((" + " || ".join(f"({each.sql})" for each in parts) + ') COLLATE "C")', _STRING)


def _part_of_date(function: str, parts: Sequence[Term]) -> Term:
    (part,) = parts
    if part.kind not in _ORDERED:
        raise NotAlike(f"{function} of a {part.kind}")
    return Term(f"extract({_PARTS[function]} from ({part.sql}))::int", "int")


_RULES: dict[str, Callable[[str, Sequence[Term]], Term]] = {
    **dict.fromkeys(("+", "-", "*"), _arithmetic),
    **dict.fromkeys(("=", "<>", "<", "<=", ">", ">=", "<=>"), _comparison),
    **dict.fromkeys(("AND", "OR", "NOT"), _logic),
    **dict.fromkeys(("NEGATIVE", "ABS"), _negative),
    **dict.fromkeys(_PARTS, _part_of_date),
    "/": _quotient,
    "AVERAGE": _average,
    "AVERAGE OF DOUBLES": _average_of_doubles,
    "IN": _membership,
    "IS NULL": _is_null,
    "IF": _choice,
    "COALESCE": _first_known,
    "||": _joined_texts,
}
