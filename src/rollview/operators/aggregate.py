"""GROUP BY with COUNT, SUM and AVG: groups whose sums are kept, and the reader's columns over them.

Per group the stored row has the keys, the number of rows, and for every aggregated expression the number of
values that are not NULL and, where SUM or AVG ask for it, their sum. All of them just add up under deltas
(summary deltas), and COUNT, SUM and AVG follow from them, NULL for a group without values included.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from sqlglot import exp

from rollview.algebra.bag import Bag, Output, keep
from rollview.algebra.expression import Call, Column, Expression, Literal, call, columns_of, to_sql
from rollview.algebra.functions.averages import MOST_DIGITS, average_of
from rollview.algebra.node import Node
from rollview.algebra.text import facts, plain_sql, plain_sql_of
from rollview.operators.block import sum_of
from rollview.operators.translation import SelectItem, Translation
from rollview.sql.grammar import Syntax
from rollview.sql.place import mistake, refusal
from rollview.sql.scalar import scalar
from rollview.sql.scope import Scope

B = TypeVar("B", bound=Bag)

ROWS = "_rows"
"""The measure that counts the rows of a group."""

_SUM = "sum_"
_DECIMAL = re.compile(r"decimal\((\d+), *(\d+)\)", re.IGNORECASE)


@dataclass(frozen=True)
class Aggregate(Node):
    """Groups with sums: `keys` and `measures` are stored, `output` is what a reader sees of them.

    The first measure is always `_rows`; a group exists while it is not zero. Without keys there is one group,
    which always exists.
    """

    input: Node
    keys: tuple[str, ...]
    measures: tuple[Output, ...]
    output: tuple[Output, ...]

    name: ClassVar[str] = "aggregate"
    syntax: ClassVar[Syntax] = {
        exp.Select: ("group",),
        exp.Group: ("expressions", "all"),
        exp.Count: ("this", "big_int"),
        exp.Sum: ("this",),
        exp.Avg: ("this",),
    }

    @classmethod
    def claims(cls, query: exp.Expr) -> bool:
        """A SELECT that has GROUP BY, or an aggregate function among its outputs."""
        if not isinstance(query, exp.Select):
            return False
        return bool(query.args.get("group")) or any(item.find(exp.AggFunc) for item in query.expressions)

    @classmethod
    def translate(cls, query: exp.Expr, translation: Translation) -> Aggregate:
        """The groups of a SELECT; what it selects from becomes blocks that project keys and arguments."""
        assert isinstance(query, exp.Select)
        scope, conditions, drafts = translation.source(query)
        items = tuple(translation.items(query, scope))
        groups = _Groups(translation, scope, _keys(query.args.get("group"), items, scope))
        output = tuple((item.name, groups.output(item)) for item in items)
        below = sum_of([draft.above(conditions, groups.inputs()) for draft in drafts])
        return cls(below, tuple(groups.keys.values()), tuple(groups.measures.items()), output)

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The one below."""
        return (self.input,)

    @property
    def output_columns(self) -> tuple[str, ...]:
        """The names of the columns that a reader sees."""
        return tuple(name for name, _ in self.output)

    @property
    def state_columns(self) -> tuple[str, ...]:
        """Keys and measures."""
        return (*self.keys, *(name for name, _ in self.measures))

    @property
    def key(self) -> tuple[str, ...]:
        """The group's keys; none for a single group."""
        return self.keys

    @property
    def shown(self) -> tuple[Output, ...]:
        """Each group is one row."""
        return self.output

    def origins(self, column: str) -> tuple[str, ...] | None:
        """A key of the groups: what has another key is in other groups."""
        expression = dict(self.output)[column]
        is_key = isinstance(expression, Column) and expression.name in self.keys
        return (expression.name,) if isinstance(expression, Column) and is_key else None

    @property
    def state_types(self) -> Mapping[str, str]:
        """A measure has the type that Spark gives to SUM, which is wider than its argument."""
        return {name: f"sum({to_sql(expression)})" for name, expression in self.measures}

    def refusal(self, types: Mapping[str, str]) -> tuple[str, str]:
        """Sums of floating-point numbers depend on the order of addition, so no delta keeps them exact."""
        for name, kind in types.items():
            if name.startswith(_SUM) and kind in ("double", "float"):
                hint = "sum a decimal instead: SUM(CAST(x AS DECIMAL(18, 2)))"
                return f"SUM or AVG of a {kind} cannot be maintained exactly", hint
        return "", ""

    def absorb(self, position: int, rows: B, *extra: str) -> B:
        """A summary delta: sums per group."""
        assert position == 0
        return rows.summarize((*self.keys, *extra), self.measures)

    def present(self, state: B, *extra: str) -> B:
        """The reader's columns of each group."""
        return state.project((*self.output, *keep(extra)))

    def net_effect(self, rows: B, *extra: str) -> B:
        """Measures added up per group; a group whose number of rows stays may still change its sums."""
        return rows.summarize((*self.keys, *extra), self._sums)

    def existing(self, net: B) -> B:
        """Groups that have rows; a single group is there even without."""
        return net.select(call("<>", Column(ROWS), Literal(0))) if self.keys else net

    def state_from(self, inputs: Sequence[B]) -> B:
        """The groups of complete rows: all of them have rows, and none occurs twice."""
        return self.absorb(0, inputs[0])

    @property
    def _sums(self) -> list[Output]:
        return [(name, Column(name)) for name, _ in self.measures]

    def render(self, place: str = "") -> Iterator[str]:
        """Keys, measures and outputs, then the input."""
        yield f"{self.name}{place}"
        yield from facts("keys", self.keys or ["none: one group for all rows"])
        yield from facts(
            "measures", [f"{name} = SUM({plain_sql(measure)})" for name, measure in self.measures]
        )
        yield from facts("output", plain_sql_of(self.output))
        yield from self.input.render()

    def explain(self) -> str:
        """Groups are kept by adding."""
        return "one row per group with its sums; a change is added to its group, and no row is read again"


class _Groups:
    """Collects measures while outputs are translated, each once."""

    def __init__(self, translation: Translation, scope: Scope, keys: Iterable[Expression]) -> None:
        self.translation = translation
        self.scope = scope
        self.keys = {key: f"key_{number}" for number, key in enumerate(dict.fromkeys(keys), start=1)}
        self.arguments: dict[Expression, str] = {}
        self.measures: dict[str, Expression] = {ROWS: Literal(1)}

    def inputs(self) -> list[Output]:
        """What the blocks below have to project: keys and arguments."""
        arguments = [(name, each) for each, name in self.arguments.items() if each not in self.keys]
        return [*((name, key) for key, name in self.keys.items()), *arguments]

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
        count, total = f"count_{number}", f"{_SUM}{number}"
        self.measures[count] = call("IF", call("IS NULL", value), Literal(0), Literal(1))
        if isinstance(node, exp.Count):
            return Column(count)
        # The sum is kept only where it is read: what COUNT counts need not be a number.
        self.measures[total] = value
        result = Column(total) if isinstance(node, exp.Sum) else self._average(node, argument, total, count)
        return call("IF", call("=", Column(count), Literal(0)), Literal(None), result)

    def _average(self, node: exp.AggFunc, argument: Expression, total: str, count: str) -> Expression:
        """An average of decimals has four digits more than they; all others are quotients."""
        decimal = _DECIMAL.fullmatch(self.translation.type_of(argument, self.scope.types()))
        if decimal is None:
            return call("/", Column(total), Column(count))
        precision, scale = map(int, decimal.groups())
        if scale > MOST_DIGITS:
            construct = f"AVG of decimals with more than {MOST_DIGITS} digits behind the point"
            raise refusal(node, construct, hint=f"AVG(CAST(x AS DECIMAL(38,{MOST_DIGITS})))")
        return call(average_of(precision, scale), Column(total), Column(count))


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
