"""Scalar expressions: from the parser's syntax tree to our own small algebra.

Everything is reduced to few functions: BETWEEN to two comparisons, CASE to nested IF, IS NOT NULL to NOT.
`check_supported` has run before, so a class that is missing here cannot arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal

from sqlglot import exp

from rollview.algebra.expression import Call, Column, Expression, Literal, call
from rollview.planning.literal import NULL, literal
from rollview.planning.place import DIALECT, mistake
from rollview.planning.scope import Scope

AggregateRule = Callable[[exp.AggFunc], Expression]
"""What an aggregate function becomes, where one is allowed."""

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
_FUNCTIONS: dict[type[exp.Expr], str] = {
    exp.Not: "NOT",
    exp.Abs: "ABS",
    exp.Upper: "UPPER",
    exp.Lower: "LOWER",
    exp.Length: "LENGTH",
}
_NOT_BOOLEAN = {"+", "-", "*", "/", "%", "NEGATIVE", "||", "ABS", "UPPER", "LOWER", "LENGTH"}


def condition(node: exp.Expr, scope: Scope) -> Expression:
    """A condition of WHERE or ON; what can be seen not to be one is refused."""
    result = scalar(node, scope)
    constant = isinstance(result, Literal) and not isinstance(result.value, bool | None)
    if constant or (isinstance(result, Call) and result.function in _NOT_BOOLEAN):
        message = f"`{node.sql(dialect=DIALECT)}` is not a condition"
        raise mistake(node, message, hint="compare it with something")
    return result


def scalar(node: exp.Expr, scope: Scope, aggregate: AggregateRule | None = None) -> Expression:
    """The expression over the block's columns; aggregate functions become what the rule says."""
    return _Translation(scope, aggregate).of(node)


class _Translation:
    """One walk over one syntax tree."""

    def __init__(self, scope: Scope, aggregate: AggregateRule | None) -> None:
        self.scope = scope
        self.aggregate = aggregate

    def of(self, node: exp.Expr) -> Expression:
        kind = type(node)
        if kind in _OPERATORS:
            return call(_OPERATORS[kind], self.of(node.this), self.of(node.expression))
        if kind in _CHAINS:
            return Call(_CHAINS[kind], tuple(self.of(part) for part in _links(node, kind)))
        if kind in _FUNCTIONS:
            return call(_FUNCTIONS[kind], self.of(node.this))
        if isinstance(node, exp.AggFunc):
            return self._aggregate(node)
        if kind not in _RULES:
            raise mistake(node, f"`{node.sql(dialect=DIALECT)}` cannot stand in an expression")
        return _RULES[kind](self, node)

    def column(self, node: exp.Expr) -> Expression:
        if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
            raise mistake(node, "`*` stands for columns and cannot be part of an expression")
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

    def coalesce(self, node: exp.Expr) -> Expression:
        return call("COALESCE", self.of(node.this), *map(self.of, node.expressions))

    def null_if(self, node: exp.Expr) -> Expression:
        value = self.of(node.this)
        return call("IF", call("=", value, self.of(node.expression)), NULL, value)

    def concat(self, node: exp.Expr) -> Expression:
        return call("||", *map(self.of, node.expressions))

    def _aggregate(self, node: exp.AggFunc) -> Expression:
        if self.aggregate is None:
            name = node.sql_name()
            raise mistake(node, f"the aggregate function {name} is not allowed here", thing=name)
        return self.aggregate(node)

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
    exp.Coalesce: _Translation.coalesce,
    exp.Nullif: _Translation.null_if,
    exp.Concat: _Translation.concat,
    exp.Paren: lambda translation, node: translation.of(node.this),
    **dict.fromkeys((exp.Literal, exp.Boolean, exp.Null, exp.TryCast), lambda _, node: literal(node)),
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
