"""Tables as the log describes them, matched with those that are captured.

Columns are found by name, so that others may come and go. A description that lacks a registered column means
that the table was changed in a way that no statement of the log shows; its rows are lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rollview.rows import arrow_type
from rollview.sources.mariadb.binlog import table_map as log
from rollview.sources.mariadb.binlog.damage import Damage, combined
from rollview.sources.mariadb.binlog.events import LoggedStatement
from rollview.sources.mariadb.binlog.row_image import RowImages, decimal_bytes
from rollview.sources.mariadb.binlog.table_map import LoggedColumn, TableMap, parse_table_map
from rollview.sources.mariadb.charsets import BINARY, Charsets
from rollview.sources.mariadb.connection import Address
from rollview.sources.mariadb.registered import GLOBAL_TABLE, Registered
from rollview.sources.mariadb.types import base_type, exactly

# Raw values of the binary log as Arrow arrays, a column at a time.
#
# Packed numbers and times are taken apart for all rows at once with numpy. The meaning of a value is decided
# by the table-map event that came before it; its declared type at setup adds what that event lacks.

Convert = Callable[[list[Any]], pa.Array]
_Numbers = npt.NDArray[np.int64]
_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_INTEGERS = frozenset({log.TINY, log.SHORT, log.LONG, log.LONGLONG})
_INT64_DIGITS = 18
_TEXTS = frozenset({log.VARCHAR, log.STRING, log.VAR_STRING, log.BLOB})


def logged_values(
    column: LoggedColumn, declared: str, kind: str, charsets: Charsets, place: str
) -> Convert | None:
    """How a column's raw values become an array of a Spark SQL type; None if they cannot, being others."""
    convert = _conversion(column, declared, kind, charsets)
    return None if convert is None else exactly(convert, kind, place, _shown)


def _shown(value: Any) -> str:
    """Of all packed values only times can be misfits, and mostly they are zero."""
    if isinstance(value, bytes) and not any(value[:4].strip(b"\x80")):
        return "'0000-00-00'"
    return repr(value)


def _conversion(column: LoggedColumn, declared: str, kind: str, charsets: Charsets) -> Convert | None:
    logged = column.kind
    if logged in _TEXTS or logged in (log.ENUM, log.SET):
        return _text_conversion(column, base_type(declared), kind, charsets)
    arrow = arrow_type(kind)
    if logged in _INTEGERS and (pa.types.is_integer(arrow) or kind == "decimal(20,0)"):
        return _whole_numbers(arrow)
    if logged == log.DECIMAL and pa.types.is_decimal(arrow) and arrow.scale == column.detail:
        return _fitting(_decimals(column.size, column.detail), arrow)
    if logged == log.MEDIUM and pa.types.is_integer(arrow):
        return lambda v: _array(_joined(v, 3, "little", not column.unsigned), v, arrow)
    if logged == log.BIT and kind == _bit_type(column.detail):
        return _bits(kind)
    known: dict[tuple[int, str], Convert] = {
        (log.FLOAT, "float"): lambda v: pa.array(v, arrow),
        (log.DOUBLE, "double"): lambda v: pa.array(v, arrow),
        (log.YEAR, "int"): lambda v: pa.array([year + 1900 if year else year for year in v], arrow),
        (log.DATE, "date"): lambda v: _array(_dates(v), v, pa.int32()).cast(arrow),
        (log.DATETIME_FRACTION, "timestamp_ntz"): lambda v: _times(_date_times(v, column.size), v, arrow),
        (log.TIMESTAMP_FRACTION, "timestamp"): lambda v: _times(_timestamps(v, column.size), v, arrow),
    }
    return known.get((logged, kind))


def _text_conversion(column: LoggedColumn, name: str, kind: str, charsets: Charsets) -> Convert | None:
    if column.kind in (log.ENUM, log.SET):
        return _labels(column, charsets) if kind == "string" else None
    if name == "uuid":
        return _uuids if column.kind == log.STRING and kind == "string" else None
    if column.collation == BINARY and kind == "binary":
        return _padded(column.size) if column.kind == log.STRING else _binary
    if column.collation != BINARY and kind == "string":
        return _texts(column, charsets)
    return None


def _joined(values: Sequence[bytes | None], width: int, order: str, signed: bool = False) -> _Numbers:
    """Values of equally many bytes as numbers; 0 for NULL."""
    raw = np.frombuffer(b"".join([value or bytes(width) for value in values]), np.uint8)
    grid = raw.reshape(len(values), width).astype(np.int64)
    numbers = np.zeros(len(values), np.int64)
    for place in range(width):
        numbers = (numbers << 8) | grid[:, place if order == "big" else width - 1 - place]
    if signed:
        numbers -= (numbers >> (8 * width - 1)) << (8 * width)
    return numbers


def _absent(values: Sequence[Any]) -> npt.NDArray[np.bool_]:
    return np.fromiter((value is None for value in values), bool, len(values))


def _array(numbers: _Numbers, values: Sequence[Any], arrow: pa.DataType) -> pa.Array:
    return pa.array(numbers, pa.int64(), mask=_absent(values)).cast(arrow)


def _times(numbers: _Numbers, values: Sequence[Any], arrow: pa.DataType) -> pa.Array:
    return _array(numbers, values, pa.int64()).cast(arrow)


def _whole_numbers(arrow: pa.DataType) -> Convert:
    if pa.types.is_decimal(arrow):
        return lambda values: pa.array([None if v is None else Decimal(v) for v in values], arrow)
    return lambda values: pa.array(values, arrow)


def _dates(values: Sequence[bytes | None]) -> _Numbers:
    """Days since 1970 of year (15 bits), month (4 bits) and day (5 bits)."""
    packed = _joined(values, 3, "little")
    return _days(packed >> 9, packed >> 5 & 15, packed & 31, _absent(values))


def _days(year: _Numbers, month: _Numbers, day: _Numbers, absent: npt.NDArray[np.bool_]) -> _Numbers:
    months = (year - 1970) * 12 + month - 1
    first = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    after = (months + 1).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    days = first + day - 1
    fits = (year >= 1) & (month >= 1) & (month <= 12) & (day >= 1) & (days < after)
    if not np.all(fits | absent):
        raise ValueError("an invalid date")
    return np.where(absent, 0, days)


def _fraction(values: Sequence[bytes | None], whole_bytes: int, digits: int) -> _Numbers:
    """The microseconds behind a time: two digits to the byte."""
    width = (digits + 1) // 2
    if not width:
        return np.zeros(len(values), np.int64)
    tails = [None if value is None else value[whole_bytes:] for value in values]
    numbers = _joined(tails, width, "big")
    return np.multiply(numbers, (1, 10_000, 100, 1)[width], dtype=np.int64)


def _date_times(values: Sequence[bytes | None], digits: int) -> _Numbers:
    """Microseconds since 1970 of DATETIME: a sign bit, year·13 + month, day, hour, minute, second."""
    packed = _joined([None if value is None else value[:5] for value in values], 5, "big") & ((1 << 39) - 1)
    months, day = packed >> 22, packed >> 17 & 31
    seconds = (packed >> 12 & 31) * 3600 + (packed >> 6 & 63) * 60 + (packed & 63)
    days = _days(months // 13, months % 13, day, _absent(values))
    total: _Numbers = (days * 86_400 + seconds) * 1_000_000 + _fraction(values, 5, digits)
    return total


def _timestamps(values: Sequence[bytes | None], digits: int) -> _Numbers:
    """Microseconds since 1970 of TIMESTAMP, of which second 0 means '0000-00-00 00:00:00'."""
    seconds = _joined([None if value is None else value[:4] for value in values], 4, "big")
    if any(value is not None and second == 0 for value, second in zip(values, seconds, strict=True)):
        raise ValueError("a zero timestamp")
    return seconds * 1_000_000 + _fraction(values, 4, digits)


def _decimals(precision: int, scale: int) -> Convert:
    arrow, width = pa.decimal128(precision, scale), decimal_bytes(precision, scale)
    parts = _decimal_parts(precision, scale)

    def few_digits(values: list[Any]) -> pa.Array:
        raw = np.frombuffer(b"".join([value or b"\x80" + bytes(width - 1) for value in values]), np.uint8)
        grid = raw.reshape(len(values), width).astype(np.int64)
        negative = grid[:, 0] < 0x80
        # The sign bit is inverted; a negative number has all its bits inverted.
        grid = np.where(negative[:, None], grid ^ 0xFF, grid)
        grid[:, 0] ^= 0x80
        total = np.zeros(len(values), np.int64)
        for begin, end, digits in parts:
            part = np.zeros(len(values), np.int64)
            for place in range(begin, end):
                part = (part << 8) | grid[:, place]
            total = total * 10**digits + part
        total = np.where(negative, -total, total)
        halves = np.stack([total, total >> 63], axis=1)
        valid = pa.array(~_absent(values)).buffers()[1]
        return pa.Array.from_buffers(arrow, len(values), [valid, pa.py_buffer(halves.tobytes())])

    def many_digits(values: list[Any]) -> pa.Array:
        return pa.array([None if v is None else _decimal(v, parts, scale) for v in values], arrow)

    return few_digits if precision <= _INT64_DIGITS else many_digits


def _fitting(convert: Convert, arrow: pa.DataType) -> Convert:
    """Of a column that has been widened since setup: values that still fit."""
    return lambda values: convert(values).cast(arrow)


def _decimal_parts(precision: int, scale: int) -> list[tuple[int, int, int]]:
    """Where the groups of digits stand: first and last byte, and how many digits."""
    whole = precision - scale
    sizes = [whole % 9, *[9] * (whole // 9), *[9] * (scale // 9), scale % 9]
    parts, at = [], 0
    for digits in sizes:
        parts.append((at, at + _DIGIT_BYTES[digits], digits))
        at += _DIGIT_BYTES[digits]
    return parts


def _decimal(raw: bytes, parts: list[tuple[int, int, int]], scale: int) -> Decimal:
    negative = raw[0] < 0x80
    bits = bytes(byte ^ 0xFF for byte in raw) if negative else raw
    bits = bytes((bits[0] ^ 0x80,)) + bits[1:]
    total = 0
    for begin, end, digits in parts:
        total = total * 10**digits + int.from_bytes(bits[begin:end], "big")
    sign = 1 if negative and total else 0
    return Decimal((sign, tuple(map(int, str(total))), -scale))


def _bit_type(bits: int) -> str:
    return "boolean" if bits == 1 else "bigint" if bits < 64 else "decimal(20,0)"


def _bits(kind: str) -> Convert:
    arrow = arrow_type(kind)
    make: Callable[[int], Any] = bool if kind == "boolean" else int if kind == "bigint" else Decimal
    return lambda values: pa.array(
        [None if value is None else make(int.from_bytes(value, "big")) for value in values], arrow
    )


def _labels(column: LoggedColumn, charsets: Charsets) -> Convert:
    decode = charsets.decoder(column.collation)
    labels = [label.decode() if decode is None else decode(label) for label in column.labels]
    if column.kind == log.ENUM:
        # Number 0 is what a text became that was no label.
        texts = ["", *labels]
        return lambda values: pa.array([None if v is None else texts[v] for v in values], pa.string())

    def members(value: bytes) -> str:
        number = int.from_bytes(value, "little")
        return ",".join(label for place, label in enumerate(labels) if number >> place & 1)

    return lambda values: pa.array([None if v is None else members(v) for v in values], pa.string())


def _uuids(values: list[Any]) -> pa.Array:
    return pa.array(
        [None if value is None else str(UUID(bytes=value.ljust(16, b"\0"))) for value in values], pa.string()
    )


def _binary(values: list[Any]) -> pa.Array:
    return pa.array(values, pa.binary())


def _padded(width: int) -> Convert:
    """BINARY(n): the log leaves out zeros at the end."""
    return lambda values: pa.array([v if v is None else v.ljust(width, b"\0") for v in values], pa.binary())


def _texts(column: LoggedColumn, charsets: Charsets) -> Convert:
    decode = charsets.decoder(column.collation)
    if decode is None:
        return lambda values: pa.array(values, pa.binary()).cast(pa.string())
    return lambda values: pa.array([v if v is None else decode(v) for v in values], pa.string())


_MOST_KNOWN = 10_000
_ID_BYTES = 6
_NAMES_AT = 8
SET_UP_LATER = Damage("it was set up again behind this change, because it was not the same table any more")
_UNDESCRIBED = Damage(
    "its rows were logged without a description of their columns (SET GLOBAL binlog_row_metadata = FULL at"
    " the server and in its configuration)"
)


@dataclass(frozen=True, eq=False)
class LoggedTable:
    """How to read the row events of a table that matters: a captured one, or one of ours.

    `damage` names columns that are missing, without which the rows continue.
    """

    name: str
    images: RowImages
    columns: tuple[tuple[str, str], ...] = ()
    convert: tuple[Convert, ...] = ()
    damage: Damage | None = None


@dataclass(frozen=True)
class UnreadableTable:
    """A captured table whose row events cannot be read, and why."""

    name: str
    damage: Damage


class LoggedTables:
    """The table-map events of one database, as far as some of its tables are captured.

    `any_case`: the server compares the names of tables in any case.
    """

    def __init__(
        self,
        source: str,
        address: Address,
        tables: Mapping[str, Registered],
        charsets: Charsets,
        any_case: bool,
    ) -> None:
        self.tables = tables
        self.any_case = any_case
        self.registry = address.registry
        self._source = source
        self._charsets = charsets
        database = address.database.encode()
        self._prefix = bytes((len(database),)) + database + b"\0"
        self._known: dict[bytes, LoggedTable | UnreadableTable | None] = {}

    def readings(self, statement: LoggedStatement) -> list[LoggedStatement]:
        """A statement in UTF-8, and as it is in the character set of the client if that is another one."""
        sent = self._charsets.as_client_sent(statement.as_sent, statement.client)
        return [statement, *([statement._replace(text=sent)] if sent else [])]

    def is_own(self, body: bytes) -> bool:
        """Whether the table of a table-map event is in the database."""
        return body.startswith(self._prefix, _NAMES_AT)

    def known(self, body: bytes, ordinal: int) -> LoggedTable | UnreadableTable | None:
        """The table of a table-map event; None if it is of no interest, or not yet captured at this place."""
        # The same description comes with every statement; only its number may differ.
        key = body[_ID_BYTES:]
        if key in self._known:
            return self._known[key]
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        found: LoggedTable | UnreadableTable | None = None
        if self.is_own(body):
            table = parse_table_map(body)
            registered = self.tables.get(table.table)
            if registered is not None and registered.since > ordinal:
                return UnreadableTable(table.table, SET_UP_LATER) if registered.again else None
            found = self._match(table, registered)
        self._known[key] = found
        return found

    def _match(self, table: TableMap, registered: Registered | None) -> LoggedTable | UnreadableTable | None:
        names = [column.name for column in table.columns]
        if table.table in (GLOBAL_TABLE, self.registry):
            return LoggedTable(table.table, RowImages(table.columns, (0, 1)))
        if registered is None:
            return None
        place = f"{self._source}.{table.table}"
        if not all(names):
            return UnreadableTable(table.table, _UNDESCRIBED)
        convert: list[Convert] = []
        places: list[int] = []
        columns: list[tuple[str, str]] = []
        damages: list[Damage] = []
        for column, kind in registered.columns:
            logged = table.columns[names.index(column.name)] if column.name in names else None
            found = None
            if logged is not None:
                found = logged_values(logged, column.declared, kind, self._charsets, f"{place}.{column.name}")
            if found is None:
                now = "is gone" if logged is None else f"is no longer {column.declared}"
                damages.append(Damage(f"its column {column.name} {now}", (column.name,)))
                continue
            convert.append(found)
            places.append(names.index(column.name))
            columns.append((column.name, kind))
        damage = combined(damages)
        if damage is not None and not columns:
            return UnreadableTable(table.table, Damage(damage.reason))
        images = RowImages(table.columns, places)
        return LoggedTable(table.table, images, tuple(columns), tuple(convert), damage)
