"""The outputs of a grouped SELECT, translated: keys, and what has to be known of each group besides.

Two ways: sums that add up under deltas (`SumGroups`), or the values themselves (`ValueGroups`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from sqlglot import exp

from rollview.algebra.averages import MOST_DIGITS, average_of
from rollview.algebra.bag import Output
from rollview.algebra.derivation import ROWS
from rollview.algebra.expression import (
    TRUE,
    Call,
    Column,
    Expression,
    Literal,
    call,
    columns_of,
    in_order,
    in_spark,
    place_of,
)
from rollview.operators.grouped_values import REAL
from rollview.operators.translation import SelectItem, Translation
from rollview.sql.dialect import DIALECT
from rollview.sql.errors import beyond, mistake, refusal
from rollview.sql.functions import function_name, is_aggregate
from rollview.sql.names.scope import Scope
from rollview.sql.scalar import scalar

SUM = "sum_"
_DECIMAL = re.compile(r"decimal\((\d+), *(\d+)\)")
_FLOATING = ("double", "float")


_PLAIN = {"MIN", "MAX", "COUNT", "COUNT DISTINCT", "SUM"}
"""Aggregates that are not passed to Spark as text: bags in memory know them as well."""


class SumGroups:
    """Collects measures while outputs are translated, each once."""

    def __init__(self, translation: Translation, scope: Scope, keys: Iterable[Expression]) -> None:
        self.translation = translation
        self.scope = scope
        self.keys = {key: f"key_{number}" for number, key in enumerate(dict.fromkeys(keys), start=1)}
        self.arguments: dict[Expression, str] = {}
        self.measures: dict[str, Expression] = {ROWS: Literal(1)}

    def inputs(self) -> list[Output]:
        """The expressions that the blocks below project: keys and arguments."""
        arguments = [(name, each) for each, name in self.arguments.items() if each not in self.keys]
        return [*((name, key) for key, name in self.keys.items()), *arguments]

    def output(self, item: SelectItem) -> Expression:
        """An output column over keys and measures."""
        expression = item.column or scalar(item.node, self.scope, self._measured, self.keys)
        result = self._over_keys(expression)
        stored = {*self.keys.values(), *self.measures}
        for name in columns_of(result):
            if name not in stored:
                message = f"`{name}` is neither grouped nor aggregated"
                hint = "add it to GROUP BY, or use it inside COUNT, SUM or AVG"
                raise mistake(item.node, message, subject=name, hint=hint)
        return result

    def _over_keys(self, expression: Expression) -> Expression:
        """Replaces grouped expressions by their keys, the largest first; a constant is what it is."""
        if isinstance(expression, Literal):
            return expression
        if expression in self.keys:
            return Column(self.keys[expression])
        if isinstance(expression, Call):
            return Call(expression.function, tuple(map(self._over_keys, expression.arguments)))
        return expression

    def is_sum(self, node: exp.Expr) -> bool:
        """Whether an aggregate is one of those that just add up."""
        if isinstance(node, exp.Filter):
            return self.is_sum(node.this)
        if isinstance(node, exp.Count):
            return not isinstance(node.this, exp.Distinct) and not node.expressions
        if not isinstance(node, exp.Sum | exp.Avg) or isinstance(node.this, exp.Distinct):
            return False
        kind = self._type_of(scalar(node.this, self.scope))
        decimal = _DECIMAL.fullmatch(kind)
        too_long = isinstance(node, exp.Avg) and decimal is not None and int(decimal[2]) > MOST_DIGITS
        return kind not in _FLOATING and not kind.startswith("interval") and not too_long

    def _type_of(self, expression: Expression) -> str:
        """The type of an expression over what the SELECT selects from, in small letters."""
        return self.translation.type_of(expression, self.scope.types()).lower()

    def _argument(self, node: exp.Expr) -> tuple[exp.Expr, Expression]:
        """The function, and what it is applied to; what a FILTER leaves out counts as NULL."""
        if isinstance(node, exp.Filter):
            function, argument = self._argument(node.this)
            kept = scalar(node.expression.this, self.scope)
            return function, call("IF", kept, argument, Literal(None))
        if isinstance(node.this, exp.Star):
            return node, Literal(1)
        return node, scalar(node.this, self.scope)

    def _measured(self, node: exp.Expr) -> Expression:
        """COUNT, SUM or AVG over the measures, which are added where they are new."""
        node, argument = self._argument(node)
        if isinstance(node, exp.Count) and isinstance(argument, Literal) and argument.value is not None:
            return Column(ROWS)
        if argument not in self.arguments:
            self.arguments[argument] = self.keys.get(argument, f"arg_{len(self.arguments) + 1}")
        number = list(self.arguments).index(argument) + 1
        value = Column(self.arguments[argument])
        count, total = f"count_{number}", f"{SUM}{number}"
        self.measures[count] = call("IF", call("IS NULL", value), Literal(0), Literal(1))
        if isinstance(node, exp.Count):
            return Column(count)
        # The sum is kept only where it is read: what COUNT counts need not be a number.
        self.measures[total] = value
        if isinstance(node, exp.Avg):
            return self._average(node, argument, Column(total), Column(count))
        return call("IF", call("=", Column(count), Literal(0)), Literal(None), Column(total))

    def _average(
        self, node: exp.Expr, argument: Expression, total: Expression, count: Expression
    ) -> Expression:
        """An average of decimals has four digits more than they; all others are quotients."""
        quotient = self._quotient(node, argument, total, count)
        return call("IF", call("=", count, Literal(0)), Literal(None), quotient)

    def _quotient(
        self, node: exp.Expr, argument: Expression, total: Expression, count: Expression
    ) -> Expression:
        decimal = _DECIMAL.fullmatch(self._type_of(argument))
        if decimal is None:
            return call("/", total, count)
        precision, scale = map(int, decimal.groups())
        if scale > MOST_DIGITS:
            construct = f"AVG of decimals with more than {MOST_DIGITS} digits behind the point"
            raise beyond(node, construct, hint=f"AVG(CAST(x AS DECIMAL(38,{MOST_DIGITS})))")
        return call(average_of(precision, scale), total, count)


class ValueGroups(SumGroups):
    """The same, where the values of a group are kept."""

    def values(self) -> tuple[str, ...]:
        """The columns that are kept besides the keys."""
        keys = set(self.keys.values())
        return tuple(name for name in dict.fromkeys(self.arguments.values()) if name not in keys)

    def output(self, item: SelectItem) -> Expression:
        """An output column over keys and aggregates of values."""
        expression = item.column or scalar(item.node, self.scope, self._measured, self.keys)
        result = self._over_keys(expression)
        stored = {*self.keys.values(), *self.values(), REAL}
        for name in columns_of(result):
            if name not in stored:
                message = f"`{name}` is neither grouped nor aggregated"
                hint = "add it to GROUP BY, or use it inside an aggregate function"
                raise mistake(item.node, message, subject=name, hint=hint)
        return result

    def _measured(self, node: exp.Expr) -> Expression:
        """The function over stored values."""
        check_order(node)
        plain = self._plain(node)
        if plain is not None:
            return plain
        arguments: dict[Expression, int] = {}

        def place(part: exp.Expr) -> exp.Expr:
            if isinstance(part, _AROUND_VALUES) or is_aggregate(part):
                for argument, value in list(part.args.items()):
                    if isinstance(value, exp.Expr):
                        part.set(argument, place(value))
                    elif isinstance(value, list):
                        part.set(
                            argument, [place(each) if isinstance(each, exp.Expr) else each for each in value]
                        )
                return part
            if part.find(exp.Column) is None:
                return part
            meaning = Column(self._stored(scalar(part, self.scope)))
            return exp.Var(this=place_of(arguments.setdefault(meaning, len(arguments))))

        written = node.copy()
        written.parent = None
        # ANY as a function is written like the quantifier that it is not.
        written = written.transform(
            lambda part: exp.LogicalOr(this=part.this.unnest()) if isinstance(part, exp.Any) else part
        )
        placed = place(written)
        function = placed.this if isinstance(placed, exp.Filter) else placed
        conditions = [placed.expression.this.sql(dialect=DIALECT)] if isinstance(placed, exp.Filter) else []
        if not self.keys:
            # The row that keeps a single group there is none of its rows.
            arguments.setdefault(Column(REAL), len(arguments))
            conditions.append(f"{place_of(arguments[Column(REAL)])} IS NOT NULL")
        kept, sql = " AND ".join(conditions), function.sql(dialect=DIALECT)
        whole = in_spark(f"{sql} FILTER (WHERE {kept})" if kept else sql, *arguments)
        if not depends_on_order(node, lambda value: self._type_of(scalar(value, self.scope))):
            return whole
        equal = function.this.expressions if isinstance(function.this, exp.Distinct) else ()
        bare = sql.replace("(DISTINCT ", "(", 1) if equal else sql
        condition = in_spark(kept, *arguments) if kept else TRUE
        distinct = [in_spark(each.sql(dialect=DIALECT), *arguments) for each in equal]
        return in_order(whole, in_spark(bare, *arguments), condition, *distinct)

    def _plain(self, node: exp.Expr) -> Expression | None:
        """Functions that bags in memory know as well: they leave NULL out, which a FILTER makes use of."""
        kept = scalar(node.expression.this, self.scope) if isinstance(node, exp.Filter) else None
        function = node.this if isinstance(node, exp.Filter) else node
        argument, name = function.this, function_name(function).upper()
        if isinstance(function, exp.Count) and isinstance(argument, exp.Distinct):
            if len(argument.expressions) != 1:
                return None
            argument, name = argument.expressions[0], "COUNT DISTINCT"
        is_average = isinstance(function, exp.Avg)
        if not (name in _PLAIN or is_average) or function.expressions:
            return None
        if isinstance(argument, exp.Distinct):
            return None
        if isinstance(function, exp.Sum | exp.Avg) and not self.is_sum(function):
            # Sums of floating-point numbers depend on the order.
            return None
        is_star = isinstance(argument, exp.Star)
        meaning = Literal(1) if is_star else scalar(argument, self.scope)
        if kept is not None:
            meaning = call("IF", kept, meaning, Literal(None))
        elif is_star:
            return call(name, meaning if self.keys else Column(REAL))
        if isinstance(meaning, Literal):
            return None
        value = Column(self._stored(meaning))
        if is_average:
            return self._average(node, meaning, call("SUM", value), call("COUNT", value))
        return call(name, value)

    def _stored(self, argument: Expression) -> str:
        """The column that holds an argument."""
        if argument not in self.arguments:
            self.arguments[argument] = self.keys.get(argument, f"arg_{len(self.arguments) + 1}")
        return self.arguments[argument]


_LISTS = (exp.ArrayAgg, exp.ArrayUniqueAgg)
IN_ORDER = (*_LISTS, exp.First, exp.Last, exp.AnyValue, exp.FirstValue, exp.LastValue, exp.GroupConcat)
"""Functions that depend on the order of rows."""
_AROUND_VALUES = (
    *(exp.Filter, exp.Where, exp.WithinGroup, exp.Order, exp.Ordered, exp.Distinct),
    *(exp.IgnoreNulls, exp.RespectNulls),
)


_OF_ANY_ORDER = {
    *("MIN", "MAX", "COUNT", "COUNT_IF", "LOGICAL_AND", "LOGICAL_OR", "ANY", "SOME", "EVERY"),
    *("BITWISE_AND_AGG", "BITWISE_OR_AGG", "BITWISE_XOR_AGG", "BIT_AND", "BIT_OR", "BIT_XOR"),
    *("ARG_MAX", "ARG_MIN", "MAX_BY", "MIN_BY", "MODE", "REGR_COUNT", "GROUPING", "GROUPING_ID"),
    *("MEDIAN", "QUANTILE", "PERCENTILE", "PERCENTILE_CONT", "PERCENTILE_DISC", "APPROX_DISTINCT"),
    *("ARRAY_AGG", "ARRAY_UNIQUE_AGG", "LISTAGG", "STRING_AGG", "GROUP_CONCAT", "COUNT_MIN_SKETCH"),
    *("BITMAP_AND_AGG", "BITMAP_OR_AGG", "BITMAP_CONSTRUCT_AGG", "SCHEMA_OF_JSON_AGG"),
}
"""Aggregate functions that give the same value of the same rows in any order; lists are sorted by others."""


def depends_on_order(node: exp.Expr, type_of: Callable[[exp.Expr], str]) -> bool:
    """Whether an aggregate may differ, be it in the last digit, when the same rows come in another order.

    Sums of floating-point numbers do, and all that is made of them: averages, moments and regressions are, of
    other numbers too. So do sketches, and sums that are NULL once they overflow.
    """
    inner = node.this if isinstance(node, exp.Filter) else node
    if isinstance(inner, exp.WithinGroup) or function_name(inner).upper() in _OF_ANY_ORDER:
        return False
    if isinstance(inner, exp.Sum):
        values = inner.this.expressions if isinstance(inner.this, exp.Distinct) else [inner.this]
        return any(type_of(value) in _FLOATING for value in values)
    return True


def check_order(node: exp.Expr) -> None:
    """Refuses functions that depend on the order of rows, unless something orders them."""
    inner, is_ordered = node, False
    while isinstance(inner, exp.Filter | exp.WithinGroup):
        is_ordered |= isinstance(inner, exp.WithinGroup)
        inner = inner.this
    is_text = function_name(inner).upper() in ("LISTAGG", "STRING_AGG")
    if is_ordered or not (is_text or isinstance(inner, IN_ORDER)) or inner.find(exp.Order):
        return
    around = node.parent
    if (
        around is not None
        and function_name(around).upper() in ("SORT_ARRAY", "ARRAY_SORT")
        and isinstance(inner, _LISTS)
    ):
        return
    name = inner.sql(dialect=DIALECT).partition("(")[0].upper()
    hint = f"{name} gives another result whenever rows come in another order; "
    other = "write WITHIN GROUP (ORDER BY …) behind it" if is_text else "use MIN or MAX, or max_by"
    hint += "write sort_array around it" if isinstance(inner, _LISTS) else other
    raise refusal(node, f"{name} without an order", hint=hint)
