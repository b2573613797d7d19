"""Joins of all kinds as sums of select-project-joins.

An outer join needs to know which rows have a match, and a semi or anti join nothing else. Rows that have
one are themselves a join, with the *distinct* keys of the other side: a key that is there once doubles
nothing. So, with D the distinct keys of R,

    L ⋉ R = L ⋈ D
    L ▷ R = L − L ⋈ D
    L ⟕ R = L ⋈ R + (L − L ⋈ D) × NULLs

All of it is linear in L, R and D: sums of blocks, which every algorithm maintains as it is. Only D is
stored, as a stage that counts; neither L nor R is copied. Where R has no key twice, D is R itself. Where the
condition is more than equalities, D has the distinct values of the columns of L in it, of those pairs that
match.

Each join multiplies the number of blocks. Where that becomes too much, one side is stored as a stage of its
own, with the columns that are used, and is one relation from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from sqlglot import exp

from rollview.algebra.bag import keep
from rollview.algebra.expression import (
    Call,
    Column,
    Expression,
    Literal,
    call,
    cast_to,
    columns_of,
    conjuncts,
)
from rollview.algebra.folding import rejects_null
from rollview.algebra.relation import Relation
from rollview.operators.draft import Draft, substitute
from rollview.sql.names.scope import Scope
from rollview.sql.scalar import condition
from rollview.sql.tree import FromSyntax, written_conjuncts

MOST_DRAFTS = 9
"""So many blocks a join may come to, before one of its sides is stored."""


@dataclass(frozen=True)
class Joined:
    """FROM items joined so far: what can be named of them, and drafts that have all of it as outputs."""

    scope: Scope
    drafts: tuple[Draft, ...]
    syntax: FromSyntax

    @property
    def columns(self) -> set[str]:
        return {item.column(name) for item in self.scope.items for name in item.columns}


@dataclass(frozen=True)
class Conjunct:
    """A part of ON, as it is written and as it is meant."""

    syntax: exp.Expr
    meaning: Expression


class Staging(Protocol):
    """The methods that a join needs of its translation."""

    def stage(self, query: exp.Expr) -> Relation:
        """Cuts a query off; it becomes a relation."""

    def is_used(self, column: str) -> bool:
        """Whether the query names a column somewhere."""

    def type_of(self, expression: Expression, columns: Mapping[str, str]) -> str:
        """The type of an expression over columns of these types; empty if it is not known."""


def joined(translation: Staging, left: Joined, right: Joined, join: exp.Join) -> Joined:
    """Two FROM items, or what has been joined of them, with one more join."""
    side, kind = str(join.args.get("side") or ""), str(join.args.get("kind") or "")
    left, right = _few(translation, left, right, 3 if side else 1)
    scope, on = _scope_and_conditions(left, right, join, side)
    both = _Both(translation, left, right, join, on)
    syntax = FromSyntax(left.syntax.item, (*left.syntax.joins, join))
    if kind in ("SEMI", "ANTI"):
        matched = both.matched(left, right)
        rest = left.drafts if kind == "ANTI" else ()
        drafts = (*rest, *(each.negated() for each in matched)) if rest else matched
        return Joined(left.scope, drafts, syntax)
    drafts = both.pairs()
    if side in ("LEFT", "FULL"):
        drafts += both.unmatched(left, right)
    if side in ("RIGHT", "FULL"):
        drafts += both.unmatched(right, left)
    if side == "FULL" and join.args.get("using"):
        scope, drafts = _merged(scope, drafts, on)
    return Joined(scope, drafts, syntax)


def _few(translation: Staging, left: Joined, right: Joined, times: int) -> tuple[Joined, Joined]:
    """Both sides, with the one that has more drafts as a single relation where there would be too many."""
    if len(left.drafts) * len(right.drafts) * times > MOST_DRAFTS:
        if len(right.drafts) >= len(left.drafts):
            right = _stored(translation, right)
        if len(left.drafts) * len(right.drafts) * times > MOST_DRAFTS:
            left = _stored(translation, left)
    return left, right


def _stored(translation: Staging, side: Joined) -> Joined:
    """A stage of all that has been joined so far, if SQL can name all columns that are used of it."""
    is_named = not any(item.alias.startswith("[") for item in side.scope.items)
    if len(side.drafts) == 1 or not is_named or not all(draft.relations for draft in side.drafts):
        return side
    used = [
        item.column(name) for item in side.scope.items for name in item.columns if translation.is_used(name)
    ]
    stage = translation.stage(side.syntax.select(map(side.scope.syntax, used)))
    known = dict(zip(used, map(Column, stage.columns), strict=True))
    outputs = tuple((name, known.get(name, Literal(None))) for name, _ in side.drafts[0].outputs)
    return replace(side, drafts=(Draft((stage,), (), outputs),))


def _merged(
    scope: Scope, drafts: tuple[Draft, ...], on: Sequence[Conjunct]
) -> tuple[Scope, tuple[Draft, ...]]:
    """After FULL JOIN … USING, a common column has the value of whichever side is there."""
    pairs = [each.meaning.arguments for each in on if isinstance(each.meaning, Call)]
    columns = [(one.name, other) for one, other in pairs if isinstance(one, Column)]
    scope, names = scope.with_merged([name for name, _ in columns])
    values = [
        (name, call("COALESCE", Column(left), right))
        for name, (left, right) in zip(names, columns, strict=True)
    ]

    def extended(draft: Draft) -> Draft:
        known = dict(draft.outputs)
        added = tuple((name, substitute(value, known)) for name, value in values)
        return replace(draft, outputs=(*draft.outputs, *added))

    return scope, tuple(map(extended, drafts))


def _scope_and_conditions(
    left: Joined, right: Joined, join: exp.Join, side: str
) -> tuple[Scope, tuple[Conjunct, ...]]:
    names = join.args.get("using")
    if join.args.get("method") == "NATURAL":
        names = left.scope.common(right.scope, join)
    if names:
        scope, pairs = left.scope.join_using(right.scope, join, names, side)
        return scope, tuple(
            Conjunct(exp.EQ(this=scope.syntax(one), expression=scope.syntax(other)), _equal(one, other))
            for one, other in pairs
        )
    scope = left.scope.join(right.scope, join.this)
    on = join.args.get("on")
    if on is None:
        return scope, ()
    condition(on, scope)
    return scope, tuple(Conjunct(part, condition(part, scope)) for part in written_conjuncts(on))


def _equal(one: str, other: str) -> Expression:
    return call("=", Column(one), Column(other))


@dataclass(frozen=True)
class _Both:
    """The two sides of a join, and what ON says."""

    translation: Staging
    left: Joined
    right: Joined
    join: exp.Join
    on: tuple[Conjunct, ...]

    @property
    def conditions(self) -> tuple[Expression, ...]:
        return tuple(part for each in self.on for part in conjuncts(each.meaning))

    def pairs(self) -> tuple[Draft, ...]:
        """The inner join: every draft of one side with every draft of the other."""
        products = [one.times(other) for one in self.left.drafts for other in self.right.drafts]
        return tuple(product.where(self.conditions) for product in products)

    def unmatched(self, side: Joined, other: Joined) -> tuple[Draft, ...]:
        """The rows of one side that have no match, with NULL for the columns of the other."""
        nulls = [
            (item.column(name), self._null(kind))
            for item in other.scope.items
            for name, kind in zip(item.columns, item.types or ("",) * len(item.columns), strict=True)
        ]
        drafts = (*side.drafts, *(each.negated() for each in self.matched(side, other)))
        return tuple(replace(draft, outputs=(*draft.outputs, *nulls)) for draft in drafts)

    def matched(self, side: Joined, other: Joined) -> tuple[Draft, ...]:
        """The rows of one side that have a match, each as often as it is there."""
        if self._finds_one(side, other):
            drafts = tuple(
                one.times(another).where(self.conditions) for one in side.drafts for another in other.drafts
            )
        else:
            keys = self._keys(side, other)
            query, conditions = self._matching_pairs(side) if keys is None else self._key_values(other, keys)
            stage = self.translation.stage(query)
            there = Draft((stage,), (), keep(stage.columns))
            tested = conditions(stage)
            drafts = tuple(draft.times(there).where(tested) for draft in side.drafts)
        names = side.columns
        return tuple(
            replace(draft, outputs=tuple(each for each in draft.outputs if each[0] in names))
            for draft in drafts
        )

    def _null(self, kind: str) -> Expression:
        return call(cast_to(kind.upper().replace(" ", "")), Literal(None)) if kind else Literal(None)

    def _finds_one(self, side: Joined, other: Joined) -> bool:
        """Whether a row never matches two: the other side is one relation, of which ON equates a key."""
        if len(other.drafts) != 1 or len(other.drafts[0].relations) != 1:
            return False
        (relation,) = other.drafts[0].relations
        trusted = relation.key and (not relation.table.own_log or not relation.table.source)
        outputs = dict(other.drafts[0].outputs)
        pairs = [
            each.arguments for each in self.conditions if isinstance(each, Call) and each.function == "="
        ]
        equated = {
            outputs.get(one.name)
            for pair in pairs
            for one, another in (pair, pair[::-1])
            if isinstance(one, Column) and set(columns_of(another)) <= side.columns
        }
        return bool(trusted) and all(Column(name) in equated for name in relation.key)

    def _keys(self, side: Joined, other: Joined) -> _Keys | None:
        """ON as equalities between the sides, and conditions on either; None if it is more than that."""
        keys: list[tuple[Expression, exp.Expr]] = []
        own: list[Expression] = []
        theirs: list[exp.Expr] = []
        for each in self.on:
            used = set(columns_of(each.meaning))
            pair = _equated(each, side.columns, other.columns)
            if used <= side.columns:
                own.append(each.meaning)
            elif used <= other.columns:
                theirs.append(each.syntax)
            elif pair is not None:
                keys.append(pair)
            else:
                return None
        return _Keys(tuple(keys), tuple(own), tuple(theirs))

    def _key_values(self, other: Joined, keys: _Keys) -> tuple[exp.Select, _Conditions]:
        """The distinct keys of the other side, and how a row finds its own."""
        values = [value for _, value in keys.pairs] or [exp.Literal.number(1)]
        query = other.syntax.distinct(values)
        if keys.theirs:
            query.set("where", exp.Where(this=exp.and_(*(each.copy() for each in keys.theirs))))

        def conditions(stage: Relation) -> tuple[Expression, ...]:
            found = zip(keys.pairs, stage.columns, strict=False)
            return (*(call("=", own, Column(key)) for (own, _), key in found), *keys.own)

        return query, conditions

    def _matching_pairs(self, side: Joined) -> tuple[exp.Select, _Conditions]:
        """The distinct values of the side's columns in ON, of the pairs that match."""
        used = dict.fromkeys(name for each in self.conditions for name in columns_of(each))
        names = [name for name in used if name in side.columns]
        whole = exp.and_(*(each.syntax.copy() for each in self.on))
        inner = exp.Join(this=self.join.this.copy(), on=whole)
        before = self.left.syntax
        # Only the values matter: one item has all of them, whatever it is joined with.
        owners = {item.alias for item in side.scope.items for name in names if item.owns(name)}
        if side is self.left and len(owners) == 1:
            before = before.narrowed(owners.pop())
        syntax = FromSyntax(before.item, (*before.joins, inner))
        query = syntax.distinct([side.scope.syntax(name) for name in names] or [exp.Literal.number(1)])

        def conditions(stage: Relation) -> tuple[Expression, ...]:
            return tuple(
                call("=" if self._rejects_null(name) else "<=>", Column(name), Column(value))
                for name, value in zip(names, stage.columns, strict=False)
            )

        return query, conditions

    def _rejects_null(self, column: str) -> bool:
        return any(rejects_null(each, column) for each in self.conditions)


@dataclass(frozen=True)
class _Keys:
    """Equalities, each with the other side's value as it is written; conditions on one side alone."""

    pairs: tuple[tuple[Expression, exp.Expr], ...]
    own: tuple[Expression, ...]
    theirs: tuple[exp.Expr, ...]


_Conditions = Callable[[Relation], Sequence[Expression]]


def _equated(part: Conjunct, mine: set[str], theirs: set[str]) -> tuple[Expression, exp.Expr] | None:
    """The two sides of an equality of which one is about each side of the join."""
    meaning, syntax = part.meaning, part.syntax
    if not isinstance(meaning, Call) or meaning.function != "=" or not isinstance(syntax, exp.EQ):
        return None
    for (own, _), (other, written) in (
        zip(meaning.arguments, (syntax.this, syntax.expression), strict=True),
        zip(meaning.arguments[::-1], (syntax.expression, syntax.this), strict=True),
    ):
        if set(columns_of(own)) <= mine and set(columns_of(other)) <= theirs:
            return own, written
    return None
