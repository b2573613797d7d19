"""Row images of the binary log as tuples of raw values: numbers, and bytes where Arrow makes more of them.

All columns of fixed width next to each other are taken in one step. Which columns are NULL decides where the
others are, so there is one list of steps per pattern of NULLs, made when it is first met.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from rollview.sources.mariadb.binlog import table_map as log
from rollview.sources.mariadb.binlog.events import length_of
from rollview.sources.mariadb.binlog.table_map import LoggedColumn

_NUMBERS = {
    log.TINY: ("b", "B"),
    log.SHORT: ("h", "H"),
    log.LONG: ("i", "I"),
    log.LONGLONG: ("q", "Q"),
    log.FLOAT: ("f", "f"),
    log.DOUBLE: ("d", "d"),
    log.YEAR: ("B", "B"),
}
_BYTES = {log.MEDIUM: 3, log.DATE: 3, log.TIME: 3, log.TIMESTAMP: 4, log.DATETIME: 8}
_FRACTIONS = {log.TIMESTAMP_FRACTION: 4, log.DATETIME_FRACTION: 5, log.TIME_FRACTION: 3}
_LONG_TEXTS = frozenset({log.BLOB, log.BLOB_COMPRESSED, log.GEOMETRY})
_SHORT_TEXTS = frozenset({log.VARCHAR, log.VARCHAR_COMPRESSED, log.STRING, log.VAR_STRING})
_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_MOST_PATTERNS = 1000

_Step = tuple[struct.Struct | None, int]
"""A run of fixed columns; or, without one, a value behind this many bytes of length, 0 for NULL."""

Values = Sequence[Any]


class UnknownImage(ValueError):
    """An image that cannot be read, because it is not a full one or has a column of an unknown kind."""


def decimal_bytes(precision: int, scale: int) -> int:
    """The size of a packed decimal: nine digits in four bytes on either side of the point."""
    whole = precision - scale
    return whole // 9 * 4 + _DIGIT_BYTES[whole % 9] + scale // 9 * 4 + _DIGIT_BYTES[scale % 9]


def _fixed_format(column: LoggedColumn) -> str | None:
    """The `struct` format of a column of fixed width."""
    kind = column.kind
    if kind in _NUMBERS:
        return _NUMBERS[kind][column.unsigned]
    if kind in _BYTES:
        return f"{_BYTES[kind]}s"
    if kind in _FRACTIONS:
        return f"{_FRACTIONS[kind] + (column.size + 1) // 2}s"
    if kind == log.DECIMAL:
        return f"{decimal_bytes(column.size, column.detail)}s"
    if kind == log.ENUM:
        return "B" if column.size == 1 else "H"
    if kind in (log.SET, log.BIT):
        return f"{column.size}s"
    return None


def _length_bytes(column: LoggedColumn) -> int:
    if column.kind in _LONG_TEXTS:
        return column.size
    if column.kind in _SHORT_TEXTS:
        return 1 if column.size < 256 else 2
    raise UnknownImage(f"column {column.name or '?'} is of a kind ({column.kind}) that is not known here")


class RowImages:
    """Reads the images of one table's row events; gives the columns at `places`, in that order."""

    def __init__(self, columns: Sequence[LoggedColumn], places: Sequence[int]) -> None:
        self._columns = columns
        self._width = len(columns)
        self._null_bytes = (self._width + 7) // 8
        self._all = (1 << self._width) - 1
        self._plans: dict[int, list[_Step]] = {}
        self._pick = _picker(self._width, places)

    def read(self, data: bytes, at: int, updates: bool) -> list[Values]:
        """The images of an event, whose number of columns is at a place; of updates before, after, …"""
        width, at = length_of(data, at)
        if width != self._width:
            raise UnknownImage("the number of columns is not the table's")
        for _ in range(2 if updates else 1):
            if int.from_bytes(data[at : at + self._null_bytes], "little") & self._all != self._all:
                raise UnknownImage("the log holds parts of rows only: binlog_row_image is not FULL")
            at += self._null_bytes
        images: list[Values] = []
        end, null_bytes, plans, pick = len(data), self._null_bytes, self._plans, self._pick
        while at < end:
            pattern = int.from_bytes(data[at : at + null_bytes], "little") & self._all
            at += null_bytes
            plan = plans.get(pattern)
            if plan is None:
                plan = self._plan(pattern)
            values: list[Any] = []
            for fixed, size in plan:
                if fixed is not None:
                    values += fixed.unpack_from(data, at)
                    at += size
                elif size:
                    length = data[at] if size == 1 else int.from_bytes(data[at : at + size], "little")
                    at += size
                    values.append(data[at : at + length])
                    at += length
                else:
                    values.append(None)
            images.append(pick(values))
        if at != end:
            raise UnknownImage("an image ends beyond its event")
        return images

    def _plan(self, pattern: int) -> list[_Step]:
        if len(self._plans) >= _MOST_PATTERNS:
            self._plans.clear()
        steps: list[_Step] = []
        run = ""
        for place, column in enumerate(self._columns):
            fixed = None if pattern >> place & 1 else _fixed_format(column)
            if fixed is not None:
                run += fixed
                continue
            if run:
                steps.append(_run(run))
                run = ""
            steps.append((None, 0 if pattern >> place & 1 else _length_bytes(column)))
        if run:
            steps.append(_run(run))
        self._plans[pattern] = steps
        return steps


def _run(formats: str) -> _Step:
    made = struct.Struct("<" + formats)
    return made, made.size


def _picker(width: int, places: Sequence[int]) -> Callable[[list[Any]], Values]:
    if list(places) == list(range(width)):
        return lambda values: values
    if len(places) > 1:
        return itemgetter(*places)
    return lambda values: tuple(values[place] for place in places)
