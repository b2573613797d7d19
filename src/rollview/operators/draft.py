"""Drafts: select-project-joins on their way to blocks, with conditions not yet classified.

Drafts nest: the query above a subquery is merged into it by substituting the subquery's outputs, so that one
flat block remains. A query may be the sum of several drafts, some of them to be subtracted: that is how outer
joins become blocks (`rollview.operators.matching`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from rollview.algebra.bag import Output
from rollview.algebra.expression import Call, Column, Expression, call, columns_of, conjuncts, rename
from rollview.algebra.folding import is_never_true
from rollview.algebra.node import Block, Node
from rollview.algebra.relation import Edge, Relation
from rollview.operators.negated import Negated

_MOST_APART = 4
"""So many drafts may come of one that compares with <=>."""


@dataclass(frozen=True)
class Draft:
    """A select-project-join: what is joined, which conditions hold, what comes out; and its sign in a sum."""

    relations: tuple[Relation, ...]
    conditions: tuple[Expression, ...]
    outputs: tuple[Output, ...]
    sign: int = 1

    def above(self, conditions: Iterable[Expression], outputs: Iterable[Output]) -> Draft:
        """The draft for a selection and projection over this one's outputs."""
        known = dict(self.outputs)
        projection = tuple((name, substitute(expression, known)) for name, expression in outputs)
        return replace(self.where(conditions), outputs=projection)

    def where(self, conditions: Iterable[Expression]) -> Draft:
        """The draft with conditions over its outputs."""
        known = dict(self.outputs)
        more = tuple(substitute(condition, known) for condition in conditions)
        return replace(self, conditions=(*self.conditions, *more))

    @property
    def is_empty(self) -> bool:
        """Whether a condition can be seen never to hold."""
        return any(map(is_never_true, self.conditions))

    def times(self, other: Draft) -> Draft:
        """The product. Relations of the other one get another alias where both have the same."""
        taken = {relation.alias.lower() for relation in self.relations}
        other = other._apart_from(taken)
        return Draft(
            (*self.relations, *other.relations),
            (*self.conditions, *other.conditions),
            (*self.outputs, *other.outputs),
            self.sign * other.sign,
        )

    def negated(self) -> Draft:
        """The same, subtracted instead of added, or added instead of subtracted."""
        return replace(self, sign=-self.sign)

    def _apart_from(self, taken: set[str]) -> Draft:
        aliases: dict[str, str] = {}
        for relation in self.relations:
            alias, number = relation.alias, 1
            while alias.lower() in taken:
                number += 1
                alias = f"{relation.alias}_{number}"
            taken = taken | {alias.lower()}
            aliases[relation.alias] = alias
        if all(old == new for old, new in aliases.items()):
            return self
        relations = tuple(replace(each, alias=aliases[each.alias]) for each in self.relations)
        names = {
            old: new
            for before, after in zip(self.relations, relations, strict=True)
            for old, new in zip(before.columns, after.columns, strict=True)
        }
        return Draft(
            relations,
            tuple(rename(condition, names.__getitem__) for condition in self.conditions),
            tuple((name, rename(output, names.__getitem__)) for name, output in self.outputs),
            self.sign,
        )

    def renamed(self, names: Iterable[str]) -> Draft:
        """The draft with other output names."""
        outputs = tuple((name, output) for name, (_, output) in zip(names, self.outputs, strict=True))
        return replace(self, outputs=outputs)

    def column_types(self) -> dict[str, str]:
        """The types of the relations' columns, where they are known."""
        return {
            column: kind
            for relation in self.relations
            for column, kind in zip(relation.columns, relation.table.types, strict=False)
        }

    def null_safe_apart(self) -> tuple[Draft, ...]:
        """The same as a sum: a <=> b is a = b, or NULL on both sides, and both can be looked up."""
        owner = {column: i for i, relation in enumerate(self.relations) for column in relation.columns}
        parts = [part for whole in self.conditions for part in conjuncts(whole)]
        drafts = [replace(self, conditions=())]
        for part in parts:
            pair = _null_safe(part, owner)
            if pair is None or len(drafts) == _MOST_APART:
                drafts = [each._with(part) for each in drafts]
                continue
            are_null = [call("IS NULL", each) for each in pair]
            drafts = [
                *(each._with(call("=", *pair)) for each in drafts),
                *(each._with(*are_null) for each in drafts),
            ]
        return tuple(drafts)

    def _with(self, *conditions: Expression) -> Draft:
        return replace(self, conditions=(*self.conditions, *conditions))

    def node(self) -> Node:
        """The block of the draft, or what subtracts it."""
        return self._block() if self.sign > 0 else Negated(self._block())

    def _block(self) -> Block:
        """The block of the draft. A condition that is written twice is kept once."""
        owner = {column: i for i, relation in enumerate(self.relations) for column in relation.columns}
        edges: dict[Edge, None] = {}
        local: list[dict[Expression, None]] = [{} for _ in self.relations]
        residual: dict[Expression, None] = {}
        parts = [part for whole in self.conditions for part in conjuncts(whole)]
        for condition in (*parts, *(each for part in parts for each in _implied(part))):
            edge = _edge(condition, owner)
            owners = {owner[column] for column in columns_of(condition)}
            if edge is not None:
                edges[edge] = None
            elif len(owners) <= 1:
                # A condition without columns holds for all rows or none, so any one relation can carry it.
                local[min(owners, default=0)][condition] = None
            else:
                residual[condition] = None
        return Block(self.relations, tuple(edges), tuple(map(tuple, local)), tuple(residual), self.outputs)


def substitute(expression: Expression, known: Mapping[str, Expression]) -> Expression:
    """The expression with each known column replaced by its definition."""
    if isinstance(expression, Column):
        return known.get(expression.name, expression)
    if isinstance(expression, Call):
        return Call(expression.function, tuple(substitute(part, known) for part in expression.arguments))
    return expression


def _implied(condition: Expression) -> tuple[Expression, ...]:
    """The conjuncts that all sides of an OR imply: (a AND x) OR (a AND y) implies a, and a may be an edge."""
    if not isinstance(condition, Call) or condition.function != "OR":
        return ()
    sides = [conjuncts(each) for each in condition.arguments]
    return tuple(each for each in dict.fromkeys(sides[0]) if all(each in side for side in sides))


def _null_safe(part: Expression, owner: Mapping[str, int]) -> tuple[Expression, ...] | None:
    """Both sides of a <=> b, if they are columns of two relations."""
    if not isinstance(part, Call) or part.function != "<=>":
        return None
    owners = [owner[each.name] for each in part.arguments if isinstance(each, Column)]
    return part.arguments if len(set(owners)) == len(part.arguments) else None


def _edge(condition: Expression, owner: Mapping[str, int]) -> Edge | None:
    """The condition as an edge of the join graph, if it equates plain columns of two relations."""
    if not isinstance(condition, Call) or condition.function != "=":
        return None
    names = [argument.name for argument in condition.arguments if isinstance(argument, Column)]
    if len(names) != 2 or owner[names[0]] == owner[names[1]]:
        return None
    left, right = sorted(names, key=owner.__getitem__)
    return Edge(owner[left], left, owner[right], right)
