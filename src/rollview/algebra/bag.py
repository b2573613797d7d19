"""Signed bags: the one algebra that every algorithm computes in.

A bag is a multiset of rows with integer counts that may be negative: a relation has counts +1, a delta
+n for insertions and −n for deletions. The laws that everything above relies on (salem2000 §4, with φ
for `net_effect`):

    φ(φ(R)) = φ(R)      φ(R + S) = φ(φ(R) + φ(S))      φ(R ⋈ S) = φ(φ(R) ⋈ φ(S))
    φ(σ(R)) = σ(φ(R))   φ(π(R)) = φ(π(φ(R)))           R − R = ∅      (R + S) ⋈ T = R ⋈ T + S ⋈ T

`Bag` is the protocol; `MemoryBag` implements it on a dictionary, where counts always are net.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import add, itemgetter
from typing import Any, Protocol, Self

from rollview.algebra.aggregates import compile_aggregate
from rollview.algebra.expression import Column, Expression, Row, compile_expression, to_sql
from rollview.errors import UnsupportedError

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

    def over(self, outputs: Sequence[Output]) -> Self:
        """The rows of a net bag without negative counts, each as often as it counts; outputs have windows."""

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
    """What a running total is called that does not have the last summand."""
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


class MemoryBag:
    """The protocol on a dictionary from row to count. Counts are net at all times."""

    __slots__ = ("columns", "counts")

    def __init__(self, columns: tuple[str, ...], counts: dict[Row, int]) -> None:
        """Takes ownership of `counts`, which holds no zeros."""
        self.columns = columns
        self.counts = counts

    @classmethod
    def of(cls, columns: Iterable[str], rows: Iterable[Row]) -> MemoryBag:
        """The bag of these rows, each counted as often as it occurs."""
        return cls.of_pairs(columns, ((row, 1) for row in rows))

    @classmethod
    def of_pairs(cls, columns: Iterable[str], pairs: Iterable[tuple[Row, int]]) -> MemoryBag:
        """The bag of these rows with these counts."""
        return cls(tuple(columns), _net(pairs))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MemoryBag) and self.columns == other.columns and self.counts == other.counts

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        rows = ", ".join(f"{count:+d}·{row!r}" for row, count in self.items())
        return f"MemoryBag({', '.join(self.columns)}: {rows or '∅'})"

    def __str__(self) -> str:
        """The rows in brackets, with counts where they are not one."""
        rows = []
        for row, count in self.items():
            values = ", ".join("NULL" if value is None else str(value) for value in row)
            rows.append(f"[{values}]" + (f"×{count}" if count != 1 else ""))
        return " ".join(rows) or "∅"

    def items(self) -> Iterator[tuple[Row, int]]:
        """Rows with counts, in an order that does not depend on how the bag was made."""
        return iter(sorted(self.counts.items(), key=lambda item: _sort_key(item[0])))

    def plus(self, other: MemoryBag) -> MemoryBag:
        if not other.counts:
            return self
        if not self.counts:
            return other
        counts = dict(self.counts)
        for row, count in other.counts.items():
            total = counts.get(row, 0) + count
            if total:
                counts[row] = total
            else:
                del counts[row]
        return MemoryBag(self.columns, counts)

    def negate(self) -> MemoryBag:
        return MemoryBag(self.columns, {row: -count for row, count in self.counts.items()})

    def select(self, condition: Expression) -> MemoryBag:
        holds = compile_expression(condition, self.columns)
        return MemoryBag(
            self.columns, {row: count for row, count in self.counts.items() if holds(row) is True}
        )

    def project(self, outputs: Sequence[Output]) -> MemoryBag:
        columns, make = _compile_projection(tuple(outputs), self.columns)
        if not self.counts:
            return MemoryBag(columns, {})
        return MemoryBag(columns, _net([(make(row), count) for row, count in self.counts.items()]))

    def join(
        self, other: MemoryBag, on: Sequence[tuple[str, str]], condition: Expression | None = None
    ) -> MemoryBag:
        columns = self.columns + other.columns
        if not self.counts or not other.counts:
            return MemoryBag(columns, {})
        left_key = column_getter(self.columns, [left for left, _ in on])
        right_key = column_getter(other.columns, [right for _, right in on])
        holds = None if condition is None else compile_expression(condition, columns)
        matches: dict[Row, list[tuple[Row, int]]] = {}
        for pair in other.counts.items():
            key = right_key(pair[0])
            if None not in key:
                matches.setdefault(key, []).append(pair)
        counts: dict[Row, int] = {}
        for left, left_count in self.counts.items():
            # A key with NULL was never stored, so it finds nothing.
            for right, right_count in matches.get(left_key(left), ()):
                row = left + right
                if holds is None or holds(row) is True:
                    counts[row] = left_count * right_count
        return MemoryBag(columns, counts)

    def distinct(self, names: Sequence[str]) -> MemoryBag:
        columns = tuple(names)
        return MemoryBag(columns, dict.fromkeys(map(column_getter(self.columns, columns), self.counts), 1))

    def summarize(self, keys: Sequence[str], measures: Sequence[Output]) -> MemoryBag:
        columns = (*keys, *(name for name, _ in measures))
        group_of = column_getter(self.columns, keys)
        compiled = [compile_expression(expression, self.columns) for _, expression in measures]
        groups: dict[Row, list[Any]] = {} if keys else {(): [0] * len(compiled)}
        for row, count in self.counts.items():
            sums = groups.setdefault(group_of(row), [0] * len(compiled))
            for position, measure in enumerate(compiled):
                value = measure(row)
                if value is not None:
                    sums[position] += value * count
        return MemoryBag(columns, {(*group, *sums): 1 for group, sums in groups.items()})

    def sharing(self, other: MemoryBag, names: Sequence[str]) -> MemoryBag:
        mine, theirs = column_getter(self.columns, names), column_getter(other.columns, names)
        wanted = {theirs(row) for row in other.counts}
        found = {row: count for row, count in self.counts.items() if mine(row) in wanted}
        return MemoryBag(self.columns, found)

    def pairs(self, other: MemoryBag, names: Sequence[str]) -> int:
        mine, theirs = column_getter(self.columns, names), column_getter(other.columns, names)
        rows = Counter(map(mine, self.counts))
        return sum(rows[theirs(row)] for row in other.counts)

    def added_up(self, keys: Sequence[str], sums: Sequence[str]) -> MemoryBag:
        return self.summarize(keys, keep(sums))

    def running(self, keys: Sequence[str], order: str, sums: Sequence[str]) -> MemoryBag:
        parts = self.added_up((*keys, order), sums)
        totals: dict[Row, tuple[Any, ...]] = {}
        rows = []
        for row in sorted(parts.counts, key=lambda row: row[len(keys)]):
            group, amounts = row[: len(keys)], row[len(keys) + 1 :]
            before = totals.get(group, (0,) * len(sums))
            totals[group] = tuple(map(add, before, amounts))
            rows.append((*row[: len(keys) + 1], *totals[group], *before))
        return MemoryBag.of((*keys, order, *sums, *map(before_it, sums)), rows)

    def group(self, keys: Sequence[str], outputs: Sequence[Output]) -> MemoryBag:
        columns = tuple(name for name, _ in outputs)
        group_of = column_getter(self.columns, keys)
        groups: dict[Row, list[tuple[Row, int]]] = {}
        for row, count in self.counts.items():
            groups.setdefault(group_of(row), []).append((row, count))
        compiled = [compile_aggregate(expression, self.columns) for _, expression in outputs]
        rows = (tuple([output(members) for output in compiled]) for members in groups.values())
        return MemoryBag.of(columns, rows)

    def weighted(self, column: str) -> MemoryBag:
        columns = tuple(name for name in self.columns if name != column)
        values, times = column_getter(self.columns, columns), self.columns.index(column)
        pairs = ((values(row), count * row[times]) for row, count in self.counts.items())
        return MemoryBag.of_pairs(columns, pairs)

    def over(self, outputs: Sequence[Output]) -> MemoryBag:
        raise UnsupportedError(f"windows are computed by Spark alone: {to_sql(outputs[0][1])}")

    def generated(self, generator: Expression, names: Sequence[str]) -> MemoryBag:
        raise UnsupportedError(f"{', '.join(names)}: {to_sql(generator)} is computed by Spark alone")

    def queried(
        self,
        sql: str,
        tables: Mapping[str, tuple[Expression, Sequence[Output]]],  # noqa: ARG002
        names: Sequence[str],  # noqa: ARG002
        extra: Sequence[str],  # noqa: ARG002
    ) -> MemoryBag:
        raise UnsupportedError(f"queries are computed by Spark alone: {sql}")

    def net_effect(self) -> MemoryBag:
        return self

    def is_empty(self) -> bool:
        return not self.counts

    @property
    def has_no_rows(self) -> bool:
        return not self.counts

    def materialized(self) -> MemoryBag:
        return self


def _net(pairs: Iterable[tuple[Row, int]]) -> dict[Row, int]:
    counts: dict[Row, int] = {}
    cancelled = False
    for row, count in pairs:
        if row in counts:
            counts[row] += count
            cancelled = cancelled or not counts[row]
        else:
            counts[row] = count
            cancelled = cancelled or not count
    return {row: count for row, count in counts.items() if count} if cancelled else counts


@lru_cache(maxsize=4096)
def _compile_projection(
    outputs: tuple[Output, ...], columns: tuple[str, ...]
) -> tuple[tuple[str, ...], Callable[[Row], Row]]:
    """The projected columns, and a function from an input row to the projected row."""
    names = tuple(name for name, _ in outputs)
    inputs = [expression.name for _, expression in outputs if isinstance(expression, Column)]
    if len(inputs) == len(outputs):
        return names, column_getter(columns, inputs)
    compiled = [compile_expression(expression, columns) for _, expression in outputs]
    return names, lambda row: tuple([value(row) for value in compiled])


def _sort_key(row: Row) -> tuple[tuple[bool, str, Any], ...]:
    """Sorts rows with NULLs and mixed types: NULL first, then by type name, then by value."""
    return tuple(
        (False, "", 0)
        if value is None
        else (True, "number", value)
        if isinstance(value, int | float)
        else (True, type(value).__name__, value)
        for value in row
    )
