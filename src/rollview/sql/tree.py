"""Syntax trees: looking at their parts, and building new ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

from sqlglot import exp


def aliased(node: exp.Expr, name: str, quoted: bool = False) -> exp.Alias:
    """`node AS name`. A query in parentheses is no FROM item here: the name follows it."""
    return exp.Alias(this=node.copy(), alias=exp.to_identifier(name, quoted=quoted))


def column(name: str, table: str = "") -> exp.Column:
    """A column by its exact name."""
    qualifier = exp.to_identifier(table, quoted=True) if table else None
    return exp.column(exp.to_identifier(name, quoted=True), qualifier)


def union_all(queries: Sequence[exp.Expr]) -> exp.Expr:
    """One query for all, leaning to the left as the parser builds it."""
    return reduce(lambda one, other: exp.Union(this=one, expression=other, distinct=False), queries)


def bare(query: exp.Expr) -> exp.Expr:
    """A query without the parentheses around it."""
    while isinstance(query, exp.Subquery):
        query = query.this
    return query


def is_parenthesised(node: exp.Expr) -> bool:
    """Whether it is joined relations in parentheses; to the parser they are a subquery without a SELECT."""
    while isinstance(node, exp.Subquery):
        node = node.this
    return isinstance(node, exp.Table)


def own(node: exp.Expr, kind: type[exp.Expr]) -> Iterator[exp.Expr]:
    """The outermost nodes of a kind that belong to an expression, not to a query inside of it."""
    waiting = [node]
    while waiting:
        part = waiting.pop()
        if isinstance(part, kind):
            yield part
        elif not isinstance(part, exp.Query):
            waiting += reversed(list(part.iter_expressions()))


def changed(node: exp.Expr, change: Callable[[exp.Expr], exp.Expr]) -> exp.Expr:
    """Changes what `change` knows, outermost first; what was changed, and queries inside, are left alone."""
    new = change(node)
    if new is not node or isinstance(node, exp.Query):
        return new
    for argument, value in list(node.args.items()):
        if isinstance(value, exp.Expr):
            node.set(argument, changed(value, change))
        elif isinstance(value, list):
            node.set(argument, [changed(v, change) if isinstance(v, exp.Expr) else v for v in value])
    return node


def written_conjuncts(node: exp.Expr) -> Iterator[exp.Expr]:
    """The parts of a condition that must all hold, as they are written, without their parentheses.

    The common conjuncts of all branches of an OR count as conjuncts: (a AND b) OR (a AND c) is a AND (b OR
    c).
    """
    for part in _parts(node, exp.And):
        if isinstance(part, exp.Or):
            yield from _common_first(part)
        else:
            yield part


def _parts(node: exp.Expr, kind: type[exp.Connector]) -> Iterator[exp.Expr]:
    """The parts of a chain of AND, or of OR, in order."""
    waiting = [node]
    while waiting:
        part = waiting.pop().unnest()
        if isinstance(part, kind):
            waiting += [part.expression, part.this]
        else:
            yield part


def _common_first(node: exp.Or) -> Iterator[exp.Expr]:
    branches = [{each.sql(): each for each in _parts(branch, exp.And)} for branch in _parts(node, exp.Or)]
    common = [text for text in branches[0] if all(text in branch for branch in branches)]
    if not common:
        yield node
        return
    yield from (branches[0][text] for text in common)
    rest = [[each for text, each in branch.items() if text not in common] for branch in branches]
    if all(rest):
        yield exp.or_(*(exp.paren(exp.and_(*parts)) for parts in rest))


@dataclass(frozen=True)
class FromSyntax:
    """FROM items as they are written, so that a stage can be made of them."""

    item: exp.Expr
    joins: tuple[exp.Join, ...] = ()

    def select(self, columns: Iterable[exp.Expr]) -> exp.Select:
        """Expressions over the items, called `key_1`, `key_2` …"""
        named = [aliased(column.copy(), f"key_{n}") for n, column in enumerate(columns, start=1)]
        query = exp.Select(expressions=named, from_=exp.From(this=self.item.copy()))
        query.set("joins", [join.copy() for join in self.joins])
        return query

    def distinct(self, columns: Iterable[exp.Expr]) -> exp.Select:
        """The distinct values of expressions over the items."""
        query = self.select(columns)
        query.set("distinct", exp.Distinct())
        return query

    def narrowed(self, alias: str) -> FromSyntax:
        """The item of this alias alone, where no outer join is between the items."""
        if any(_adds_nulls(join) or join.args.get("using") for join in self.joins):
            return self
        for node in (self.item, *(join.this for join in self.joins)):
            plain = isinstance(node, exp.Table | exp.Subquery) and not node.args.get("joins")
            if plain and node.alias_or_name.lower() == alias.lower():
                return FromSyntax(node)
        return self


def _adds_nulls(join: exp.Join) -> bool:
    is_natural = join.args.get("method") == "NATURAL"
    return is_natural or bool(join.args.get("side") and join.args.get("kind") not in ("SEMI", "ANTI"))
