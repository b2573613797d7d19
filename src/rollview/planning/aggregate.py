"""GROUP BY with COUNT, SUM and AVG: which sums to keep per group, and how a reader's columns come of them.

Per group the stored row has the keys, the number of rows, and for every aggregated expression the number
of values that are not NULL and, where SUM or AVG ask for it, their sum. All of them just add up under
deltas (summary deltas), and COUNT, SUM and AVG follow from them, NULL for a group without values included.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from sqlglot import exp

from rollview.algebra.bag import Output
from rollview.algebra.expression import Call, Column, Expression, Literal, call, columns_of
from rollview.algebra.functions.casts import cast_to, cast_type
from rollview.algebra.view import ROWS
from rollview.planning.place import mistake
from rollview.planning.scalar import scalar
from rollview.planning.scope import Scope

_DECIMAL = re.compile(r"decimal\((\d+), *(\d+)\)", re.IGNORECASE)


@dataclass(frozen=True)
class SelectItem:
    """An output column: its name, and its SQL or, where `*` was written, the column itself."""

    name: str
    node: exp.Expr
    column: Column | None = None


@dataclass(frozen=True)
class Summary:
    """The parts of an aggregate: `inputs` is what the block below has to project."""

    inputs: tuple[Output, ...]
    keys: tuple[str, ...]
    measures: tuple[Output, ...]
    output: tuple[Output, ...]


def is_aggregate(select: exp.Select) -> bool:
    """Whether a SELECT groups: it has GROUP BY, or an aggregate function among its outputs."""
    return bool(select.args.get("group")) or any(item.find(exp.AggFunc) for item in select.expressions)


def aggregate(select: exp.Select, items: Iterable[SelectItem], scope: Scope) -> Summary:
    """The aggregate that a SELECT with GROUP BY or aggregate functions stands for."""
    items = tuple(items)
    groups = _Groups(scope, _keys(select.args.get("group"), items, scope))
    output = tuple((item.name, groups.output(item)) for item in items)
    inputs = [(name, key) for key, name in groups.keys.items()]
    inputs += [(name, argument) for argument, name in groups.arguments.items() if argument not in groups.keys]
    return Summary(tuple(inputs), tuple(groups.keys.values()), tuple(groups.measures.items()), output)


class _Groups:
    """Collects measures while outputs are translated, each once."""

    def __init__(self, scope: Scope, keys: Iterable[Expression]) -> None:
        self.scope = scope
        self.keys = {key: f"key_{number}" for number, key in enumerate(dict.fromkeys(keys), start=1)}
        self.arguments: dict[Expression, str] = {}
        self.measures: dict[str, Expression] = {ROWS: Literal(1)}

    def output(self, item: SelectItem) -> Expression:
        """An output column over keys and measures."""
        expression = item.column or scalar(item.node, self.scope, self._measured)
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

    def _measured(self, node: exp.AggFunc) -> Expression:
        """COUNT, SUM or AVG over the measures, which are added where they are new."""
        if isinstance(node, exp.Count) and isinstance(node.this, exp.Star):
            return Column(ROWS)
        argument = scalar(node.this, self.scope)
        if isinstance(node, exp.Count) and isinstance(argument, Literal) and argument.value is not None:
            return Column(ROWS)
        if argument not in self.arguments:
            self.arguments[argument] = self.keys.get(argument, f"arg_{len(self.arguments) + 1}")
        number = list(self.arguments).index(argument) + 1
        value = Column(self.arguments[argument])
        count, total = f"count_{number}", f"sum_{number}"
        self.measures[count] = call("IF", call("IS NULL", value), Literal(0), Literal(1))
        if isinstance(node, exp.Count):
            return Column(count)
        # The sum is kept only where it is read: what COUNT counts need not be a number.
        self.measures[total] = value
        result = Column(total) if isinstance(node, exp.Sum) else self._average(argument, total, count)
        return call("IF", call("=", Column(count), Literal(0)), Literal(None), result)

    def _average(self, argument: Expression, total: str, count: str) -> Expression:
        """Spark's average of decimals has four digits more than they; a quotient has as many as it can."""
        quotient = call("/", Column(total), Column(count))
        kind = self.scope.type_of(argument.name) if isinstance(argument, Column) else ""
        if isinstance(argument, Call):
            kind = cast_type(argument.function) or ""
        decimal = _DECIMAL.fullmatch(kind)
        if decimal is None:
            return quotient
        precision, scale = (min(38, int(digits) + 4) for digits in decimal.groups())
        return call(cast_to(f"DECIMAL({precision},{scale})"), quotient)


def _keys(group: exp.Group | None, items: tuple[SelectItem, ...], scope: Scope) -> list[Expression]:
    if group is None:
        return []
    if group.args.get("all"):
        return [_item_key(item, item.node, scope) for item in items if not item.node.find(exp.AggFunc)]
    return [_key(node, items, scope) for node in group.expressions]


def _key(node: exp.Expr, items: tuple[SelectItem, ...], scope: Scope) -> Expression:
    """A group key: an output's position, a column, an output's name where no column has it, an expression."""
    if isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit():
        position = int(node.name)
        if not 1 <= position <= len(items):
            message = f"GROUP BY {position}: no such output column, the last one is {len(items)}"
            raise mistake(node, message, subject=node.name)
        return _item_key(items[position - 1], node, scope)
    if isinstance(node, exp.Column) and not node.table and not scope.names(node):
        for item in items:
            if item.name.lower() == node.name.lower():
                return _item_key(item, node, scope)
    return scalar(node, scope)


def _item_key(item: SelectItem, node: exp.Expr, scope: Scope) -> Expression:
    if item.node.find(exp.AggFunc):
        message = f"GROUP BY `{item.name}`: an aggregate cannot be a group key"
        raise mistake(node, message, subject=item.name)
    return item.column or scalar(item.node, scope)
