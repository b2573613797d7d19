"""derivation: what follows from the state of a stored operator, without asking any source.

A definition that changes often asks for less than is stored already, and many queries ask for what some view
has stored in more detail. Both are written in one form, over the columns of the relations that are joined.
The stored rows S = π(σ_c(R1 ⋈ … ⋈ Rm)) stand for these relations in a query over R1 … Rn, n ≥ m, if

* the query's conditions imply every condition c, so that no row is missing (`algebra.implication`);
* what c does not imply of the query's conditions can be written over stored columns and the other relations:
  that is left to hold. A column may be written as another one that c equates with it;
* so can all that the query shows of it. Here equalities of the query count as well, as they hold by then.

Bags make no difference: a stored row counts as often as it occurs, and a join multiplies. Of sums of groups,
conditions, joins and new groups may speak of keys alone. A sum follows by adding up stored sums. A sum of
something else is added up once for each row of the group, which `_rows` counts, where that is a whole number
(beyer2000 §1 and §6). Whatever is not seen to follow is refused, and says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import TypeVar

from rollview.algebra.bag import Bag, Output, keep
from rollview.algebra.expression import (
    Call,
    Column,
    Expression,
    Literal,
    call,
    columns_of,
    conjunction,
    rename,
)
from rollview.algebra.folding import is_never_true
from rollview.algebra.implication import WHOLE, Facts
from rollview.algebra.relation import Relation
from rollview.algebra.text import plain_sql

B = TypeVar("B", bound=Bag)

_MOST_WAYS = 720
"""So many ways to find the stored relations among those of the query are tried."""

OTHER_TABLES = "it joins "
"""How the reason begins where a state has more tables than the query."""

_ONE_ROW = call("SUM", Literal(1))


@dataclass(frozen=True)
class Form:
    """The content of a state, over the columns of relations that are joined under conditions.

    `keys` are what its sums are grouped by; None for a state that is a bag of rows.
    """

    relations: tuple[Relation, ...]
    conditions: frozenset[Expression]
    columns: Mapping[str, Expression]
    keys: frozenset[Expression] | None = None

    def above(self, columns: Mapping[str, Expression], keys: tuple[str, ...] | None = None) -> Form:
        """The form of an operator whose state has these columns, each over the rows of this one."""
        over = {name: _over(each, self.columns) for name, each in columns.items()}
        by = None if keys is None else frozenset(over[key] for key in keys)
        return Form(self.relations, self.conditions, over, by)

    @property
    def types(self) -> dict[str, str]:
        """The types of the relations' columns, where they are known."""
        return {
            column: kind
            for each in self.relations
            for column, kind in zip(each.columns, each.table.types, strict=False)
        }

    @property
    def used(self) -> set[str]:
        """The columns of relations that the state depends on."""
        return {name for each in (*self.conditions, *self.columns.values()) for name in columns_of(each)}

    def renamed(self, aliases: Mapping[str, str]) -> Form:
        """The form with other aliases."""
        relations = tuple(Relation(aliases[each.alias], each.table) for each in self.relations)
        names = {
            old: new
            for before, after in zip(self.relations, relations, strict=True)
            for old, new in zip(before.columns, after.columns, strict=True)
        }

        def over(expression: Expression) -> Expression:
            return rename(expression, lambda name: names.get(name, name))

        keys = None if self.keys is None else frozenset(map(over, self.keys))
        columns = {name: over(each) for name, each in self.columns.items()}
        return Form(relations, frozenset(map(over, self.conditions)), columns, keys)


@dataclass(frozen=True)
class Term:
    """A join in a sum of them, with its sign: outer joins and UNION ALL are such sums."""

    sign: int
    form: Form

    def renamed(self, columns: Sequence[str]) -> Term:
        """The term with other names of columns."""
        named = dict(zip(columns, self.form.columns.values(), strict=True))
        return Term(self.sign, replace(self.form, columns=named))


@dataclass(frozen=True)
class Match:
    """What a state stands for in a query, by the query's aliases, and what is left to do.

    `conditions` are left to hold; `columns` has what the query projects of the joined rows, and what its sums
    add up. If the state `has_groups`, each of its rows is a group, which may be one without rows.
    """

    covered: frozenset[str]
    conditions: tuple[Expression, ...]
    columns: Mapping[str, Expression]
    has_groups: bool
    is_grouped_alike: bool


class _Missing(Exception):
    """Something that the query needs is not stored."""


def matches(new: Form, old: Form, stored: Callable[[str], Column] = Column) -> tuple[tuple[Match, ...], str]:
    """The ways in which an old state stands for relations of the new form; if there is none, why not.

    `stored` says what columns of the state are called.
    """
    if new.keys is None and old.keys is not None:
        return (), "it has sums of groups, and rows are needed"
    found: dict[frozenset[str], Match] = {}
    reason = _more_tables(new, old)
    for aliases in islice(_ways(new.relations, old.relations), _MOST_WAYS):
        try:
            match = _Matching(new, old.renamed(aliases), stored).match()
        except _Missing as missing:
            reason = str(missing)
        else:
            found.setdefault(match.covered, match)
    return tuple(found.values()), "" if found else reason


def match_of_sums(new: Sequence[Term], old: Sequence[Term]) -> tuple[Match | None, str]:
    """How a sum of joins follows from a stored one; if it does not, why not.

    What one join needs of one that is stored is put into all others: each then has to be one of the query's,
    and what is left has to be empty under these conditions.
    """
    reason = "it is a sum of joins, such as an outer join or UNION ALL, and not all of them fit"
    for place, (first, then) in enumerate((new[0], each) for each in old):
        if first.sign != then.sign or len(first.form.relations) != len(then.form.relations):
            continue
        ways, why = matches(first.form, then.form)
        for match in ways:
            if _is_rest_alike(new[1:], (*old[:place], *old[place + 1 :]), match):
                return match, ""
        reason = why or reason
    return None, reason


def _is_rest_alike(new: Sequence[Term], old: Sequence[Term], match: Match) -> bool:
    """Whether the stored terms that remain, under the conditions of a match, are those of the query."""
    remaining = list(old)
    for term in new:
        alike = next((each for each in remaining if _is_alike(term, each, match)), None)
        if alike is None:
            return False
        remaining.remove(alike)
    return all(_is_empty(each.form, match) for each in remaining)


def _is_alike(new: Term, old: Term, match: Match) -> bool:
    if new.sign != old.sign or len(new.form.relations) != len(old.form.relations):
        return False
    ways = islice(_ways(new.form.relations, old.form.relations), _MOST_WAYS)
    return any(_is_same(new.form, old.form.renamed(aliases), match) for aliases in ways)


def _is_same(new: Form, old: Form, match: Match) -> bool:
    """Whether a stored join gives what a query's does, if a match is applied to it."""
    if _retyped(new, old) is not None:
        return False
    given = old.conditions | {_over(each, old.columns) for each in match.conditions}
    types = {**old.types, **new.types}
    wanted, known = Facts(new.conditions, types), Facts(given, types)
    return (
        all(map(wanted.implies, given))
        and all(map(known.implies, new.conditions))
        and all(
            wanted.canonical(_over(each, old.columns)) == wanted.canonical(new.columns[name])
            for name, each in match.columns.items()
        )
    )


def _retyped(new: Form, old: Form) -> str | None:
    """A column that both use, and that has another type now."""
    now, then = new.types, old.types
    return next((name for name in sorted(now.keys() & then.keys()) if now[name] != then[name]), None)


def _is_empty(old: Form, match: Match) -> bool:
    left = [_over(each, old.columns) for each in match.conditions]
    return any(map(is_never_true, left)) or Facts(old.conditions | set(left), old.types).is_impossible


def same_sums(new: Sequence[Term], old: Sequence[Term]) -> bool:
    """Whether two sums of joins are the same, whatever their relations are called."""
    return len(new) == len(old) and all(
        one.sign == other.sign and _numbered(one.form) == _numbered(other.form)
        for one, other in zip(new, old, strict=True)
    )


def _numbered(form: Form) -> tuple[object, ...]:
    """A form with numbers for aliases, as something to compare."""
    found = form.renamed({each.alias: f"r{place}" for place, each in enumerate(form.relations)})
    tables = tuple(each.table.qualified for each in form.relations)
    types = {name: kind for name, kind in found.types.items() if name in found.used}
    return tables, found.conditions, tuple(found.columns.items()), types


def _more_tables(new: Form, old: Form) -> str:
    """What the old form joins, and the new one does not."""
    left = [each.table.qualified for each in new.relations]
    for each in old.relations:
        if each.table.qualified not in left:
            return f"{OTHER_TABLES}{each.table.qualified}, which is not joined here"
        left.remove(each.table.qualified)
    return ""


def _ways(new: tuple[Relation, ...], old: tuple[Relation, ...]) -> Iterator[dict[str, str]]:
    """The ways to call the old relations as the new ones are called, each with its own table."""
    if not old:
        yield {}
        return
    first, *others = old
    for place, each in enumerate(new):
        if each.table.qualified == first.table.qualified:
            for way in _ways((*new[:place], *new[place + 1 :]), tuple(others)):
                yield {first.alias: each.alias, **way}


@dataclass(frozen=True)
class _Matching:
    """A new form, and an old one over some of its relations."""

    new: Form
    old: Form
    stored: Callable[[str], Column]

    @cached_property
    def covered(self) -> frozenset[str]:
        aliases = {each.alias for each in self.old.relations}
        both = (*self.old.relations, *(each for each in self.new.relations if each.alias in aliases))
        return frozenset(column for each in both for column in each.columns)

    @cached_property
    def types(self) -> dict[str, str]:
        """Each of the two may have columns that the other one does not use."""
        return {**self.old.types, **self.new.types}

    @cached_property
    def wanted(self) -> Facts:
        """What holds for the rows that the query is about."""
        return Facts(self.new.conditions, self.types)

    @cached_property
    def given(self) -> Facts:
        """What holds for all stored rows."""
        return Facts(self.old.conditions, self.types)

    @cached_property
    def sums(self) -> dict[Expression, Column]:
        """What is stored as a sum."""
        if self.old.keys is None:
            return {}
        columns = self.old.columns.items()
        return {
            self.wanted.canonical(each): self.stored(name)
            for name, each in columns
            if each not in self.old.keys
        }

    def known(self, facts: Facts) -> dict[Expression, Column]:
        """What is stored of rows, or the same for all rows of a group."""
        columns = self.old.columns.items()
        keys = self.old.keys
        return {
            facts.canonical(each): self.stored(name) for name, each in columns if keys is None or each in keys
        }

    def match(self) -> Match:
        """The match; raises what is missing."""
        if (changed := _retyped(self.new, self.old)) is not None:
            raise _Missing(f"{changed} had another type when the view was set up")
        for condition in sorted(self.old.conditions, key=repr):
            if not self.wanted.implies(condition):
                raise _Missing(f"its rows are those with {plain_sql(condition)}, and others are needed")
        left = [each for each in sorted(self.new.conditions, key=repr) if not self.given.implies(each)]
        within = _Writing(self, self.given)
        conditions = tuple(map(within.written, left))
        is_alike = self._is_grouped_alike
        if self.old.keys is not None and not self.old.keys and not is_alike:
            # The single group is there without rows.
            conditions = (*conditions, call("<>", self.sums[_ONE_ROW], Literal(0)))
        after = _Writing(self, self.wanted)
        keys = self.new.keys
        columns = {
            name: after.written(each) if keys is None or each in keys else self._summed(each, after)
            for name, each in self.new.columns.items()
        }
        aliases = frozenset(each.alias for each in self.old.relations)
        return Match(aliases, conditions, columns, self.old.keys is not None, is_alike)

    @property
    def _is_grouped_alike(self) -> bool:
        """Whether the groups are the same, so that none of them is added to another one."""
        if (
            self.new.keys is None
            or self.old.keys is None
            or len(self.new.relations) > len(self.old.relations)
        ):
            return False
        return {*map(self.given.canonical, self.new.keys)} == {*map(self.given.canonical, self.old.keys)}

    def _summed(self, expression: Expression, writing: _Writing) -> Expression:
        """What a sum adds up."""
        if not isinstance(expression, Call) or expression.function != "SUM":
            raise _Missing(f"{plain_sql(expression)} is needed of each group")
        (argument,) = expression.arguments
        if self.old.keys is None:
            return writing.written(argument)
        if (stored := self.sums.get(self.wanted.canonical(expression))) is not None:
            return stored
        try:
            each = writing.written(argument)
        except _Missing:
            raise _Missing(f"it has no sum of {plain_sql(argument)}") from None
        if not _is_whole(argument, self.types):
            what = f"{plain_sql(argument)} would be added up once for each row of a group"
            raise _Missing(f"{what}, which is exact for whole numbers alone")
        return call("*", each, self.sums[_ONE_ROW])


@dataclass(frozen=True)
class _Writing:
    """Writes expressions over stored columns and other relations; equal is what these facts say."""

    matching: _Matching
    facts: Facts

    @cached_property
    def known(self) -> dict[Expression, Column]:
        return self.matching.known(self.facts)

    def written(self, expression: Expression) -> Expression:
        """The expression; raises the column that is missing."""
        if not self.matching.covered.isdisjoint(columns_of(expression)):
            found = self.known.get(self.facts.canonical(expression))
            if found is not None:
                return found
        if isinstance(expression, Call):
            return Call(expression.function, tuple(map(self.written, expression.arguments)))
        return self._column(expression) if isinstance(expression, Column) else expression

    def _column(self, column: Column) -> Expression:
        if column.name not in self.matching.covered:
            return column
        stands = self.facts.classes.get(column.name)
        for each, other in self.facts.classes.items():
            if other == stands and each not in self.matching.covered:
                return Column(each)
        constant = self.matching.given.constant(column.name)
        if constant is None:
            raise _Missing(f"it does not have {column.name}")
        return constant


def _is_whole(expression: Expression, types: Mapping[str, str]) -> bool:
    """Whether a number is a whole one of at most eight bytes, so that it can be multiplied by a count."""
    match expression:
        case Column(name=name):
            return types.get(name, "") in WHOLE
        case Literal(value=value):
            return type(value) is int
        case Call(function="IF", arguments=(_, one, other)):
            return _is_whole(one, types) and _is_whole(other, types)
    return False


ROWS = "_rows"
"""What counts the rows of a group."""


@dataclass(frozen=True)
class KeptForm:
    """What a source keeps of each group of a view, over the rows below, and what readers see of that.

    `sums` add up; that of `rows` counts the rows. `extremes` have names, and are least or not. A view that is
    not grouped is a bag: its rows are all keys.
    """

    keys: tuple[Output, ...]
    sums: tuple[Output, ...]
    extremes: tuple[tuple[str, Expression, bool], ...]
    shown: tuple[Output, ...]
    rows: str = ROWS
    is_grouped: bool = True

    @classmethod
    def of_rows(cls, columns: tuple[str, ...]) -> KeptForm:
        """A bag of rows, each with how often it is there."""
        return cls(keep(columns), ((ROWS, Literal(1)),), (), keep(columns), is_grouped=False)

    @property
    def names(self) -> frozenset[str]:
        """Of all that is kept."""
        return frozenset(
            [name for name, _ in (*self.keys, *self.sums)] + [name for name, _, _ in self.extremes]
        )


@dataclass(frozen=True)
class Derivation:
    """Which rows of a stored state count, and what becomes of each; `sums` are added up for all `keys`."""

    condition: Expression
    outputs: tuple[Output, ...]
    keys: tuple[str, ...] = ()
    sums: tuple[str, ...] = ()

    def run(self, state: B) -> B:
        """The new state."""
        rows = state.select(self.condition).project(self.outputs)
        if not self.sums:
            return rows.net_effect()
        return rows.summarize(self.keys, keep(self.sums))


def derive(new: Form | None, old: Form | None) -> Derivation | None:
    """How the whole new state follows from the old one; None if it does not."""
    if new is None or old is None or len(new.relations) != len(old.relations):
        return None
    ways, _ = matches(new, old)
    if not ways:
        return None
    match = ways[0]
    condition, outputs = conjunction(match.conditions), tuple(match.columns.items())
    if new.keys is None or match.is_grouped_alike:
        return Derivation(condition, outputs)
    names = tuple(name for name, each in new.columns.items() if each in new.keys)
    sums = tuple(name for name in new.columns if name not in names)
    return Derivation(condition, outputs, names, sums)


def _over(expression: Expression, columns: Mapping[str, Expression]) -> Expression:
    """The expression with each column replaced by its definition."""
    if isinstance(expression, Column):
        return columns[expression.name]
    if isinstance(expression, Call):
        return Call(expression.function, tuple(_over(each, columns) for each in expression.arguments))
    return expression
