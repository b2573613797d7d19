"""The first rows of a table, in the order in which Spark would sort them, and how many rows there are.

Rows that are at hand as an Arrow table are sorted here, others by Spark. Both give the same rows in the same
order: NULL first, NaN last, text by its bytes, arrays and structs value by value.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from rollview.errors import InputError
from rollview.service.requests import Page

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def page_of(
    found: pa.Table | DataFrame, limit: int | None, first: Sequence[str] = (), ordered: bool = True
) -> Page:
    """The first rows, all if there is no limit; `first` names columns to put and to sort in front."""
    if isinstance(found, pa.Table):
        chosen = found.select(_in_order(found.column_names, first))
        some = sorted_rows(chosen, limit) if ordered else chosen.slice(0, limit)
        return Page(some, found.num_rows)
    return _page_of_frame(found, limit, first, ordered)


def _page_of_frame(frame: DataFrame, limit: int | None, first: Sequence[str], ordered: bool) -> Page:
    quoted = [f"`{name.replace('`', '``')}`" for name in _in_order(frame.columns, first)]
    chosen = frame.select(*quoted)
    if ordered:
        chosen = chosen.orderBy(*quoted)
    some = (chosen if limit is None else chosen.limit(limit + 1)).toArrow()
    is_whole = limit is None or some.num_rows <= limit
    return Page(some.slice(0, limit), some.num_rows if is_whole else frame.count())


def _in_order(names: Sequence[str], first: Sequence[str]) -> list[str]:
    """The names of columns, some of them in front; refuses two that are the same."""
    for name in names:
        if names.count(name) > 1:
            raise InputError(
                f"two columns are called `{name}`", subject=name, hint="rename one of them with AS"
            )
    return [*first, *(name for name in names if name not in first)]


def sorted_rows(table: pa.Table, limit: int | None = None) -> pa.Table:
    """The first rows in Spark's ascending order of all columns, one after the other."""
    keys = [key for name in table.column_names for key in _sort_keys(table[name])]
    if not keys or not table.num_rows:
        return table.slice(0, limit)
    by = {str(place): key for place, key in enumerate(keys)}
    order = [(name, "ascending", "at_start") for name in by]
    indices = pc.sort_indices(pa.table(by), sort_keys=order)
    return table.take(indices.slice(0, limit))


def _sort_keys(column: pa.ChunkedArray) -> list[Any]:
    """Columns by which Arrow sorts as Spark sorts by this one."""
    kind = column.type
    if pa.types.is_null(kind):
        return []
    if pa.types.is_nested(kind):
        return [_ranks(column)]
    if pa.types.is_floating(kind):
        # Arrow puts NaN beside NULL, Spark behind all numbers.
        number = pc.if_else(pc.is_nan(column), pa.scalar(0.0, kind), column)
        return [pc.is_nan(column), number]
    return [column]


def _ranks(column: pa.ChunkedArray) -> pa.Array:
    """For values that Arrow cannot sort, their place among all values; equal ones share it."""
    keys = [_sort_key(value) for value in column.to_pylist()]
    places = {key: place for place, key in enumerate(sorted(set(keys)))}
    return pa.array([places[key] for key in keys], pa.int64())


def _sort_key(value: Any) -> tuple[Any, ...]:
    if value is None:
        return (0,)
    if isinstance(value, float) and isnan(value):
        return (2,)
    if isinstance(value, dict):
        return (1, tuple(map(_sort_key, value.values())))
    if isinstance(value, list):
        return (1, tuple(map(_sort_key, value)))
    return (1, value)
