"""Window functions: rows are kept by partition, and the functions run over those that change.

The stored state has the rows below, as far as the outputs need them, sorted by what all windows partition by.
Where nothing says in which order equal rows come (row_number and its like), they are ordered by all their
columns, so that the same rows always give the same result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from sqlglot import exp

from rollview.algebra.bag import Bag, Output, keep
from rollview.algebra.costs import ONE_PARTITION, Cost
from rollview.algebra.derivation import Form
from rollview.algebra.expression import (
    EXTRA_KEYS,
    TRUE,
    Call,
    Column,
    Expression,
    columns_of,
    in_order,
    in_spark,
    is_in_spark,
    place_of,
    rename,
    with_keys,
)
from rollview.algebra.node import Node, key_names
from rollview.algebra.text import facts, plain_sql_of
from rollview.operators.block import sum_of
from rollview.operators.groups import depends_on_order
from rollview.operators.translation import Translation
from rollview.sql.dialect import DIALECT
from rollview.sql.functions import is_aggregate
from rollview.sql.grammar import Syntax
from rollview.sql.names.scope import Scope
from rollview.sql.passes.layers import has_window, is_grouped
from rollview.sql.scalar import scalar
from rollview.sql.text.total_order import needs_total_order

B = TypeVar("B", bound=Bag)

_FUNCTIONS = (exp.RowNumber, exp.Ntile, exp.Lag, exp.Lead, exp.NthValue, exp.FirstValue)


@dataclass(frozen=True)
class Window(Node):
    """Rows by partition: `keys` are what all windows partition by, `columns` all that is stored."""

    input: Node
    keys: tuple[str, ...]
    columns: tuple[str, ...]
    output: tuple[Output, ...]

    name: ClassVar[str] = "window"
    method: ClassVar[str] = "by key"
    comes_first: ClassVar[bool] = False
    syntax: ClassVar[Syntax] = {
        exp.Window: ("this", "partition_by", "order", "spec", "over", "alias"),
        exp.Select: ("qualify",),
        exp.Qualify: ("this",),
        exp.WindowSpec: ("kind", "start", "start_side", "end", "end_side"),
        **dict.fromkeys(_FUNCTIONS, ("this", "expression", "offset", "default", "expressions", "order")),
        exp.Rank: ("expressions", "order"),
        exp.DenseRank: ("expressions", "order"),
        exp.PercentRank: ("expressions", "order"),
        exp.CumeDist: ("expressions", "order"),
        exp.LastValue: ("this",),
        exp.IgnoreNulls: ("this",),
        exp.RespectNulls: ("this",),
    }

    @staticmethod
    def claims(query: exp.Expr) -> bool:
        """A SELECT with a window among its outputs, and no groups."""
        return isinstance(query, exp.Select) and has_window(query) and not is_grouped(query)

    @classmethod
    def translate(cls, query: exp.Expr, translation: Translation) -> Window:
        """The windows over what the SELECT selects from."""
        assert isinstance(query, exp.Select)
        scope, conditions, drafts = translation.source(query)
        windows = _Windows(scope, translation)
        items = translation.items(query, scope)
        output = [(item.name, item.column or scalar(item.node, scope, windows.window)) for item in items]
        used = dict.fromkeys(name for _, each in output for name in columns_of(each))
        keys = windows.keys()
        names = {name: keys.get(Column(name), f"column_{place}") for place, name in enumerate(used, start=1)}
        columns = [(new, Column(old)) for old, new in names.items() if Column(old) not in keys]
        projected = [*((name, key) for key, name in keys.items()), *columns]
        below = sum_of([draft.above(conditions, projected) for draft in drafts], translation)
        ordered = [
            (name, _totally_ordered(rename(each, names.__getitem__), tuple(names.values())))
            for name, each in output
        ]
        stored = tuple(name for name, _ in projected)
        return cls(below, tuple(keys.values()), stored, tuple(ordered))

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    @property
    def output_columns(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.output)

    @property
    def state_columns(self) -> tuple[str, ...]:
        return self.columns

    @property
    def key(self) -> tuple[str, ...]:
        return self.keys

    @property
    def form(self) -> Form | None:
        """The columns of rows."""
        below = self.input.form
        return below and below.above(dict(keep(self.columns)))

    @property
    def shown_key(self) -> Mapping[str, str]:
        """The keys that all windows partition by, where they are shown."""
        return key_names(self.keys, self.output)

    def absorb(self, position: int, rows: B, *extra: str) -> B:
        """The rows themselves."""
        assert position == 0
        return rows.project(keep((*self.columns, *extra)))

    def present(self, state: B, *extra: str) -> B:
        """The functions over the partitions of each state."""
        outputs = [(name, with_keys(each, extra)) for name, each in self.output]
        return state.over((*outputs, *keep(extra)), (*self.keys, *extra))

    def render(self, place: str = "") -> Iterator[str]:
        """The stored and the output columns, then the input."""
        yield f"{self.name}{place}"
        yield from facts("partitions", self.keys or ["none: all rows together"])
        yield from facts("output", plain_sql_of(self.output))
        yield from self.input.render()

    @property
    def costs(self) -> tuple[Cost, ...]:
        """A single partition has all rows."""
        if self.keys:
            return ()
        sentence = "the windows have no PARTITION BY in common: every change computes all rows again"
        hint = "partition all windows of a SELECT by the same columns, or filter first"
        return (Cost(ONE_PARTITION, sentence, hint),)

    def explain(self) -> str:
        return "the rows of each partition; a partition that changes is computed again"


_TIE_BREAKERS = "\x03"
"""Where further columns to order by belong."""


class _Windows:
    """Collects partitions while outputs are translated."""

    def __init__(self, scope: Scope, translation: Translation) -> None:
        self.scope = scope
        self.translation = translation
        self.partitions: list[list[Expression]] = []

    def keys(self) -> dict[Expression, str]:
        """The expressions that every window partitions by, each with a name."""
        first, *rest = self.partitions
        common = [each for each in dict.fromkeys(first) if all(each in other for other in rest)]
        return {each: f"key_{number}" for number, each in enumerate(common, start=1)}

    def window(self, node: exp.Expr) -> Expression:
        """A window function as SQL that takes further keys to partition by."""
        if not isinstance(node, exp.Window):
            return scalar(node, self.scope)
        partition = [scalar(each, self.scope) for each in node.args.get("partition_by") or ()]
        self.partitions.append(partition)
        arguments: dict[Expression, int] = {}

        def place(part: exp.Expr) -> exp.Expr:
            if isinstance(part, exp.Column):
                meaning = scalar(part, self.scope)
                return exp.Var(this=place_of(arguments.setdefault(meaning, len(arguments))))
            return part

        alone = node.copy()
        alone.parent = None
        written = alone.transform(place)
        by = written.args.get("partition_by") or [exp.Literal.number(0)]
        inner = [f"PARTITION BY {EXTRA_KEYS}{_sql(by)}"]
        if order := written.args.get("order"):
            ties = _TIE_BREAKERS if needs_total_order(node) else ""
            inner.append(f"ORDER BY {_sql(order.expressions)}{ties}")
        if spec := written.args.get("spec"):
            inner.append(spec.sql(dialect=DIALECT))
        function = written.this.sql(dialect=DIALECT)
        whole = in_spark(f"{function} OVER ({' '.join(inner)})", *arguments)
        return in_order(whole, whole, TRUE) if self._depends_on_order(node.this) else whole

    def _depends_on_order(self, function: exp.Expr) -> bool:
        """Whether the order among rows that the window takes for equal makes a difference."""
        return is_aggregate(function) and depends_on_order(
            function,
            lambda value: self.translation.type_of(scalar(value, self.scope), self.scope.types()).lower(),
        )


def _sql(nodes: Iterable[exp.Expr]) -> str:
    return ", ".join(node.sql(dialect=DIALECT) for node in nodes)


def _totally_ordered(expression: Expression, columns: tuple[str, ...]) -> Expression:
    """Appends all stored columns to the ORDER BY of functions that distinguish equal rows."""
    if not isinstance(expression, Call):
        return expression
    arguments = tuple(_totally_ordered(each, columns) for each in expression.arguments)
    if is_in_spark(expression) and _TIE_BREAKERS in expression.function:
        places = "".join(f", {place_of(len(arguments) + number)}" for number in range(len(columns)))
        return Call(expression.function.replace(_TIE_BREAKERS, places), (*arguments, *map(Column, columns)))
    return Call(expression.function, arguments)
