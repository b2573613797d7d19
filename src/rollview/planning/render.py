"""A view definition as text: the normal form, for people and for tests. Equal views give equal text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from rollview.algebra.bag import Output
from rollview.algebra.expression import Expression, to_sql
from rollview.algebra.view import Aggregate, Block, Relation, View

_QUOTED = re.compile(r"('(?:\\.|[^'\\])*')|`([\w.]+)`")


def render(view: View) -> str:
    """The whole view, one fact per line."""
    lines = [f"view {view.name}"]
    lines += _section("properties", [f"{key} = {value}" for key, value in sorted(view.properties.items())])
    if isinstance(view.root, Aggregate):
        lines += ["aggregate", *_aggregate(view.root)]
    for number, block in enumerate(view.blocks, start=1):
        total = len(view.blocks)
        lines.append("block" if total == 1 else f"block {number} of {total} (UNION ALL)")
        lines += _block(block)
    return "\n".join(lines) + "\n"


def _aggregate(aggregate: Aggregate) -> Iterator[str]:
    yield from _section("keys", aggregate.keys or ["none: one group for all rows"])
    yield from _section(
        "measures", [f"{name} = SUM({_text(measure)})" for name, measure in aggregate.measures]
    )
    yield from _section("output", _outputs(aggregate.output))


def _block(block: Block) -> Iterator[str]:
    yield from _section("relations", [_relation(relation) for relation in block.relations])
    yield from _section("edges", [f"{edge.left_column} = {edge.right_column}" for edge in block.edges])
    yield from _section("local", [_text(condition) for conditions in block.local for condition in conditions])
    yield from _section("residual", map(_text, block.residual))
    yield from _section("projection", _outputs(block.projection) or ["nothing: rows are only counted"])


def _section(title: str, facts: Iterable[str]) -> Iterator[str]:
    """A title with its facts below; nothing if there are none."""
    facts = list(facts)
    if facts:
        yield f"  {title}"
        yield from (f"    {fact}" for fact in facts)


def _relation(relation: Relation) -> str:
    key = f" (key {', '.join(relation.table.key)})" if relation.table.key else " (no key)"
    return f"{relation.alias}: {relation.table.qualified}{key}"


def _outputs(outputs: Iterable[Output]) -> list[str]:
    return [f"{name} = {_text(expression)}" for name, expression in outputs]


def _text(expression: Expression) -> str:
    """SQL as a person would write it: no quotes around plain names, no outermost parentheses."""
    sql = to_sql(expression)
    # An operator's text is always wrapped as a whole, and a function's text starts with its name.
    bare = sql[1:-1] if sql.startswith("(") else sql
    return _QUOTED.sub(lambda match: match[1] or match[2], bare)
