"""Scalar expressions: from the parser's syntax tree to our own small algebra.

Everything is reduced to few functions: BETWEEN to two comparisons, CASE to nested IF, NULLIF to IF, a date
plus or minus an interval to days or months.
`check_supported` has run before, so a class that is missing here cannot arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from decimal import Decimal

from sqlglot import exp

from rollview.algebra.dates import MOVES, Date, Timestamp
from rollview.algebra.expression import (
    Call,
    Column,
    Expression,
    Literal,
    call,
    cast_to,
    cast_type,
    in_spark,
    is_in_spark,
    place_of,
)
from rollview.errors import EvaluationError
from rollview.sql.cast import NULL, cast, is_known_type, literal
from rollview.sql.dialect import DIALECT
from rollview.sql.errors import NodeError, mistake
from rollview.sql.functions import BOOLEAN, FUNCTIONS, OF_THEIR_ARGUMENTS, function_name, is_aggregate
from rollview.sql.grammar import is_read
from rollview.sql.names.scope import Scope

AggregateRule = Callable[[exp.Expr], Expression]
"""Translates an aggregate function or a window, where one is allowed."""

_OPERATORS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
}
_CHAINS: dict[type[exp.Expr], str] = {exp.And: "AND", exp.Or: "OR", exp.DPipe: "||"}
_TRIMS = {"LEADING": "LTRIM", "TRAILING": "RTRIM"}


def condition(node: exp.Expr, scope: Scope) -> Expression:
    """A condition of WHERE or ON; what can be seen not to be one is refused."""
    result = scalar(node, scope)
    if not _may_be_boolean(result):
        message = f"`{node.sql(dialect=DIALECT)}` is not a condition"
        raise mistake(node, message, hint="compare it with something")
    return result


def _may_be_boolean(expression: Expression) -> bool:
    if isinstance(expression, Literal):
        return isinstance(expression.value, bool | None)
    if isinstance(expression, Column):
        return True
    function = expression.function
    if is_in_spark(expression):
        return True
    return function in BOOLEAN or function in OF_THEIR_ARGUMENTS or cast_type(function) == "BOOLEAN"


def scalar(
    node: exp.Expr, scope: Scope, aggregate: AggregateRule | None = None, keys: Container[Expression] = ()
) -> Expression:
    """The expression over the block's columns; aggregate functions become what the rule says.

    Expressions in `keys` stay whole when they are passed to Spark: they may be known where their columns are
    not.
    """
    return _Translation(scope, aggregate, keys).of(node)


class _Translation:
    """One walk over one syntax tree."""

    def __init__(
        self, scope: Scope, aggregate: AggregateRule | None = None, keys: Container[Expression] = ()
    ) -> None:
        self.scope = scope
        self.aggregate = aggregate
        self.keys = keys

    def of(self, node: exp.Expr) -> Expression:
        kind = type(node)
        if is_aggregate(node) or isinstance(node, exp.Window | exp.AggFunc):
            return self._aggregate(node)
        if not is_read(node) or self._is_beyond(node):
            return self._passed(node)
        if kind in (exp.Add, exp.Sub) and (is_interval(node.this) or is_interval(node.expression)):
            return self._interval(node)
        if kind in _OPERATORS:
            return call(_OPERATORS[kind], self.of(node.this), self.of(node.expression))
        if kind in _CHAINS:
            return Call(_CHAINS[kind], tuple(self.of(part) for part in _links(node, kind)))
        if kind in FUNCTIONS:
            function, arguments = FUNCTIONS[kind]
            return self._checked(node, Call(function, tuple(self._arguments(node, arguments))))
        if kind not in _RULES:
            raise mistake(node, f"`{node.sql(dialect=DIALECT)}` is not allowed in an expression")
        return _RULES[kind](self, node)

    def column(self, node: exp.Expr) -> Expression:
        if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
            raise mistake(node, "`*` means all columns and cannot be part of an expression")
        return Column(self.scope.resolve(node).column)

    def negative(self, node: exp.Expr) -> Expression:
        value = self.of(node.this)
        if isinstance(value, Literal) and isinstance(value.value, int | float | Decimal):
            return Literal(-value.value)
        return call("NEGATIVE", value)

    def distinct_from(self, node: exp.Expr) -> Expression:
        return call("NOT", call("<=>", self.of(node.this), self.of(node.expression)))

    def is_(self, node: exp.Expr) -> Expression:
        value, against = self.of(node.this), self.of(node.expression)
        if not isinstance(against, Literal) or not isinstance(against.value, bool | None):
            raise mistake(node.expression, "after IS there must be NULL, TRUE or FALSE")
        result = call("IS NULL", value) if against == NULL else call("<=>", value, against)
        return call("NOT", result) if node.args.get("negate") else result

    def between(self, node: exp.Expr) -> Expression:
        value, low, high = (self.of(node.args[argument]) for argument in ("this", "low", "high"))
        return call("AND", call(">=", value, low), call("<=", value, high))

    def in_(self, node: exp.Expr) -> Expression:
        if not node.expressions:
            raise mistake(node, "IN needs at least one value")
        return call("IN", self.of(node.this), *map(self.of, node.expressions))

    def case(self, node: exp.Expr) -> Expression:
        subject = node.args.get("this")
        result = self._or_null(node, "default")
        for branch in reversed(node.args["ifs"]):
            test = self.of(branch.this)
            if subject is not None:
                test = call("=", self.of(subject), test)
            result = call("IF", test, self.of(branch.args["true"]), result)
        return result

    def if_(self, node: exp.Expr) -> Expression:
        return call("IF", self.of(node.this), self.of(node.args["true"]), self._or_null(node, "false"))

    def null_if(self, node: exp.Expr) -> Expression:
        value = self.of(node.this)
        return call("IF", call("=", value, self.of(node.expression)), NULL, value)

    def like(self, node: exp.Expr) -> Expression:
        result = call("LIKE", self.of(node.this), Literal(node.expression.name))
        return call("NOT", result) if node.args.get("negate") else result

    def cast(self, node: exp.Expr) -> Expression:
        assert isinstance(node, exp.Cast)
        return cast(node, self.of(node.this))

    def to_date(self, node: exp.Expr) -> Expression:
        # The parser puts one around arguments that must be dates; a user's own is marked.
        value = self.of(node.this)
        return call(cast_to("DATE"), value) if node.args.get("safe") else value

    def trim(self, node: exp.Expr) -> Expression:
        return call(_TRIMS.get(str(node.args.get("position")), "TRIM"), self.of(node.this))

    def extract(self, node: exp.Expr) -> Expression:
        assert isinstance(node, exp.Extract)
        return call(extracted_part(node), self.of(node.expression))

    def truncate(self, node: exp.Expr) -> Expression:
        assert isinstance(node, exp.TimestampTrunc)
        return call("DATE_TRUNC", Literal(truncation_unit(node)), self.of(node.this))

    def _interval(self, node: exp.Expr) -> Expression:
        """A date plus or minus an interval; plus goes both ways."""
        if is_interval(node.expression):
            sign = -1 if isinstance(node, exp.Sub) else 1
            return plus_interval(self.of(node.this), node.expression, sign)
        return plus_interval(self.of(node.expression), node.this, 1)

    @staticmethod
    def _checked(node: exp.Expr, result: Call) -> Call:
        """Spark wants to know how many places ROUND leaves before it sees a row."""
        if result.function == "ROUND" and len(result.arguments) == 2:
            places = result.arguments[1]
            if not isinstance(places, Literal) or type(places.value) is not int:
                hint = "write the number of places as an integer"
                raise mistake(
                    node.args["decimals"],
                    "ROUND to a number of places that is not an integer constant",
                    hint=hint,
                )
        return result

    def _arguments(self, node: exp.Expr, names: tuple[str, ...]) -> Iterator[Expression]:
        for name in names:
            part = node.args.get(name)
            if part is not None:
                yield from map(self.of, part if isinstance(part, list) else [part])

    def _aggregate(self, node: exp.Expr) -> Expression:
        if isinstance(node, exp.Count) and node.this is None:
            raise mistake(node, "COUNT of nothing", subject="COUNT", hint="COUNT(*) counts rows")
        if self.aggregate is None:
            if isinstance(node, exp.Window):
                raise mistake(node, "a window function (OVER) is not allowed here")
            name = function_name(node)
            raise mistake(node, f"the aggregate function {name} is not allowed here", subject=name)
        return self.aggregate(node)

    @staticmethod
    def _is_beyond(node: exp.Expr) -> bool:
        """Whether a construct that is read here is used in a way that only Spark knows."""
        if isinstance(node, exp.Cast):
            return bool(node.args.get("safe")) or not is_known_type(node.to)
        if isinstance(node, exp.Like):
            pattern = node.expression
            return not isinstance(pattern, exp.Literal) or not pattern.is_string or "\\" in pattern.name
        if isinstance(node, exp.In):
            return any(isinstance(each, exp.Tuple) for each in node.expressions)
        if isinstance(node, exp.Extract):
            return not extracted_part(node)
        if isinstance(node, exp.TimestampTrunc):
            return not truncation_unit(node)
        if isinstance(node, exp.Add | exp.Sub):
            intervals = [each for each in (node.this, node.expression) if is_interval(each)]
            is_reversed = isinstance(node, exp.Sub) and is_interval(node.this)
            return len(intervals) == 2 or is_reversed or not all(map(is_simple_interval, intervals))
        return isinstance(node, exp.Interval)

    def _passed(self, node: exp.Expr) -> Expression:
        """A call that rollview need not understand goes to Spark as it is, with its columns as arguments."""
        arguments: dict[Expression, int] = {}

        def place(part: exp.Expr) -> exp.Expr:
            if isinstance(part, exp.Query):
                raise mistake(part, "a subquery is not allowed here")
            if (
                isinstance(part, exp.Column)
                or (part is not top and is_aggregate(part))
                or isinstance(part, exp.Window)
            ):
                meaning = self.of(part)
                return exp.Var(this=place_of(arguments.setdefault(meaning, len(arguments))))
            key = self._key(part) if part is not top else None
            if key is not None:
                return exp.Var(this=place_of(arguments.setdefault(key, len(arguments))))
            for argument, value in list(part.args.items()):
                if isinstance(value, exp.Expr):
                    part.set(argument, place(value))
                elif isinstance(value, list):
                    part.set(
                        argument, [place(each) if isinstance(each, exp.Expr) else each for each in value]
                    )
            return part

        top = node.copy()
        top.parent = None
        sql = place(top).sql(dialect=DIALECT)
        return in_spark(f"({sql})" if isinstance(node, exp.Binary | exp.Unary) else sql, *arguments)

    def _key(self, node: exp.Expr) -> Expression | None:
        """The key that a part is; none for all else."""
        if not self.keys or node.find(exp.Column) is None:
            return None
        try:
            meaning = _Translation(self.scope).of(node)
        except NodeError:
            return None
        return meaning if meaning in self.keys else None

    def _or_null(self, node: exp.Expr, argument: str) -> Expression:
        part = node.args.get(argument)
        return NULL if part is None else self.of(part)


_RULES: dict[type[exp.Expr], Callable[[_Translation, exp.Expr], Expression]] = {
    exp.Column: _Translation.column,
    exp.Neg: _Translation.negative,
    exp.NullSafeNEQ: _Translation.distinct_from,
    exp.Is: _Translation.is_,
    exp.Between: _Translation.between,
    exp.In: _Translation.in_,
    exp.Case: _Translation.case,
    exp.If: _Translation.if_,
    exp.Nullif: _Translation.null_if,
    exp.Like: _Translation.like,
    exp.Cast: _Translation.cast,
    exp.TryCast: _Translation.cast,
    exp.TsOrDsToDate: _Translation.to_date,
    exp.Trim: _Translation.trim,
    exp.Extract: _Translation.extract,
    exp.TimestampTrunc: _Translation.truncate,
    exp.Paren: lambda translation, node: translation.of(node.this),
    **dict.fromkeys((exp.Literal, exp.Boolean, exp.Null), lambda _, node: literal(node)),
}


def _links(node: exp.Expr, kind: type[exp.Expr]) -> Iterator[exp.Expr]:
    """The operands of a chain of one associative operator, so that long chains do not become deep trees."""
    waiting = [node]
    while waiting:
        part = waiting.pop()
        inner = part.unnest() if isinstance(part, exp.Paren) else part
        if type(inner) is kind:
            waiting += [inner.expression, inner.this]
        else:
            yield part


_UNITS = {
    "DAY": ("PLUS DAYS", 1),
    "WEEK": ("PLUS DAYS", 7),
    "MONTH": ("PLUS MONTHS", 1),
    "YEAR": ("PLUS MONTHS", 12),
}
_TRUNCATIONS = {
    **dict.fromkeys(("YEAR", "YYYY", "YY"), "YEAR"),
    **dict.fromkeys(("MONTH", "MM", "MON"), "MONTH"),
    **dict.fromkeys(("DAY", "DD"), "DAY"),
    **{unit: unit for unit in ("QUARTER", "WEEK", "HOUR", "MINUTE", "SECOND")},
}
_PARTS = {"YEAR", "QUARTER", "MONTH", "DAY"}


def is_interval(node: exp.Expr) -> bool:
    """Whether an operand is an interval."""
    return isinstance(node.unnest() if isinstance(node, exp.Paren) else node, exp.Interval)


def is_simple_interval(node: exp.Expr) -> bool:
    """Whether an interval is a whole number of days, weeks, months or years."""
    interval = node.unnest() if isinstance(node, exp.Paren) else node
    amount, unit = interval.this, interval.args.get("unit")
    digits = amount.name if isinstance(amount, exp.Literal) else ""
    name = unit.name.upper().removesuffix("S") if isinstance(unit, exp.Var) else ""
    return name in _UNITS and digits.removeprefix("-").isdigit()


def plus_interval(value: Expression, node: exp.Expr, sign: int) -> Expression:
    """A date or timestamp plus (or with sign -1 minus) an interval; a constant date is moved at once."""
    interval = node.unnest() if isinstance(node, exp.Paren) else node
    digits = interval.this.name
    function, step = _UNITS[interval.args["unit"].name.upper().removesuffix("S")]
    if isinstance(value, Literal) and not isinstance(value.value, Date | None):
        message = f"an INTERVAL is added to {value.value!r}, which is not a date"
        raise mistake(interval, message, hint="write DATE '2024-01-31', or CAST it AS DATE")
    result = call(function, value, Literal(sign * step * int(digits)))
    try:
        return _folded(result)
    except EvaluationError as error:
        raise mistake(interval, error.message, subject=error.subject) from None


def _folded(result: Call) -> Expression:
    """The constant it is, if it is one; a timestamp moves by the session's calendar, so it stays a call."""
    value, amount = result.arguments
    if (
        not isinstance(value, Literal)
        or isinstance(value.value, Timestamp)
        or not isinstance(amount, Literal)
    ):
        return result
    return Literal(MOVES[result.function](value.value, amount.value))


def truncation_unit(node: exp.TimestampTrunc) -> str:
    """The unit of DATE_TRUNC; empty if Spark alone knows it."""
    unit = node.args["unit"]
    return _TRUNCATIONS.get(unit.name.upper(), "") if isinstance(unit, exp.Var | exp.Literal) else ""


def extracted_part(node: exp.Extract) -> str:
    """The function that EXTRACT(part FROM …) is; empty if Spark alone knows it."""
    part = node.name.upper().removesuffix("S")
    return part if part in _PARTS else ""
