"""Partitions of partitioned tables: what the server has now, and what became of those that were captured.

The publication has the partitioned table, and with it every partition, from its first row on. The log has
changes of a partition under its own id, and nothing of ATTACH, DETACH and DROP, which change the content of
the partitioned table. So every log position names the partitions that it was captured with, and after each
batch they are compared with those that there are:

- A partition that is *born* as one, by CREATE TABLE … PARTITION OF, was empty. The system catalog shows that:
  the rows of its columns were written by the command that made it a partition, while ATTACH rewrites them.
- One that was attached may have brought rows along, unless it is seen to have none, and the log changes no
  old row of it before that was seen.
- One that was dropped or detached has taken its rows with it.

Rows that came or went make the table begin again, as TRUNCATE does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from rollview.sources.postgres.connections import Connection, quote
from rollview.sources.postgres.position import PartitionLink, position_of

TABLE, PARTITIONED, FOREIGN = "r", "p", "f"
"""Kinds of tables, as `pg_class.relkind` has them."""

IDENTITY = """CASE {c}.relreplident WHEN 'd' THEN 'DEFAULT' WHEN 'n' THEN 'NOTHING' WHEN 'f' THEN 'FULL'
               ELSE (SELECT 'USING INDEX ' || quote_ident(x.relname)
                     FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
                     WHERE i.indrelid = {c}.oid AND i.indisreplident) END"""
"""A replica identity in the words of ALTER TABLE, as SQL; `{c}` stands for a row of pg_class."""

BELOW = """WITH RECURSIVE below AS (
        SELECT h.inhrelid, h.inhparent FROM pg_inherits h WHERE h.inhparent = {root}
        UNION ALL
        SELECT h.inhrelid, h.inhparent FROM below JOIN pg_inherits h ON h.inhparent = below.inhrelid)"""
"""All that is below a table, as the beginning of a query; `{root}` is its id, or `ANY(…)` of several."""

# The command that creates a table writes the rows of all its columns; `tableoid` (−6) is never altered.
TREE = f"""({BELOW.format(root="c.oid")}
    SELECT jsonb_agg(jsonb_build_array(
        q.oid::int8, h.inhparent::int8, s.nspname, q.relname, q.relkind, q.relpersistence,
        coalesce({IDENTITY.format(c="q")}, 'DEFAULT'),
        q.relfilenode::int8, q.reltoastrelid::int8, h.xmin::text::int8, pg_has_role(q.relowner, 'USAGE'),
        q.relfilenode IN (0, q.oid) AND EXISTS (
            SELECT FROM pg_attribute b JOIN pg_attribute a ON a.attrelid = b.attrelid
            WHERE b.attrelid = q.oid AND b.attnum = -6 AND b.xmin = h.xmin
              AND a.attnum > 0 AND a.xmin = b.xmin AND a.cmin = b.cmin),
        coalesce(to_jsonb(h) ->> 'inhdetachpending' = 'true', false)) ORDER BY q.oid)
    FROM below JOIN pg_inherits h ON h.inhrelid = below.inhrelid AND h.inhparent = below.inhparent
    JOIN pg_class q ON q.oid = h.inhrelid JOIN pg_namespace s ON s.oid = q.relnamespace)"""
"""All that is below the table `c`, as the JSON that `partitions_of` reads."""

_EMPTY = """
    SELECT array_agg(q.oid::int8), pg_current_wal_insert_lsn()::text
    FROM pg_class q WHERE q.oid = ANY(%s::oid[]) AND pg_relation_size(q.oid) = 0
"""


class Partition(NamedTuple):
    """A partition as it is now, or a partitioned one, which holds no rows itself.

    `file` and `toast` say where its rows are stored. `is_born`: it was created as a partition, and its rows
    have never been rewritten. `is_leaving`: it is being detached.
    """

    id: int
    parent: int
    schema: str
    name: str
    kind: str
    persistence: str
    identity: str
    file: int
    toast: int
    xmin: int
    is_ours: bool
    is_born: bool
    is_leaving: bool

    @property
    def qualified(self) -> str:
        """The name as SQL text."""
        return f"{quote(self.schema)}.{quote(self.name)}"

    @property
    def shown(self) -> str:
        """The name in sentences."""
        return f"{self.schema}.{self.name}"


def partitions_of(rows: Sequence[Sequence[Any]] | None) -> tuple[Partition, ...]:
    """The rows of `TREE`."""
    return tuple(Partition(*each) for each in rows or ())


def links_of(partitions: Iterable[Partition]) -> dict[int, PartitionLink]:
    """The same, as far as a log position has it."""
    return {each.id: PartitionLink(each.xmin) for each in partitions if not each.is_leaving}


class Stored(Protocol):
    """A table that holds rows itself, or a partition."""

    @property
    def id(self) -> int:
        """Identifies it."""

    @property
    def schema(self) -> str:
        """Where it is."""

    @property
    def name(self) -> str:
        """As sentences name it."""

    @property
    def qualified(self) -> str:
        """The name as SQL text."""

    @property
    def kind(self) -> str:
        """As `pg_class.relkind` has it."""

    @property
    def identity(self) -> str:
        """As ALTER TABLE has it."""

    @property
    def is_ours(self) -> bool:
        """Whether we may alter it."""


def to_alter(tables: Iterable[Stored]) -> list[Stored]:
    """Those whose old rows are not logged in full."""
    return [each for each in tables if each.kind == TABLE and each.identity != "FULL"]


@dataclass(frozen=True)
class Followed:
    """The partitions of a table from here on, and what came or went with its rows, in words."""

    links: Mapping[int, PartitionLink]
    reason: str = ""


@dataclass(frozen=True)
class Follower:
    """Compares the partitions of tables with those that were captured.

    All before `position` has been read, and in that, old rows of the tables `disturbed` were changed.
    """

    connection: Connection
    position: int
    disturbed: Collection[int]

    def follow(self, place: str, before: Mapping[int, PartitionLink], now: Sequence[Partition]) -> Followed:
        """The damage by changes of a table's partitions; `place` is its name in the sentence."""
        left = {node: link for node, link in before.items() if not link.is_gone}
        links = links_of(now)
        gone = [node for node, link in left.items() if node not in links or links[node].xmin != link.xmin]
        doubtful = self._doubtful(left.keys(), [each for each in now if each.id in links])
        empty, seen = self._empty([each.id for each in doubtful]) if gone or doubtful else (set(), 0)
        found = {node: link for node, link in before.items() if link.is_gone}
        found |= {node: PartitionLink(left[node].xmin, seen, is_gone=True) for node in gone}
        found |= {node: link if node in gone else left.get(node, link) for node, link in links.items()}
        found |= {each.id: PartitionLink(each.xmin, seen) for each in doubtful}
        filled = [each for each in doubtful if each.id not in empty or each.id in self.disturbed]
        return Followed(self._passed(found), _reason(place, gone, filled, now))

    def _doubtful(self, known: Collection[int], now: Sequence[Partition]) -> list[Partition]:
        """Those of the new ones that may have had rows: they, or what they are below of, were attached."""
        nodes = {each.id: each for each in now}

        def was_empty(each: Partition) -> bool:
            parent = nodes.get(each.parent)
            return each.is_born and (parent is None or parent.id in known or was_empty(parent))

        new = [each for each in now if each.id not in known and each.kind != PARTITIONED]
        return [each for each in new if not was_empty(each)]

    def _empty(self, ids: Sequence[int]) -> tuple[set[int], int]:
        """Which tables have never had a row, or have none any more; and where the log was then."""
        row = self.connection.execute(_EMPTY, (ids,)).fetchone()
        assert row is not None
        return set(row[0] or ()), position_of(row[1])

    def _passed(self, links: Mapping[int, PartitionLink]) -> dict[int, PartitionLink]:
        """Without what holds for positions that have been read."""
        return {
            node: link if link.until > self.position else PartitionLink(link.xmin)
            for node, link in links.items()
            if not link.is_gone or link.until > self.position
        }


def _reason(place: str, gone: Collection[int], filled: Sequence[Partition], now: Sequence[Partition]) -> str:
    names = {each.id: each.shown for each in now}
    if again := [names[node] for node in gone if node in names]:
        return f"partition {again[0]} of table {place} was detached, and its rows with it"
    if gone:
        return f"a partition of table {place} was dropped or detached, and its rows with it"
    if filled:
        return f"table {filled[0].shown} was attached to table {place}, and its rows with it"
    return ""
