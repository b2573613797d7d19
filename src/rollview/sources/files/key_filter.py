"""Key values that a look-up looks for, made into something a file reader can use.

Values are compared as Spark would compare the columns. Where Spark would convert one side first (a string
beside a number, a float with its NaN and two zeros) nothing is filtered: more rows than asked for are
harmless, fewer are wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from rollview.rows import ColumnRanges, arrow_type
from rollview.sources.source import Lookup, Rows, run_plan

MOST_RANGES = 16
"""Keys are merged into this many ranges at most: Spark tests a condition per row group, long ones per row."""


@dataclass(frozen=True, eq=False)
class KeyFilter:
    """The values looked for in one column: distinct, sorted, without NULL, of the column's own type."""

    column: str
    values: pa.Array

    @cached_property
    def listed(self) -> list[Any]:
        """The values as Python has them."""
        listed: list[Any] = self.values.to_pylist()
        return listed

    @cached_property
    def ranges(self) -> tuple[tuple[Any, Any], ...]:
        """Few closed ranges that hold all values, cut where the gaps are widest."""
        if not len(self.values):
            return ()
        distances = _distances(self.values)
        widest = pc.sort_indices(distances, sort_keys=[("", "descending")])[: MOST_RANGES - 1].to_pylist()
        cuts = sorted(position + 1 for position in widest)
        bounds = zip([0, *cuts], [*cuts, len(self.values)], strict=True)
        return tuple((self.values[first].as_py(), self.values[end - 1].as_py()) for first, end in bounds)

    def column_ranges(self) -> ColumnRanges:
        return ColumnRanges(self.column, self.ranges)

    def filter(self) -> pc.Expression:
        """The exact values, behind their ranges, by which Arrow skips row groups."""
        field = pc.field(self.column)
        within = None
        for low, high in self.ranges:
            bounds = pa.scalar(low, self.values.type), pa.scalar(high, self.values.type)
            part = (field >= bounds[0]) & (field <= bounds[1])
            within = part if within is None else within | part
        return within & field.isin(self.values)


def key_filters(keys: pa.Table, types: Mapping[str, str]) -> tuple[KeyFilter, ...]:
    """The keys to look for, by the columns that Arrow can compare with the table's.

    The result says nothing about columns that it leaves out; without any, every row may match.
    """
    known = []
    for name in keys.column_names:
        values = _as_type(keys[name], arrow_type(types[name]))
        if values is not None:
            unique = pc.unique(values)
            known.append(KeyFilter(name, unique.take(pc.sort_indices(unique))))
    return tuple(known)


def comparable(key_type: str, column_type: str) -> bool:
    """Whether Arrow can look for keys of one Spark SQL type in a column of another."""
    given, kind = arrow_type(key_type), arrow_type(column_type)
    return bool(pa.types.is_integer(given) and pa.types.is_integer(kind)) or _comparable(given, kind)


def _as_type(values: pa.ChunkedArray, kind: pa.DataType) -> pa.Array | None:
    """The values that a column of this type can have at all; None if only Spark can decide."""
    if pa.types.is_nested(kind):
        return None
    values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    values = values.drop_null()
    if not len(values):
        return pa.array([], kind)
    given = values.type
    try:
        if pa.types.is_integer(given) and pa.types.is_integer(kind):
            width = kind.bit_width - 1
            possible = pc.and_(
                pc.greater_equal(values, pa.scalar(-(2**width), pa.int64())),
                pc.less_equal(values, pa.scalar(2**width - 1, pa.int64())),
            )
            return values.filter(possible).cast(kind)
        if _comparable(given, kind):
            return values.cast(kind)
    except pa.ArrowInvalid:
        # Some value has no place in the column's type; Spark would compare in a wider one.
        return None
    return None


def _comparable(given: pa.DataType, kind: pa.DataType) -> bool:
    if pa.types.is_decimal(kind):
        return bool(pa.types.is_decimal(given) or pa.types.is_integer(given))
    if pa.types.is_string(kind):
        return given in (pa.string(), pa.large_string(), pa.string_view())
    if pa.types.is_timestamp(kind):
        return bool(pa.types.is_timestamp(given)) and bool(given.tz) == bool(kind.tz)
    return bool(pa.types.is_date(kind) and given == kind)


def _distances(values: pa.Array) -> pa.Array:
    """How far each value is from the one before; floating point is exact enough to choose cuts by."""
    if pa.types.is_string(values.type):
        # Eight bytes distinguish most strings, and their order is that of the strings.
        numbers = [float(int.from_bytes(text.encode()[:8].ljust(8, b"\0"))) for text in values.to_pylist()]
        measured = pa.array(numbers, pa.float64())
    elif pa.types.is_decimal(values.type):
        measured = values.cast(pa.float64())
    else:
        whole = (
            values.cast(pa.int32()).cast(pa.int64())
            if pa.types.is_date(values.type)
            else values.cast(pa.int64())
        )
        measured = whole.cast(pa.float64(), safe=False)
    return pc.subtract(measured[1:], measured[:-1])


# Look-ups answered from files: the matching rows if they can be read now, or a scan for Spark.


class State(Protocol):
    """A table at one state."""

    @property
    def types(self) -> Mapping[str, str]:
        """Its columns with their Spark SQL types."""

    def everything(self, columns: Sequence[str]) -> Rows:
        """All rows: these columns and `_count`."""

    def matching(self, columns: Sequence[str], filters: Sequence[KeyFilter], now: bool) -> Rows:
        """At least the rows that pass every filter; `now`: as an Arrow table."""


def look_up_all(plan: Sequence[Lookup], state: State) -> tuple[Rows, ...]:
    """The rows of every look-up of one table, all at this state."""
    parents = {lookup.parent for lookup in plan}

    def find(lookup: Lookup, keys: pa.Table | None) -> Rows:
        filters = () if keys is None else key_filters(keys, state.types)
        if not filters:
            return state.everything(lookup.columns)
        return state.matching(lookup.columns, filters, now=plan.index(lookup) in parents)

    return run_plan(plan, find)
