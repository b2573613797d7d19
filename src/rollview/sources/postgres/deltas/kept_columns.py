"""What is kept of each group of a view at the server: keys, sums and extremes, as SQL over joined rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from rollview.sources.deltas import AppliedView, Extreme, Formula, Named, OfGroup, OfTable
from rollview.sources.postgres.connections import quote
from rollview.sources.postgres.deltas.formulas import WHOLE, NotAlike, Term, column_term, term_of
from rollview.sources.postgres.deltas.triggers import JoinedRows

_KEYS = (*WHOLE, "string", "date", "boolean", "timestamp_ntz")
_EXTREMES = (*WHOLE, "date", "timestamp_ntz")
_LONGEST_NAME = 63


@dataclass(frozen=True)
class KeptColumns:
    """The columns of the table of groups, for one block of a view."""

    rows: JoinedRows
    view: AppliedView

    def term(self, formula: Formula) -> Term:
        """What is computed of a joined row."""

        def leaf(each: OfTable | OfGroup) -> Term:
            assert isinstance(each, OfTable)
            return column_term(
                self.rows.column(each.place, each.column), f"r{each.place}.{quote(each.column)}"
            )

        return term_of(formula, leaf)

    @cached_property
    def keys(self) -> tuple[Term, ...]:
        return tuple(self._key(each) for each in self.view.keys)

    def _key(self, each: Named) -> Term:
        term = self.term(each.formula)
        if isinstance(each.formula, OfTable):
            return term
        return Term(term.stored, term.kind)

    @cached_property
    def sums(self) -> tuple[Term, ...]:
        return tuple(self.term(each.formula) for each in self.view.sums)

    @cached_property
    def extremes(self) -> tuple[Term, ...]:
        found = (self.term(each.formula) for each in self.view.extremes)
        return tuple(Term(each.stored, each.kind) for each in found)

    def conditions(self) -> list[str]:
        return [self.term(each).sql for each in self.view.conditions]

    @property
    def obstacle(self) -> str:
        """Why the server cannot keep them as Spark computes them; empty if it can."""
        if len(self.rows.definition.name.encode()) > _LONGEST_NAME:
            return "its name is longer than names at the server can be"
        for left, left_column, right, right_column in self.rows.definition.equalities:
            for column in (self.rows.column(left, left_column), self.rows.column(right, right_column)):
                try:
                    column_term(column, "")
                except NotAlike:
                    return f"column {column.name} is compared otherwise at the server than in Spark"
        try:
            for condition in self.view.conditions:
                self.term(condition)
        except NotAlike as error:
            return f"{error} in a condition is left to Spark"
        for named, allowed, what in (
            (self.view.keys, _KEYS, "distinguished otherwise at the server than in Spark"),
            (self.view.sums, WHOLE, "not exact where they are added up"),
            (self.view.extremes, _EXTREMES, "ordered otherwise at the server than in Spark"),
        ):
            for each in named:
                try:
                    kind = self.term(each.formula).kind
                except NotAlike as error:
                    return f"{error} of its column {each.name} is left to Spark"
                if kind not in allowed and not kind.startswith("decimal"):
                    return f"values of {each.name}, which are {kind}, are {what}"
        return ""

    def is_numeric(self, number: int) -> bool:
        """Whether a key is kept as a number with digits behind the point, of which some may be zeros."""
        formula, term = self.view.keys[number].formula, self.keys[number]
        if isinstance(formula, OfTable):
            return self.rows.column(formula.place, formula.column).kind == "numeric"
        return term.is_number


def function_of(each: Extreme) -> str:
    """The aggregate function that finds an extreme."""
    return "min" if each.is_least else "max"
