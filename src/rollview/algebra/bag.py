"""Signed bags: the one algebra that every algorithm computes in.

A bag is a multiset of rows with integer counts that may be negative: a relation has counts +1, a delta
+n for insertions and −n for deletions. The laws that everything above relies on (salem2000 §4, with φ
for `net_effect`):

    φ(φ(R)) = φ(R)      φ(R + S) = φ(φ(R) + φ(S))      φ(R ⋈ S) = φ(φ(R) ⋈ φ(S))
    φ(σ(R)) = σ(φ(R))   φ(π(R)) = φ(π(φ(R)))           R − R = ∅      (R + S) ⋈ T = R ⋈ T + S ⋈ T

`Bag` is the protocol. The product's is `bags/placed_bag.py`, the simulator's `lab/memory/bag.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Protocol, Self

from rollview.algebra.expression import Column, Expression, Row

COUNT = "_count"
"""The column that carries a row's multiplicity, where a bag is a table: +1 inserted, −1 deleted."""

Output = tuple[str, Expression]
"""A column of a projection: its name and how to compute it."""


class Bag(Protocol):
    """A signed multiset of rows. Every operation gives a new bag."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the row's values, in order."""

    def plus(self, other: Self) -> Self:
        """R + S: counts add up. Both bags have the same columns."""

    def negate(self) -> Self:
        """−R: every count changes its sign."""

    def select(self, condition: Expression) -> Self:
        """σ: the rows for which the condition is true; unknown is not true."""

    def project(self, outputs: Sequence[Output]) -> Self:
        """π: computes the named expressions; counts of rows that become equal add up."""

    def join(self, other: Self, on: Sequence[tuple[str, str]], condition: Expression | None = None) -> Self:
        """R ⋈ S: pairs equal on the column pairs `on`, for which `condition` holds; counts multiply.

        NULL equals nothing, not even NULL. Without pairs it is the product. Columns are disjoint.
        """

    def distinct(self, names: Sequence[str]) -> Self:
        """The support: the values of these columns, each once, whatever the counts.

        Rows that cancel are in the support of a bag that is not net, and not in that of its net effect.
        """

    def summarize(self, keys: Sequence[str], measures: Sequence[Output]) -> Self:
        """One row per group, with each measure summed count-weighted over it; NULLs are left out.

        Zeros are kept: a group whose rows cancel still is a group of a summary delta; adding it changes
        nothing. As for `distinct`, equal rows that cancel make such a group only if the bag is not net.
        Without keys there is exactly one group, even of nothing.
        """

    def sharing(self, other: Self, names: Sequence[str]) -> Self:
        """The rows that have, in these columns, the values of a row of another bag; NULL is like NULL."""

    def pairs(self, other: Self, names: Sequence[str]) -> int | None:
        """How many pairs of rows have the same values in these columns; None if that takes a job to know."""

    def added_up(self, keys: Sequence[str], sums: Sequence[str]) -> Self:
        """As `summarize`, for columns that are such sums already: what comes out has their types."""

    def running(self, keys: Sequence[str], order: str, sums: Sequence[str]) -> Self:
        """One row per group and value of `order`: the sums up to it, and under `before_it` those before."""

    def group(self, keys: Sequence[str], outputs: Sequence[Output]) -> Self:
        """One row per group of a net bag without negative counts: outputs are aggregates over its rows.

        A row takes part as often as it counts. Only groups that have rows are there.
        """

    def weighted(self, column: str) -> Self:
        """The rows without a column, each as often as the column says, times its count."""

    def over(self, outputs: Sequence[Output], keys: Sequence[str]) -> Self:
        """The rows of a net bag without negative counts, each as often as it counts; outputs have windows.

        All of these windows partition by `keys`, among others.
        """

    def generated(self, generator: Expression, names: Sequence[str]) -> Self:
        """Each row as often as a generator makes something of it, with that in further columns."""

    def queried(
        self,
        sql: str,
        tables: Mapping[str, tuple[Expression, Sequence[Output]]],
        names: Sequence[str],
        extra: Sequence[str],
    ) -> Self:
        """The answer of a query, under these names, for every combination of the `extra` columns on its own.

        `tables` says which rows of a net bag without negative counts each table has, and which columns.
        """

    def net_effect(self) -> Self:
        """φ: counts added up per row, zeros dropped."""

    def is_empty(self) -> bool:
        """Whether the net effect has no row."""

    @property
    def has_no_rows(self) -> bool:
        """Whether that is known without computing anything."""

    def materialized(self) -> Self:
        """The same bag, computed now, because it will be looked at more than once."""


def keep(names: Iterable[str]) -> tuple[Output, ...]:
    """The projection that passes columns on as they are."""
    return _keep(tuple(names))


@lru_cache(maxsize=4096)
def _keep(names: tuple[str, ...]) -> tuple[Output, ...]:
    return tuple((name, Column(name)) for name in names)


def before_it(name: str) -> str:
    """The name of a running total without the last summand."""
    return f"{name} before"


def column_getter(columns: tuple[str, ...], names: Sequence[str]) -> Callable[[Row], Row]:
    """A function from a row to the tuple of the named columns."""
    return _column_getter(columns, tuple(names))


@lru_cache(maxsize=4096)
def _column_getter(columns: tuple[str, ...], names: tuple[str, ...]) -> Callable[[Row], Row]:
    positions = [columns.index(name) for name in names]
    if not positions:
        return lambda row: ()
    if len(positions) == 1:
        position = positions[0]
        return lambda row: (row[position],)
    return itemgetter(*positions)
