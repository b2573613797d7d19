"""derivation: the state of an operator from what is stored of another one, without asking any source.

A definition that changes often asks for less than is stored already: a column is left out, another one is
computed from stored ones, a condition on stored columns is added. Both operators are written in one form,
over the columns of the relations. If all conditions of the old one are among those of the new one, and what
is left of them and all columns can be written over stored columns, then

    S_new = π(σ(S_old))

row by row. Of groups with sums the keys must be the same, conditions may speak of keys alone, and sums must
be there as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from rollview.algebra.bag import Bag, Output
from rollview.algebra.expression import Call, Column, Expression, Literal, conjunction

B = TypeVar("B", bound=Bag)


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
    """Which rows of a stored state count, and what becomes of each."""

    condition: Expression
    outputs: tuple[Output, ...]

    def run(self, state: B) -> B:
        """The new state."""
        return state.select(self.condition).project(self.outputs).net_effect()


def derive(new: Form | None, old: Form | None) -> Derivation | None:
    """How the new state follows from the old one; None if it does not."""
    if new is None or old is None or new.relations != old.relations or new.keys != old.keys:
        return None
    if not old.conditions <= new.conditions:
        return None
    stored = {expression: Column(name) for name, expression in old.columns.items()}
    told = stored if old.keys is None else {each: stored[each] for each in old.keys}
    try:
        added = tuple(_written(each, told) for each in new.conditions - old.conditions)
        outputs = tuple(
            (name, _written(each, stored) if old.keys is None else stored[each])
            for name, each in new.columns.items()
        )
    except KeyError:
        return None
    return Derivation(conjunction(added), outputs)


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
