"""Generators (`LATERAL VIEW explode(…)` and its like): each row becomes as many as the generator makes of it.

That is linear: what a change makes is what the generator makes of the changed rows. Nothing is stored but the
rows that come out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, TypeVar

from sqlglot import exp

from rollview.algebra.bag import Bag, Output, keep
from rollview.algebra.expression import (
    Column,
    Expression,
    columns_of,
    conjunction,
    conjuncts,
    in_spark,
    place_of,
    rename,
)
from rollview.algebra.node import Node
from rollview.algebra.text import facts, plain_sql, plain_sql_of
from rollview.operators.block import sum_of
from rollview.operators.translation import Translation
from rollview.sql.grammar import Syntax
from rollview.sql.names.generators import generated_names, spark_function
from rollview.sql.names.scope import Item, Scope
from rollview.sql.passes.layers import has_window, is_grouped
from rollview.sql.scalar import condition, scalar

B = TypeVar("B", bound=Bag)


class Generator(NamedTuple):
    """A function that gives any number of rows, and what their columns are called."""

    function: Expression
    names: tuple[str, ...]


@dataclass(frozen=True)
class Generate(Node):
    """Rows times what generators make of them, one after the other; then conditions and outputs."""

    input: Node
    generators: tuple[Generator, ...]
    conditions: tuple[Expression, ...]
    output: tuple[Output, ...]

    name: ClassVar[str] = "generator"
    is_linear: ClassVar[bool] = True
    comes_first: ClassVar[bool] = False
    syntax: ClassVar[Syntax] = {
        exp.Select: ("laterals",),
        exp.Lateral: ("this", "view", "outer", "alias"),
        exp.Aliases: ("this", "expressions"),
    }

    @staticmethod
    def claims(query: exp.Expr) -> bool:
        """A SELECT with LATERAL VIEW, and neither groups nor windows."""
        plain = isinstance(query, exp.Select) and not is_grouped(query) and not has_window(query)
        return plain and bool(query.args.get("laterals"))

    @classmethod
    def translate(cls, query: exp.Expr, translation: Translation) -> Generate:
        """The generators over what the SELECT selects from."""
        assert isinstance(query, exp.Select)
        joined = translation.from_items(query)
        scope, generators = joined.scope, []
        for number, lateral in enumerate(query.args["laterals"], start=1):
            function = _function(lateral, scope)
            alias = lateral.args["alias"].name or f"[generator {number}]"
            item = Item(alias, generated_names(lateral))
            generators.append(Generator(function, tuple(map(item.column, item.columns))))
            scope = scope.join(Scope.of(item), lateral)
        where = query.args.get("where")
        conditions = conjuncts(condition(where.this, scope)) if where else ()
        items = translation.items(query, scope)
        output = [(item.name, item.column or scalar(item.node, scope)) for item in items]
        made = {name for each in generators for name in each.names}
        before = tuple(each for each in conditions if not made & set(columns_of(each)))
        behind = tuple(each for each in conditions if made & set(columns_of(each)))
        read = [*(each.function for each in generators), *behind, *(each for _, each in output)]
        used = dict.fromkeys(name for each in read for name in columns_of(each) if name not in made)
        names = {name: f"column_{number}" for number, name in enumerate(used, start=1)}
        below = sum_of(
            [
                draft.above(before, [(new, Column(old)) for old, new in names.items()])
                for draft in joined.drafts
            ],
            translation,
        )
        names |= {name: f"made_{number}" for number, name in enumerate(sorted(made), start=1)}
        return cls(
            below,
            tuple(
                Generator(rename(each.function, names.__getitem__), tuple(names[name] for name in each.names))
                for each in generators
            ),
            tuple(rename(each, names.__getitem__) for each in behind),
            tuple((name, rename(each, names.__getitem__)) for name, each in output),
        )

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    @property
    def output_columns(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.output)

    def absorb(self, position: int, rows: B, *extra: str) -> B:
        """The rows that the generators make."""
        assert position == 0
        for each in self.generators:
            rows = rows.generated(each.function, each.names)
        if self.conditions:
            rows = rows.select(conjunction(self.conditions))
        return rows.project((*self.output, *keep(extra)))

    def render(self, place: str = "") -> Iterator[str]:
        """The generators, conditions and outputs, then the input."""
        yield f"{self.name}{place}"
        made = [f"{', '.join(each.names)} = {plain_sql(each.function)}" for each in self.generators]
        yield from facts("generators", made)
        yield from facts("conditions", map(plain_sql, self.conditions))
        yield from facts("output", plain_sql_of(self.output))
        yield from self.input.render()

    def explain(self) -> str:
        return "rows; the generator runs over the rows that change"


def _function(lateral: exp.Lateral, scope: Scope) -> Expression:
    """The generator as SQL over columns."""
    arguments: dict[Expression, int] = {}

    def place(part: exp.Expr) -> exp.Expr:
        if isinstance(part, exp.Column):
            meaning = scalar(part, scope)
            return exp.Var(this=place_of(arguments.setdefault(meaning, len(arguments))))
        return part

    alone = lateral.this.copy()
    alone.parent = None
    return in_spark(spark_function(alone.transform(place), bool(lateral.args.get("outer"))), *arguments)
