"""Scalar expressions: conditions and projections that mean the same on every bag.

An expression is a small tree of `Column`, `Literal` and `Call`. The in-memory bag compiles it to a
function of a row; Spark gets it as text (`to_sql`). The meaning is Spark SQL's with ANSI mode on and UTC
as the session time zone: NULL is unknown, AND and OR follow three-valued logic, division by zero is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, ClassVar

from rollview.algebra.averages import average_sql, average_type
from rollview.algebra.dates import Date, Timestamp, Value

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

    `function` is one that bags in memory know, AND, OR, IF, COALESCE, or a cast, called by its type as in
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
_IN_ORDER = "IN ORDER"
_PLACE = "\x01{}\x01"
EXTRA_KEYS = "\x02"
"""Where an operator's own SQL takes further keys, each with a comma behind it."""


def place_of(number: int) -> str:
    """The placeholder of an argument in SQL that Spark computes."""
    return _PLACE.format(number)


def in_spark(sql: str, *arguments: Expression) -> Call:
    """SQL that is passed to Spark as it is, `place_of(n)` standing for the n-th argument."""
    return Call(_IN_SPARK + sql, arguments)


def is_in_spark(expression: Expression) -> bool:
    """Whether only Spark can compute the function, whatever its arguments are."""
    return isinstance(expression, Call) and expression.function.startswith(_IN_SPARK)


def in_order(whole: Expression, bare: Expression, condition: Expression, *distinct: Expression) -> Call:
    """An aggregate whose value depends on the order of rows, as sums of floating-point numbers do.

    `whole` is its SQL, `bare` the same without DISTINCT and FILTER, `condition` what FILTER says, and
    `distinct` what DISTINCT takes for equal. Spark computes it over rows in an order of their own, so that
    the same rows give the same value, bit by bit, however they are partitioned and whatever is computed
    beside it.
    """
    return Call(_IN_ORDER, (whole, bare, condition, *distinct))


def calls_in_order(expression: Expression) -> Iterator[Call]:
    """Those inside an expression."""
    if isinstance(expression, Call):
        if expression.function == _IN_ORDER:
            yield expression
        else:
            for argument in expression.arguments:
                yield from calls_in_order(argument)


def replaced(expression: Expression, others: Mapping[Call, Expression]) -> Expression:
    """The expression with others in place of some calls."""
    if not isinstance(expression, Call):
        return expression
    if expression in others:
        return others[expression]
    return Call(expression.function, tuple(replaced(argument, others) for argument in expression.arguments))


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


_CAST = "CAST AS "


def cast_to(kind: str) -> str:
    """The name of the function that casts to a type, such as `DECIMAL(15,2)`."""
    return _CAST + kind


def cast_type(function: str) -> str | None:
    """The type that a function of that name casts to; None for all other functions."""
    return function.removeprefix(_CAST) if function.startswith(_CAST) else None


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
    if expression.function == _IN_ORDER:
        return parts[0]
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
    if average_type(expression.function) is not None:
        return average(expression.function, *parts)
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
