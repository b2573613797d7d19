"""GROUP BY with COUNT, SUM and AVG: groups whose sums are kept, and the reader's columns over them.

Per group the stored row has the keys, the number of rows, and for every aggregated expression the number of
values that are not NULL and, where SUM or AVG ask for it, their sum. All of them just add up under deltas
(summary deltas), and COUNT, SUM and AVG follow from them, NULL for a group without values included.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

from sqlglot import exp

from rollview.algebra.bag import Bag, Output, keep
from rollview.algebra.derivation import ROWS, Form, KeptForm
from rollview.algebra.expression import Column, Expression, Literal, call, to_sql
from rollview.algebra.node import Node
from rollview.algebra.text import facts, plain_sql, plain_sql_of
from rollview.operators.block import sum_of
from rollview.operators.grouped_values import GroupedValues, shown_keys
from rollview.operators.groups import SUM, SumGroups, ValueGroups
from rollview.operators.translation import SelectItem, Translation
from rollview.sql.errors import mistake
from rollview.sql.grammar import Syntax
from rollview.sql.names.scope import Scope
from rollview.sql.passes.layers import aggregates, is_grouped
from rollview.sql.scalar import scalar

B = TypeVar("B", bound=Bag)


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
    method: ClassVar[str] = "counts"
    comes_first: ClassVar[bool] = False
    syntax: ClassVar[Syntax] = {
        exp.Select: ("group",),
        exp.Group: ("expressions", "all"),
        exp.Count: ("this", "big_int"),
        exp.Sum: ("this",),
        exp.Avg: ("this",),
        exp.Filter: ("this", "expression"),
    }

    @classmethod
    def claims(cls, query: exp.Expr) -> bool:
        """A SELECT that has GROUP BY, or an aggregate function among its outputs."""
        return isinstance(query, exp.Select) and is_grouped(query)

    @classmethod
    def translate(cls, query: exp.Expr, translation: Translation) -> Node:
        """The groups of a SELECT; what it selects from becomes blocks that project keys and arguments."""
        assert isinstance(query, exp.Select)
        scope, conditions, drafts = translation.source(query)
        items = tuple(translation.items(query, scope))
        keys = _keys(query.args.get("group"), items, scope)
        groups = SumGroups(translation, scope, keys)
        is_sum = all(groups.is_sum(each) for item in items for each in aggregates(item.node))
        groups = groups if is_sum else ValueGroups(translation, scope, keys)
        output = tuple((item.name, groups.output(item)) for item in items)
        below = sum_of([draft.above(conditions, groups.inputs()) for draft in drafts], translation)
        names = tuple(groups.keys.values())
        if isinstance(groups, ValueGroups):
            return GroupedValues(below, names, groups.values(), output)
        return cls(below, names, tuple(groups.measures.items()), output)

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    @property
    def output_columns(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.output)

    @property
    def state_columns(self) -> tuple[str, ...]:
        return (*self.keys, *(name for name, _ in self.measures))

    @property
    def key(self) -> tuple[str, ...]:
        """The group's keys; none for a single group."""
        return self.keys

    @property
    def sums(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.measures)

    @property
    def table_key(self) -> tuple[str, ...] | None:
        """The group keys, where all of them are shown."""
        return shown_keys(self.keys, self.output)

    @property
    def shown(self) -> tuple[Output, ...]:
        """Each group is one row."""
        return self.output

    @property
    def form(self) -> Form | None:
        """Keys and sums."""
        below = self.input.form
        sums = {name: call("SUM", expression) for name, expression in self.measures}
        return below and below.above({**dict(keep(self.keys)), **sums}, self.keys)

    def over_sums(self, rows: Node) -> Node:
        """The sums of sums."""
        return replace(self, input=rows, measures=keep(self.sums))

    @property
    def kept(self) -> KeptForm | None:
        """Its measures, above rows."""
        below = self.input.kept
        if below is None or below.is_grouped:
            return None
        return KeptForm(keep(self.keys), self.measures, (), self.output, self.measures[0][0])

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
            if name.startswith(SUM) and kind in ("double", "float"):
                hint = "sum a decimal instead: SUM(CAST(x AS DECIMAL(18, 2)))"
                return f"SUM or AVG of a {kind} cannot be maintained exactly", hint
        return "", ""

    def absorb(self, position: int, rows: B, *extra: str) -> B:
        """A summary delta: sums per group."""
        assert position == 0
        return rows.summarize((*self.keys, *extra), self.measures)

    def present(self, state: B, *extra: str) -> B:
        return state.project((*self.output, *keep(extra)))

    def net_effect(self, rows: B, *extra: str) -> B:
        """Measures added up per group; a group whose number of rows stays may still change its sums."""
        return rows.added_up((*self.keys, *extra), self.sums)

    def existing(self, net: B) -> B:
        """Groups that have rows; a single group is there even without."""
        return net.select(call("<>", Column(ROWS), Literal(0))) if self.keys else net

    def state_from(self, inputs: Sequence[B]) -> B:
        """The groups of complete rows: all of them have rows, and none occurs twice."""
        return self.absorb(0, inputs[0])

    def render(self, place: str = "") -> Iterator[str]:
        """Keys, measures and outputs, then the input."""
        yield f"{self.name}{place}"
        yield from facts("keys", self.keys or ["none: one group for all rows"])
        yield from facts(
            "measures", [f"{name} = SUM({plain_sql(measure)})" for name, measure in self.measures]
        )
        yield from facts("output", plain_sql_of(self.output))
        yield from self.input.render()

    @property
    def has_one_row(self) -> bool:
        """Without keys there is one group."""
        return not self.keys

    def explain(self) -> str:
        return "one row per group with its sums; a change is added to its group, and no row is read again"


def _keys(group: exp.Group | None, items: tuple[SelectItem, ...], scope: Scope) -> list[Expression]:
    if group is None:
        return []
    if group.args.get("all"):
        return [_item_key(item, item.node, scope) for item in items if not any(aggregates(item.node))]
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
    if any(aggregates(item.node)):
        message = f"GROUP BY `{item.name}`: an aggregate cannot be a group key"
        raise mistake(node, message, subject=item.name)
    return item.column or scalar(item.node, scope)
