"""Scalar expressions: conditions and projections that mean the same on every bag.

An expression is a small tree of `Column`, `Literal` and `Call`. The in-memory bag compiles it to a
function of a row; a Spark bag renders it with `to_sql`. The meaning is Spark SQL's with ANSI mode on and UTC
as the session time zone: NULL is unknown, AND and OR follow three-valued logic, division by zero is an error.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from typing import Any, ClassVar

from rollview.algebra.functions import Date, Timestamp, Value, function_named
from rollview.algebra.functions.averages import average_sql, average_type
from rollview.algebra.functions.casts import cast_type
from rollview.algebra.functions.dates import in_utc
from rollview.errors import UnsupportedError

Row = tuple[Any, ...]


class Column:
    """A column of the bag the expression is applied to.

    There is one object per name, so that expressions, by which compiled code is looked up, compare fast.
    """

    __slots__ = ("name",)
    _known: ClassVar[dict[str, Column]] = {}
    name: str

    def __new__(cls, name: str) -> Column:
        known = cls._known.get(name)
        if known is None:
            known = object.__new__(cls)
            known.name = name
            cls._known[name] = known
        return known

    def __reduce__(self) -> tuple[type[Column], tuple[str]]:
        return Column, (self.name,)

    def __repr__(self) -> str:
        return f"Column({self.name!r})"


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """A constant: NULL, a boolean, a number, a text, a date or a timestamp.

    TRUE and 1 are different literals, and so are 1.5 and 1.50, decimals of different types. A timestamp may
    have a zone; without one it means the session's.
    """

    value: bool | int | float | Decimal | str | Date | Timestamp | None

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Literal)
            and type(self.value) is type(other.value)
            and self.value == other.value
            and (type(self.value) is not Decimal or str(self.value) == str(other.value))
        )

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))


@dataclass(frozen=True, slots=True)
class Call:
    """An operator or function applied to arguments.

    `function` is one of `FUNCTIONS`, AND, OR, IF, COALESCE, or a cast, called by its type as in
    `CAST AS DECIMAL(15,2)`; or SQL with places for the arguments, which only Spark can compute (`in_spark`).
    """

    function: str
    arguments: tuple[Expression, ...]
    _hash: int = field(default=0, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Compiled expressions are looked up by the tree, so its hash is computed once, not at every look.
        object.__setattr__(self, "_hash", hash((self.function, self.arguments)))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[type[Call], tuple[str, tuple[Expression, ...]]]:
        # Hashes of strings differ between processes, so the hash must not travel with the object.
        return Call, (self.function, self.arguments)


Expression = Column | Literal | Call
TRUE = Literal(True)

_IN_SPARK = "SQL "
_PLACE = "\x01{}\x01"
EXTRA_KEYS = "\x02"
"""Where an operator's own SQL takes further keys, each with a comma behind it."""


def place_of(number: int) -> str:
    """What stands for an argument in SQL that Spark computes."""
    return _PLACE.format(number)


def in_spark(sql: str, *arguments: Expression) -> Call:
    """SQL that is passed to Spark as it is, `place_of(n)` standing for the n-th argument."""
    return Call(_IN_SPARK + sql, arguments)


def is_in_spark(expression: Expression) -> bool:
    """Whether only Spark can compute the function, whatever its arguments are."""
    return isinstance(expression, Call) and expression.function.startswith(_IN_SPARK)


def with_keys(expression: Expression, keys: tuple[str, ...]) -> Expression:
    """An operator's own SQL with further columns as keys."""
    if not isinstance(expression, Call):
        return expression
    added = "".join(f"{to_sql(Column(key))}, " for key in keys)
    arguments = tuple(with_keys(argument, keys) for argument in expression.arguments)
    return Call(expression.function.replace(EXTRA_KEYS, added), arguments)


def call(function: str, *arguments: Expression) -> Call:
    """A call, written without the tuple."""
    return Call(function, arguments)


def conjunction(conditions: tuple[Expression, ...]) -> Expression:
    """All of the conditions at once; TRUE for none."""
    if not conditions:
        return TRUE
    return conditions[0] if len(conditions) == 1 else Call("AND", conditions)


def conjuncts(expression: Expression) -> tuple[Expression, ...]:
    """The inverse of `conjunction`: the conditions that must all hold."""
    if isinstance(expression, Call) and expression.function == "AND":
        return tuple(part for argument in expression.arguments for part in conjuncts(argument))
    return () if expression == TRUE else (expression,)


def columns_of(expression: Expression) -> Iterator[str]:
    """The names of the columns that an expression reads, with repetitions, in order."""
    if isinstance(expression, Column):
        yield expression.name
    elif isinstance(expression, Call):
        for argument in expression.arguments:
            yield from columns_of(argument)


def rename(expression: Expression, names: Callable[[str], str]) -> Expression:
    """The same expression over other column names."""
    if isinstance(expression, Column):
        return Column(names(expression.name))
    if isinstance(expression, Call):
        return Call(expression.function, tuple(rename(argument, names) for argument in expression.arguments))
    return expression


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


_INFIX = {"=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "||", "AND", "OR", "<=>", "LIKE"}
_INTERVALS = {"PLUS DAYS": "DAY", "PLUS MONTHS": "MONTH"}


def to_sql(expression: Expression, average: Callable[[str, str, str], str] = average_sql) -> str:
    """Spark SQL text of the expression; `average` writes averages of decimals, which are long."""
    if isinstance(expression, Column):
        return "`" + expression.name.replace("`", "``") + "`"
    if isinstance(expression, Literal):
        return _literal_sql(expression.value)
    parts = [to_sql(argument, average) for argument in expression.arguments]
    if is_in_spark(expression):
        return _filled(expression.function.removeprefix(_IN_SPARK), parts)
    if expression.function in _INFIX:
        return "(" + f" {expression.function} ".join(parts) + ")"
    if expression.function == "IS NULL":
        return f"({parts[0]} IS NULL)"
    if expression.function == "IN":
        return f"({parts[0]} IN ({', '.join(parts[1:])}))"
    if expression.function == "NOT":
        return f"(NOT {parts[0]})"
    if expression.function == "COUNT DISTINCT":
        return f"COUNT(DISTINCT {parts[0]})"
    if expression.function in _INTERVALS:
        return f"({parts[0]} + INTERVAL '{parts[1]}' {_INTERVALS[expression.function]})"
    if (kind := cast_type(expression.function)) is not None:
        return f"CAST({parts[0]} AS {kind})"
    if (kind := average_type(expression.function)) is not None:
        return average(kind, *parts)
    return f"{expression.function}({', '.join(parts)})"


def _filled(sql: str, parts: list[str]) -> str:
    pieces = sql.split("\x01")
    pieces[1::2] = [parts[int(number)] for number in pieces[1::2]]
    return "".join(pieces).replace(EXTRA_KEYS, "")


def _literal_sql(value: Value) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"
    if isinstance(value, Decimal):
        return f"{value:f}BD"
    if isinstance(value, Timestamp):
        return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
    if isinstance(value, Date):
        return f"DATE '{value.isoformat()}'"
    return f"{value!r}D" if isinstance(value, float) else str(value)
