"""View deltas that a source makes itself: what it is asked for, as data, and what it must be able to do.

A source that can run something inside of its writers' transactions joins the rows that they change with the
other relations of a block, and appends what comes out to a *delta table*, which is captured like any table.
One row of it per statement is a mark: it says what the statement saw, so that the service knows whether
what it made can be taken as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import NamedTuple, Protocol, runtime_checkable

from rollview.sources.source import Comparison, SetupResult, Table

SIGN, RELATION, MARK = "sign", "relation", "mark"
"""Of a delta table: how often a row counts, the place of the relation that changed, and what marks have."""


class EqualColumns(NamedTuple):
    """Two relations of a block, by place, and the columns, by their own names, that are equal."""

    left: int
    left_column: str
    right: int
    right_column: str


@dataclass(frozen=True)
class DeltaRelation:
    """A relation of a block: the columns that are needed of it, and conditions that rows must meet."""

    table: Table
    columns: tuple[str, ...]
    conditions: tuple[Comparison, ...] = ()


class OfTable(NamedTuple):
    """A column of a relation, by its place."""

    place: int
    column: str


class OfGroup(NamedTuple):
    """What is kept of a group: a key, a sum or an extreme, by its name."""

    name: str


class Value(NamedTuple):
    """A constant, as the expressions of views have them."""

    value: bool | int | float | Decimal | str | date | None


class Applied(NamedTuple):
    """A function of formulas, called as the expressions of views call it.

    Averages are `AVERAGE`, of doubles `AVERAGE OF DOUBLES`: of a sum and a number, with the digits that the
    result has, and those behind the point.
    """

    function: str
    arguments: tuple[Formula, ...]


Formula = OfTable | OfGroup | Value | Applied
"""What is computed of a row, or of a group, with Spark's meaning."""


class Named(NamedTuple):
    """A column with what it has."""

    name: str
    formula: Formula


class Extreme(NamedTuple):
    """The least or the greatest value of a group."""

    name: str
    formula: Formula
    is_least: bool


@dataclass(frozen=True)
class AppliedView:
    """A view that is kept at the source itself: what its groups are, what is kept of each, and what is shown.

    `conditions` are those of the block. `rows` is the sum that counts the rows of a group. Without
    `is_grouped` the view is a bag of rows, which are all keys and are counted. Of a UNION ALL each input is
    kept for itself; the last one shows all of them, those `before` it as well, and the others show nothing.
    """

    keys: tuple[Named, ...]
    sums: tuple[Named, ...]
    extremes: tuple[Extreme, ...]
    conditions: tuple[Formula, ...]
    shown: tuple[Named, ...]
    rows: str
    is_grouped: bool
    before: tuple[DeltaDefinition, ...] = ()


@dataclass(frozen=True)
class DeltaDefinition:
    """The join. More rows than these are harmless, because Spark evaluates the conditions again.

    Where it is also applied, all conditions are here, and the source has to test them as Spark does.
    """

    name: str
    relations: tuple[DeltaRelation, ...]
    equalities: tuple[EqualColumns, ...]
    applied: AppliedView | None = None

    @property
    def is_captured(self) -> bool:
        """Whether there is a delta to capture; that of a single table that is applied here is in the log."""
        return len(self.relations) > 1 or self.applied is None

    @property
    def columns(self) -> tuple[tuple[int, str], ...]:
        """The columns of the delta table behind its own ones, each with the place of its relation."""
        return tuple((place, name) for place, each in enumerate(self.relations) for name in each.columns)


def column_at(number: int) -> str:
    """The names of the delta table's columns."""
    return f"c{number}"


def columns_of(definition: DeltaDefinition, types: tuple[str, str, str]) -> tuple[tuple[str, str], ...]:
    """The columns of a delta table with their Spark types; `types` are those of its own."""
    kinds = [dict(zip(each.table.columns, each.table.types, strict=True)) for each in definition.relations]
    own = zip((SIGN, RELATION, MARK), types, strict=True)
    return (
        *own,
        *((column_at(number), kinds[place][name]) for number, (place, name) in enumerate(definition.columns)),
    )


@dataclass(frozen=True)
class Marked:
    """A parsed mark: the place of the table that the statement changed, and what it did not see.

    `unseen` are transactions by their source txids, of those that were asked about. Statements of one
    `group` in a transaction may have run inside of each other. It began at a time.
    """

    relation: int
    unseen: frozenset[int]
    group: str
    began: float


@runtime_checkable
class MakesDeltas(Protocol):
    """A source whose writers can be made to compute view deltas."""

    def delta_obstacle(self, definition: DeltaDefinition) -> str:
        """Why this delta cannot be made here; empty if it can."""

    def delta_table(self, definition: DeltaDefinition) -> Table:
        """The table that it is appended to."""

    def known_deltas(self) -> frozenset[str]:
        """The delta tables that there are, as `source.table`."""

    def check_deltas(self, definitions: Sequence[DeltaDefinition]) -> SetupResult:
        """The plan of `add_deltas`."""

    def add_deltas(self, definitions: Sequence[DeltaDefinition]) -> SetupResult:
        """Lets writers make these deltas, too; again and again without harm."""

    def keep_deltas(self, definitions: Sequence[DeltaDefinition]) -> SetupResult:
        """Lets writers make no others than these any more."""

    def first_unseen(self, marks: Sequence[str]) -> int:
        """A source txid below which the statements of all these marks have seen whatever was committed."""

    def read_marks(self, marks: Sequence[tuple[str, int]], before: Sequence[int]) -> list[Marked]:
        """The parsed marks, each given with the number of transactions in `before` that came before its own.

        `before` are source txids in the order of their commits.
        """
