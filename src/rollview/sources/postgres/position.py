"""Positions in the server's log, and the log positions that are made of them.

A log position is a position before which every commit has been captured. Where transactions were prepared
before it and not yet finished, it also says where to begin reading, so that they are met again. A position
means something in one history only, so the server and its timeline are named, too: a backup that is restored,
or a standby that is promoted, begins another one. `0/1A2B3C4 from 0/1A00000 at 7708596515208679467/1`: no
state needs to be kept but the log position.

The log does not say which partitions a table gets and loses. So a log position also says which ones it was
captured with: ` over 16385:16390=733,16393=741`, see `partitions.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from rollview.errors import PointError
from rollview.sources.source import not_captured

_LSN = re.compile(r"[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}")


def position_of(text: str) -> int:
    """A position (LSN) as a number."""
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) | int(low, 16)


def position_text(position: int) -> str:
    """The number as PostgreSQL writes it."""
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"


def reach_of(source: str, text: str, captured: str) -> int:
    """The place that an LSN names, which must not lie behind what was captured."""
    if not _LSN.fullmatch(text.strip()):
        hint = f"an LSN as pg_current_wal_insert_lsn() gives it, such as {source}:0/1A2B3C4"
        raise PointError(f"`{text}` is not a position of source {source}", subject=text, hint=hint)
    place, reached = position_of(text.strip()), log_position_of(captured).position
    if place > reached:
        raise not_captured(source, text, position_text(reached))
    return place


class PartitionLink(NamedTuple):
    """That a table is a partition of another one; `xmin` is the transaction that made it one.

    One that `is_gone` is none any more: its changes may come up to the position `until`, and count for
    nothing. Any other with such a position was attached, and had no rows when that was noticed: if an old row
    of it is changed before, it had.
    """

    xmin: int
    until: int = 0
    is_gone: bool = False

    def __str__(self) -> str:
        sign = "!" if self.is_gone else "@"
        return f"{self.xmin}{sign}{position_text(self.until)}" if self.until else str(self.xmin)


Partitions = Mapping[int, Mapping[int, PartitionLink]]
"""By the id of a partitioned table, all that is below it by id: partitions, and partitions of those."""

NO_PARTITIONS: Partitions = MappingProxyType({})


class LogPosition(NamedTuple):
    """All commits before `position` are captured; reading continues from `start`, which is not after it.

    `server` is the system identifier and the timeline. `partitions` are those that were captured.
    """

    position: int
    start: int
    server: str
    partitions: Partitions = NO_PARTITIONS

    def __str__(self) -> str:
        start = "" if self.start == self.position else f" from {position_text(self.start)}"
        roots = (
            f"{root}:{','.join(f'{node}={link}' for node, link in sorted(links.items()))}"
            for root, links in sorted(self.partitions.items())
        )
        over = f" over {';'.join(roots)}" if self.partitions else ""
        return f"{position_text(self.position)}{start} at {self.server}{over}"


def log_position_of(text: str) -> LogPosition:
    """The inverse of `str`."""
    place, _, rest = text.partition(" at ")
    server, _, over = rest.partition(" over ")
    position, _, start = place.partition(" from ")
    return LogPosition(position_of(position), position_of(start or position), server, _partitions_of(over))


def _partitions_of(text: str) -> Partitions:
    if not text:
        return NO_PARTITIONS
    found: dict[int, dict[int, PartitionLink]] = {}
    for each in text.split(";"):
        root, _, links = each.partition(":")
        pairs = (link.partition("=") for link in links.split(",") if link)
        found[int(root)] = {int(node): _link_of(link) for node, _, link in pairs}
    return found


def _link_of(text: str) -> PartitionLink:
    sign = "!" if "!" in text else "@"
    xmin, _, until = text.partition(sign)
    return PartitionLink(int(xmin), position_of(until) if until else 0, sign == "!")
