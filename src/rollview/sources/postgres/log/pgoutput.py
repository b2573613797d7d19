"""Messages of the pgoutput plugin, decoded.

https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html describes them. Values are
left as the bytes that came. `tuple_at` runs once or twice per changed row, so it is written to be fast.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, NamedTuple

BEGIN, COMMIT = ord("B"), ord("C")
BEGIN_PREPARE, PREPARE = ord("b"), ord("P")
COMMIT_PREPARED, ROLLBACK_PREPARED = ord("K"), ord("r")
INSERT, UPDATE, DELETE, TRUNCATE = ord("I"), ord("U"), ord("D"), ord("T")
RELATION, MESSAGE = ord("R"), ord("M")
OLD, NEW = ord("O"), ord("N")

_TEXT, _NULL = ord("t"), ord("n")
_SECONDS_TO_2000 = 946_684_800
_length_at = struct.Struct(">I").unpack_from
_width_at = struct.Struct(">H").unpack_from
_begin_at = struct.Struct(">QqI").unpack_from
_end_at = struct.Struct(">BQQqI").unpack_from
_commit_at = struct.Struct(">BQQq").unpack_from
_prepare_at = struct.Struct(">QQqI").unpack_from
_rollback_at = struct.Struct(">BQQqqI").unpack_from
_column_at = struct.Struct(">II").unpack_from

Values = list[Any]


class ValueNotLogged(Exception):
    """A row in the log lacks a value, and nothing before it has it."""


@dataclass(frozen=True)
class Relation:
    """A table as the log describes it before its first change: columns with type and modifier, in order."""

    id: int
    schema: str
    name: str
    columns: tuple[tuple[str, int, int], ...]


class End(NamedTuple):
    """The end of a transaction: where its commit is in the log, where that ends, when it was, and whose."""

    commit: int
    end: int
    time: float
    xid: int
    gid: str = ""


def begin(message: bytes, place: int) -> tuple[int, float, int]:
    """Where the commit is, when it was, and the transaction's id."""
    commit, time, xid = _begin_at(message, place)
    return commit, _seconds(time), xid


def commit(message: bytes, place: int) -> tuple[int, int]:
    """Where the commit is and where it ends."""
    _, position, end, _ = _commit_at(message, place)
    return position, end


def begin_prepare(message: bytes, place: int) -> tuple[int, int, str]:
    """Where a transaction was prepared, its id and its name."""
    position, _, _, xid = _prepare_at(message, place)
    return position, xid, _name_at(message, place + 28)[0]


def commit_prepared(message: bytes, place: int) -> End:
    """A prepared transaction was committed."""
    _, position, end, time, xid = _end_at(message, place)
    return End(position, end, _seconds(time), xid, _name_at(message, place + 29)[0])


def rollback_prepared(message: bytes, place: int) -> tuple[int, str]:
    """A prepared transaction was rolled back: where that ends, and its name."""
    _, _, end, _, _, _ = _rollback_at(message, place)
    return end, _name_at(message, place + 37)[0]


def relation(message: bytes, place: int) -> Relation:
    """A table's description."""
    (identity,) = _length_at(message, place)
    schema, place = _name_at(message, place + 4)
    name, place = _name_at(message, place)
    (width,) = _width_at(message, place + 1)
    place += 3
    columns = []
    for _ in range(width):
        column, place = _name_at(message, place + 1)
        kind, modifier = _column_at(message, place)
        # The modifier is signed; −1 stands for none.
        columns.append((column, kind, modifier - (1 << 32) if modifier >> 31 else modifier))
        place += 8
    return Relation(identity, schema or "pg_catalog", name, tuple(columns))


def truncated(message: bytes, place: int) -> tuple[int, ...]:
    """The ids of the tables that were emptied."""
    (count,) = _length_at(message, place)
    return struct.unpack_from(f">{count}I", message, place + 5)


def logical_message(message: bytes, place: int) -> tuple[bool, str, bytes]:
    """A message that was put in the log: whether as a part of the transaction, its prefix, its content."""
    prefix, start = _name_at(message, place + 9)
    (length,) = _length_at(message, start)
    return bool(message[place] & 1), prefix, message[start + 4 : start + 4 + length]


def tuple_at(message: bytes, place: int, old: Values | None) -> tuple[Values, int]:
    """A row's values and where it ends. A large value that did not change is not sent: the old row has it."""
    (width,) = _width_at(message, place)
    place += 2
    values: Values = []
    append = values.append
    for i in range(width):
        kind = message[place]
        if kind == _TEXT:
            (length,) = _length_at(message, place + 1)
            place += 5
            append(message[place : place + length])
            place += length
        else:
            if kind != _NULL and old is None:
                raise ValueNotLogged
            append(None if kind == _NULL or old is None else old[i])
            place += 1
    return values, place


def _seconds(microseconds: int) -> float:
    return float((microseconds + _SECONDS_TO_2000 * 1_000_000) / 1e6)


def _name_at(message: bytes, place: int) -> tuple[str, int]:
    end = message.index(0, place)
    return message[place:end].decode(), end + 1
