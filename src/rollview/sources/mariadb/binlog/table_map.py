"""Table-map events: which table the row events that follow belong to, and what its columns are.

With `binlog_row_metadata=FULL` such an event describes the table completely (names, signs, character sets,
labels), so that rows are read as they were written, whatever has happened to the table since.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rollview.sources.mariadb.binlog.events import length_of

TINY, SHORT, LONG, FLOAT, DOUBLE, NULL, TIMESTAMP, LONGLONG, MEDIUM = 1, 2, 3, 4, 5, 6, 7, 8, 9
DATE, TIME, DATETIME, YEAR, VARCHAR, BIT = 10, 11, 12, 13, 15, 16
TIMESTAMP_FRACTION, DATETIME_FRACTION, TIME_FRACTION = 17, 18, 19
BLOB_COMPRESSED, VARCHAR_COMPRESSED = 140, 141
DECIMAL, ENUM, SET, BLOB, VAR_STRING, STRING, GEOMETRY = 246, 247, 248, 252, 253, 254, 255

_NUMERIC = frozenset({TINY, SHORT, MEDIUM, LONG, LONGLONG, FLOAT, DOUBLE, DECIMAL, YEAR})
_CHARACTER = frozenset({STRING, VARCHAR, VAR_STRING, BLOB, VARCHAR_COMPRESSED, BLOB_COMPRESSED, GEOMETRY})
_TWO_BYTES = frozenset({VARCHAR, VARCHAR_COMPRESSED, BIT, DECIMAL, STRING, VAR_STRING, ENUM, SET})
_ONE_BYTE = frozenset(
    {FLOAT, DOUBLE, BLOB, BLOB_COMPRESSED, GEOMETRY, TIMESTAMP_FRACTION, DATETIME_FRACTION, TIME_FRACTION}
)
_SIGNS, _DEFAULT_CHARSET, _CHARSETS, _NAMES, _SET_LABELS, _ENUM_LABELS = 1, 2, 3, 4, 5, 6
_DEFAULT_LABEL_CHARSET, _LABEL_CHARSETS = 10, 11


@dataclass(frozen=True)
class LoggedColumn:
    """A column as the log has it. `size` is a length, a precision or a number of fraction digits.

    `detail` is the scale of a decimal, or the odd bits of a BIT. `collation` is the server's number for it.
    """

    kind: int
    size: int
    detail: int = 0
    name: str = ""
    unsigned: bool = False
    collation: int = 0
    labels: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class TableMap:
    """A table of the log. Columns without names were logged without `binlog_row_metadata=FULL`."""

    database: str
    table: str
    columns: tuple[LoggedColumn, ...]


@dataclass
class _Described:
    """The optional part, as far as it has been read: values in the order of the columns they are for."""

    names: list[str] = field(default_factory=list)
    unsigned: list[bool] = field(default_factory=list)
    collations: list[int] = field(default_factory=list)
    label_collations: list[int] = field(default_factory=list)
    enum_labels: list[tuple[bytes, ...]] = field(default_factory=list)
    set_labels: list[tuple[bytes, ...]] = field(default_factory=list)


def table_id(body: bytes) -> int:
    """The number by which row events name the table, until the next file at most."""
    return int.from_bytes(body[:6], "little")


def parse_table_map(body: bytes) -> TableMap:
    """A table-map event."""
    at = 8
    names = []
    for _ in range(2):
        names.append(body[at + 1 : at + 1 + body[at]].decode())
        at += body[at] + 2
    width, at = length_of(body, at)
    kinds = body[at : at + width]
    size, at = length_of(body, at + width)
    plain = _plain_columns(kinds, body[at : at + size])
    at += size + (width + 7) // 8
    described = _read_optional(body, at, [column.kind for column in plain])
    return TableMap(names[0], names[1], _with_description(plain, described))


def _plain_columns(kinds: bytes, metadata: bytes) -> list[LoggedColumn]:
    columns = []
    at = 0
    for kind in kinds:
        first = metadata[at] if kind in _ONE_BYTE or kind in _TWO_BYTES else 0
        second = metadata[at + 1] if kind in _TWO_BYTES else 0
        at += 2 if kind in _TWO_BYTES else 1 if kind in _ONE_BYTE else 0
        if kind in (VARCHAR, VARCHAR_COMPRESSED):
            columns.append(LoggedColumn(kind, first + (second << 8)))
        elif kind == BIT:
            columns.append(LoggedColumn(kind, second + (first > 0), second * 8 + first))
        elif kind == STRING and first & 0x30 != 0x30:
            # Lengths above 255 borrow two bits of the type.
            columns.append(LoggedColumn(first | 0x30, second | ((first & 0x30) ^ 0x30) << 4))
        elif kind == STRING:
            columns.append(LoggedColumn(first, second))
        else:
            columns.append(LoggedColumn(kind, first, second))
    return columns


def _read_optional(body: bytes, at: int, kinds: list[int]) -> _Described:
    found = _Described()
    while at < len(body):
        field_kind = body[at]
        size, at = length_of(body, at + 1)
        value = body[at : at + size]
        at += size
        if field_kind == _SIGNS:
            found.unsigned = [bool(byte << bit & 0x80) for byte in value for bit in range(8)]
        elif field_kind == _NAMES:
            found.names = [name.decode() for name in _texts(value, 0, len(value))[0]]
        elif field_kind == _CHARSETS:
            found.collations = _numbers(value)
        elif field_kind == _LABEL_CHARSETS:
            found.label_collations = _numbers(value)
        elif field_kind == _DEFAULT_CHARSET:
            found.collations = _with_default(value, sum(kind in _CHARACTER for kind in kinds))
        elif field_kind == _DEFAULT_LABEL_CHARSET:
            found.label_collations = _with_default(value, sum(kind in (ENUM, SET) for kind in kinds))
        elif field_kind == _ENUM_LABELS:
            found.enum_labels = _label_lists(value)
        elif field_kind == _SET_LABELS:
            found.set_labels = _label_lists(value)
    return found


def _with_description(plain: list[LoggedColumn], found: _Described) -> tuple[LoggedColumn, ...]:
    unsigned, collations = iter(found.unsigned), iter(found.collations)
    label_collations = iter(found.label_collations)
    labels = {ENUM: iter(found.enum_labels), SET: iter(found.set_labels)}
    columns = []
    for place, column in enumerate(plain):
        kind = column.kind
        is_label = kind in labels
        columns.append(
            LoggedColumn(
                kind,
                column.size,
                column.detail,
                found.names[place] if found.names else "",
                next(unsigned, False) if kind in _NUMERIC else False,
                next(label_collations if is_label else collations, 0)
                if is_label or kind in _CHARACTER
                else 0,
                next(labels[kind], ()) if is_label else (),
            )
        )
    return tuple(columns)


def _numbers(value: bytes) -> list[int]:
    numbers, at = [], 0
    while at < len(value):
        number, at = length_of(value, at)
        numbers.append(number)
    return numbers


def _with_default(value: bytes, count: int) -> list[int]:
    """A default, followed by pairs of a column's place and its own value."""
    default, *pairs = _numbers(value)
    numbers = [default] * count
    for place, number in zip(pairs[::2], pairs[1::2], strict=True):
        numbers[place] = number
    return numbers


def _texts(value: bytes, at: int, end: int, count: int = -1) -> tuple[list[bytes], int]:
    texts: list[bytes] = []
    while at < end and len(texts) != count:
        size, at = length_of(value, at)
        texts.append(value[at : at + size])
        at += size
    return texts, at


def _label_lists(value: bytes) -> list[tuple[bytes, ...]]:
    lists, at = [], 0
    while at < len(value):
        count, at = length_of(value, at)
        texts, at = _texts(value, at, len(value), count)
        lists.append(tuple(texts))
    return lists
