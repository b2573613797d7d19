"""derivation: the state of an operator from what is stored of another one, without asking any source.

A definition that changes often asks for less than is stored already: a column is left out, another one is
computed from stored ones, a condition on stored columns is added; and many queries ask for what some view has
stored in more detail. Both operators are written in one form, over the columns of the relations. If all
conditions of the old one are among those of the new one, and what is left of them and all columns can be
written over stored columns, then

    S_new = π(σ(S_old))

row by row, and sums are added up from rows, or from sums of finer groups (beyer2000 §6). Of groups,
conditions and new keys may speak of keys alone, and sums must be there as they are. Relations may have other
names and another order in the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, permutations
from typing import TypeVar

from rollview.algebra.bag import Bag, Output, keep
from rollview.algebra.expression import Call, Column, Expression, Literal, conjunction
from rollview.algebra.relation import column_of

B = TypeVar("B", bound=Bag)

_MIRRORED = {">": "<", ">=": "<="}
_SYMMETRIC = ("=", "<=>")

_MOST_ORDERS = 720
"""So many orders of relations are tried."""


@dataclass(frozen=True)
class Form:
    """What a state has, over the columns of relations that are joined under conditions.

    `keys` are what its sums are grouped by; None for a state that is a bag of rows.
    """

    relations: tuple[tuple[str, str], ...]
    conditions: frozenset[Expression]
    columns: Mapping[str, Expression]
    keys: frozenset[Expression] | None = None

    def above(self, columns: Mapping[str, Expression], keys: tuple[str, ...] | None = None) -> Form:
        """The form of an operator whose state has these columns, each over the rows of this one."""
        over = {name: _over(each, self.columns) for name, each in columns.items()}
        by = None if keys is None else frozenset(over[key] for key in keys)
        return Form(self.relations, self.conditions, over, by)


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
    """How the new state follows from the old one; None if it does not."""
    if new is None or old is None:
        return None
    found = (_derive(_normal(new, {}), _normal(old, names)) for names in _renamings(old, new))
    return next((each for each in found if each is not None), None)


def _derive(new: Form, old: Form) -> Derivation | None:
    """The same, of forms whose relations have the same names."""
    if not old.conditions <= new.conditions or (new.keys is None and old.keys is not None):
        return None
    stored = {expression: Column(name) for name, expression in old.columns.items()}
    told = stored if old.keys is None else {each: stored[each] for each in old.keys}
    try:
        condition = conjunction(tuple(_written(each, told) for each in new.conditions - old.conditions))
        if new.keys is None:
            written = {name: _written(each, stored) for name, each in new.columns.items()}
            return Derivation(condition, tuple(written.items()))
        keys = {name: _written(each, told) for name, each in new.columns.items() if each in new.keys}
        sums = {name: each for name, each in new.columns.items() if name not in keys}
        if old.keys is None:
            summed = {name: _written(_summed(each), stored) for name, each in sums.items()}
        else:
            summed = {name: stored[each] for name, each in sums.items()}
    except KeyError:
        return None
    outputs = tuple((keys | summed).items())
    if old.keys == new.keys:
        return Derivation(condition, outputs)
    return Derivation(condition, outputs, tuple(keys), tuple(sums))


def _summed(expression: Expression) -> Expression:
    """What a sum adds up."""
    if isinstance(expression, Call) and expression.function == "SUM":
        return expression.arguments[0]
    raise KeyError(expression)


def _renamings(old: Form, new: Form) -> Iterator[dict[str, str]]:
    """The ways to call the old relations as the new ones are called, each with its own table."""
    if sorted(table for _, table in old.relations) != sorted(table for _, table in new.relations):
        return
    for order in islice(permutations(new.relations), _MOST_ORDERS):
        if all(mine[1] == theirs[1] for mine, theirs in zip(old.relations, order, strict=True)):
            yield {mine[0]: theirs[0] for mine, theirs in zip(old.relations, order, strict=True)}


def _normal(form: Form, names: Mapping[str, str]) -> Form:
    """The form with other names of relations, and with comparisons written one way."""
    keys = None if form.keys is None else frozenset(_renamed(each, names) for each in form.keys)
    columns = {name: _renamed(each, names) for name, each in form.columns.items()}
    return Form((), frozenset(_renamed(each, names) for each in form.conditions), columns, keys)


def _renamed(expression: Expression, names: Mapping[str, str]) -> Expression:
    if isinstance(expression, Column):
        alias, dot, name = expression.name.partition(".")
        return Column(column_of(names[alias], name)) if dot and alias in names else expression
    if not isinstance(expression, Call):
        return expression
    arguments = tuple(_renamed(each, names) for each in expression.arguments)
    function = _MIRRORED.get(expression.function, expression.function)
    if function != expression.function:
        return Call(function, arguments[::-1])
    return Call(function, tuple(sorted(arguments, key=repr)) if function in _SYMMETRIC else arguments)


def _over(expression: Expression, columns: Mapping[str, Expression]) -> Expression:
    """The expression with what each column stands for."""
    if isinstance(expression, Column):
        return columns[expression.name]
    if isinstance(expression, Call):
        return Call(expression.function, tuple(_over(each, columns) for each in expression.arguments))
    return expression


def _written(expression: Expression, stored: Mapping[Expression, Column]) -> Expression:
    """The expression over stored columns; a KeyError if it needs another one."""
    if expression in stored:
        return stored[expression]
    if isinstance(expression, Call):
        return Call(expression.function, tuple(_written(each, stored) for each in expression.arguments))
    if isinstance(expression, Literal):
        return expression
    raise KeyError(expression)
