"""The bag in memory: the protocol of `algebra.bag` on a dictionary from row to count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import add
from typing import Any

from rollview.algebra.bag import Output, before_it, column_getter, keep
from rollview.algebra.expression import Call, Column, Expression, Row, to_sql
from rollview.errors import UnsupportedError
from rollview.lab.memory.compiled import compile_expression


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

    def over(self, outputs: Sequence[Output], keys: Sequence[str]) -> MemoryBag:  # noqa: ARG002
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


Members = Sequence[tuple[Row, int]]
"""The rows of a group with their counts."""

_Values = list[tuple[Any, int]]

AGGREGATES: dict[str, Callable[[_Values], Any]] = {
    "MIN": lambda values: min((value for value, _ in values), default=None),
    "MAX": lambda values: max((value for value, _ in values), default=None),
    "COUNT": lambda values: sum(count for _, count in values),
    "COUNT DISTINCT": lambda values: len({value for value, _ in values}),
    "SUM": lambda values: sum(value * count for value, count in values) if values else None,
}
"""Aggregate functions over values that are not NULL: the few that simulated views use."""


def compile_aggregate(expression: Expression, columns: tuple[str, ...]) -> Callable[[Members], Any]:
    """A function from the rows of a group to the expression's value; bare columns are those of a key."""
    if isinstance(expression, Call) and expression.function in AGGREGATES:
        function = AGGREGATES[expression.function]
        argument = compile_expression(expression.arguments[0], columns)

        def aggregate(members: Members) -> Any:
            values = [(argument(row), count) for row, count in members]
            return function([each for each in values if each[0] is not None])

        return aggregate
    if not isinstance(expression, Call):
        compiled = compile_expression(expression, columns)
        return lambda members: compiled(members[0][0])
    # The parts first, then the function over their values.
    parts = [compile_aggregate(each, columns) for each in expression.arguments]
    names = tuple(f"_{number}" for number in range(len(parts)))
    whole = compile_expression(Call(expression.function, tuple(map(Column, names))), names)
    return lambda members: whole(tuple([part(members) for part in parts]))
