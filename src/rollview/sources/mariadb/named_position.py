"""Positions as the users of a MariaDB server name them: GTIDs, and places in the binary log."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pymysql.cursors import Cursor

from rollview.errors import PointError
from rollview.sources.mariadb.position import Position, parse_log_position
from rollview.sources.not_captured import not_captured

_GTID = re.compile(r"(\d+)-\d+-(\d+)")
_PLACE = re.compile(r"(\S+\.\d+):(\d+)")


def gtid_numbers(text: str) -> dict[str, int] | None:
    """For each domain of a list of GTIDs the number in it; None if it is no such list."""
    found = [_GTID.fullmatch(each.strip()) for each in text.split(",")]
    if not all(found):
        return None
    return {match[1]: int(match[2]) for match in found if match}


def includes(numbers: Mapping[str, int], gtid: str) -> bool:
    """Whether the transaction of a GTID is not behind those of a list, in its domain."""
    match = _GTID.fullmatch(gtid)
    return match is not None and int(match[2]) <= numbers.get(match[1], -1)


def check_gtids(cursor: Cursor, source: str, text: str, reached: Position) -> None:
    """Refuses GTIDs that the server had not written yet where capture has come to."""
    cursor.execute("SELECT BINLOG_GTID_POS(%s, %s)", (reached.file, reached.offset))
    row = cursor.fetchone()
    written = gtid_numbers(row[0]) if row and row[0] else None
    wanted = gtid_numbers(text) or {}
    if written is None:
        hint = f"a place in the binary log, such as {source}:{reached.file}:{reached.offset}"
        message = f"source {source} cannot tell any more which GTIDs have been captured"
        raise PointError(message, subject=text, hint=hint)
    if any(number > written.get(domain, 0) for domain, number in wanted.items()):
        raise not_captured(source, text, row[0] if row else "")


def place_reached(source: str, text: str, captured: str) -> int:
    """The place in the binary log that a text names, which must not lie behind what was captured."""
    match = _PLACE.fullmatch(text.strip())
    reached = parse_log_position(captured).reached
    if match is None or match[1].rpartition(".")[0] != reached.file.rpartition(".")[0]:
        hint = f"a GTID such as {source}:0-1-42, or a place such as {source}:{reached.file}:{reached.offset}"
        raise PointError(f"`{text}` is not a position of source {source}", subject=text, hint=hint)
    place = Position(match[1], int(match[2])).ordinal
    if place > reached.ordinal:
        raise not_captured(source, text, f"{reached.file}:{reached.offset}")
    return place
