"""The registration: the captured tables, recorded at the server in the comment on a large object.

It has the tables with their columns as they were at setup, the replica identity that each had before, and by
what to detect whether anything that capture relies on has changed since. So whatever a process must know can
be read again. A large object, which stays empty, is what every role may create for itself without an
administrator: the publication, and with it the comment on it, may be somebody else's.

`setup` writes it when the publication has all that is needed. A table that is as it was registered keeps
its registration as it is; one that is not is renewed, with the position since which its changes are complete
again. A capture from an earlier position misses some, and gets the reason.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, lru_cache
from hashlib import sha256
from typing import Any, NamedTuple

from rollview.errors import CaptureRefused
from rollview.sources.postgres.address import Address
from rollview.sources.postgres.connections import Connection, quote, text_literal
from rollview.sources.postgres.partitions import PARTITIONED, TABLE, Partition
from rollview.sources.postgres.position import PartitionLink, position_of, position_text
from rollview.sources.postgres.structure import PostgresColumn, Structure, UniqueKey

# How a table belongs to a publication, as SQL: on its own, with its schema, or with all tables.
#
# A table may belong in several ways. Its own row goes first, because that one may have a filter; what is
# published without one as well is refused all the same.


SCHEMAS_SINCE = 150000
"""From this version on a publication can have all tables of a schema."""


def member_sql(version: int, table: str, schema: str) -> str:
    """The row by which a table is a member of publication `p`: its `oid`, its `xmin`, and as JSON `entry`.

    `table` and `schema` are the ids as SQL. No row: it is not a member.
    """
    ways = [
        "SELECT 1 AS way, r.oid, r.xmin, to_jsonb(r) AS entry FROM pg_publication_rel r"
        f" WHERE r.prpubid = p.oid AND r.prrelid = {table}",
        "SELECT 3, p.oid, p.xmin, '{}' WHERE p.puballtables",
    ]
    if version >= SCHEMAS_SINCE:
        ways.append(
            "SELECT 2, s.oid, s.xmin, '{}' FROM pg_publication_namespace s"
            f" WHERE s.pnpubid = p.oid AND s.pnnspid = {schema}"
        )
    return f"SELECT m.oid, m.xmin, m.entry FROM ({' UNION ALL '.join(ways)}) m ORDER BY m.way LIMIT 1"


_HEADER = "rollview keeps here what it captures: "
_OWN_IDS = 1 << 31


class CatalogRow(NamedTuple):
    """A row of a system catalog: which one, and the transaction that wrote it last.

    Altering it leaves another transaction id, also if it is altered back; a row that was deleted and
    inserted again has another id.
    """

    id: int
    xmin: str


class Renewal(NamedTuple):
    """Why a table, or some columns, were registered again, and since when they are complete (None: now)."""

    reason: str
    columns: tuple[str, ...] = ()
    since: int | None = None


class RegisteredPartition(NamedTuple):
    """A partition as it was at setup, and the replica identity that it had before."""

    id: int
    xmin: int
    identity: str
    file: int
    toast: int


class Beginning(NamedTuple):
    """Where the capture of a table began: a first reading sees all that was committed before `since`.

    It also sees the transactions `halves`, by their ids in the log: they may have written the table before it
    was published, so that the log has only the rest. These were committed before a position (None: now), for
    ids are used again some day.
    """

    since: int = 0
    halves: tuple[int, ...] = ()
    before: int | None = 0


FROM_THE_START = Beginning()


class Released(NamedTuple):
    """A table that was captured once, and the replica identities that are to be given back; mostly none.

    Those of a partitioned table are those of its partitions, each by its id.
    """

    id: int
    identities: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True)
class Registered:
    """A captured table as it was at setup, and the replica identity that it had before.

    `file` and `toast` say where its rows are stored. `member` is the row by which it is in the publication,
    and None before it is registered. `partitions` are all that was below a partitioned table then; which ones
    there are later is in log positions. `key` identifies its rows.
    """

    id: int
    schema: str
    relation: str
    name: str
    columns: tuple[PostgresColumn, ...]
    identity: str
    file: int
    toast: int
    renewals: tuple[Renewal, ...] = ()
    member: CatalogRow | None = None
    kind: str = TABLE
    partitions: tuple[RegisteredPartition, ...] = ()
    beginning: Beginning = FROM_THE_START
    key: UniqueKey | None = None

    @property
    def is_partitioned(self) -> bool:
        return self.kind == PARTITIONED

    @property
    def identities(self) -> dict[int, str]:
        """The replica identities that it and its partitions had before, by id."""
        return {self.id: self.identity} | {each.id: each.identity for each in self.partitions}

    @cached_property
    def qualified(self) -> str:
        """The name as SQL text."""
        return f"{quote(self.schema)}.{quote(self.relation)}"

    @cached_property
    def scanned(self) -> str:
        """The relation to read its rows from, as SQL text."""
        return self.qualified if self.is_partitioned else f"ONLY {self.qualified}"

    @cached_property
    def links(self) -> dict[int, PartitionLink]:
        """The partitions, as a log position has them."""
        return {each.id: PartitionLink(each.xmin) for each in self.partitions}

    @cached_property
    def by_name(self) -> dict[str, PostgresColumn]:
        return {column.name: column for column in self.columns}


@dataclass(frozen=True)
class Registration:
    """All captured tables. `publication` is None where it is not known yet.

    `released` are tables that were captured once: capturing one of them again misses changes.
    `readable_since` is from where on the publication is known: of older log it may have published less, and
    from before it was created the server cannot read any.
    """

    tables: Mapping[str, Registered] = field(default_factory=dict)
    publication: CatalogRow | None = None
    released: Mapping[str, Released] = field(default_factory=dict)
    readable_since: int = 0

    @cached_property
    def identities(self) -> dict[int, str]:
        """The replica identities that tables had before they were captured, by id."""
        released = dict(pair for each in self.released.values() for pair in each.identities)
        return released | dict(pair for each in self.tables.values() for pair in each.identities.items())


def register(structure: Structure, columns: Sequence[str], before: Registered | None = None) -> Registered:
    """A table as it will be registered, with those of the columns that it has.

    Its replica identity is that of the first registration.
    """
    same = before is not None and before.id == structure.id
    identity = before.identity if before is not None and same else structure.identity
    return Registered(
        structure.id,
        structure.schema,
        structure.relation,
        structure.name,
        tuple(column for column in structure.columns if column.name in columns),
        identity,
        structure.file,
        structure.toast,
        kind=structure.kind,
        partitions=tuple(_register_partition(each, before) for each in structure.partitions),
        key=structure.unique,
    )


def _register_partition(partition: Partition, before: Registered | None) -> RegisteredPartition:
    known = {each.id: each.identity for each in before.partitions} if before is not None else {}
    identity = known.get(partition.id, partition.identity)
    return RegisteredPartition(partition.id, partition.xmin, identity, partition.file, partition.toast)


_FILL_IN = """
DECLARE
    registration jsonb := {registration};
BEGIN
    SELECT registration || jsonb_build_object(
        'readable_since', coalesce(registration ->> 'readable_since', pg_current_wal_insert_lsn()::text),
        'publication', coalesce(nullif(registration -> 'publication', 'null'),
            jsonb_build_array(p.oid::int8, p.xmin::text)),
        'tables', (
            SELECT coalesce(jsonb_agg(t || jsonb_build_object(
                'renewals', (SELECT coalesce(jsonb_agg(CASE WHEN w ->> 2 IS NOT NULL THEN w
                        ELSE jsonb_set(w, '{{2}}', to_jsonb(pg_current_wal_insert_lsn()::text)) END), '[]')
                    FROM jsonb_array_elements(t -> 'renewals') w),
                'beginning', jsonb_set(t -> 'beginning', '{{2}}', to_jsonb(
                    coalesce(t -> 'beginning' ->> 2, pg_current_wal_insert_lsn()::text))),
                'member', coalesce(nullif(t -> 'member', 'null'),
                    (SELECT jsonb_build_array(m.oid::int8, m.xmin::text)
                     FROM pg_class c, LATERAL ({member}) m WHERE c.oid = (t ->> 'id')::oid)))), '[]')
            FROM jsonb_array_elements(registration -> 'tables') t))
    INTO STRICT registration FROM pg_publication p WHERE p.pubname = {publication};
    IF NOT EXISTS (SELECT FROM pg_largeobject_metadata WHERE oid = {id}) THEN
        PERFORM lo_create({id});
    END IF;
    EXECUTE format('COMMENT ON LARGE OBJECT {id} IS %L', {header} || registration::text);
END
"""


def registration_id(address: Address) -> int:
    """The large object of a slot. Those of others have small numbers: the server counts up from nothing."""
    return _OWN_IDS | int.from_bytes(sha256(address.slot.encode()).digest()[:4], "big") >> 1


def read_registration(connection: Connection, address: Address) -> Registration | None:
    """The registration; None if there is none, or if it is not the one that setup wrote.

    A large object that is not ours to write is refused.
    """
    row = connection.execute(
        "SELECT pg_has_role(lomowner, 'USAGE'), coalesce(obj_description(oid, 'pg_largeobject'), '')"
        " FROM pg_largeobject_metadata WHERE oid = %s::oid",
        (registration_id(address),),
    ).fetchone()
    if row is None:
        return None
    is_ours, comment = row
    if not is_ours or (comment and not comment.startswith(_HEADER)):
        number = registration_id(address)
        raise CaptureRefused(
            f"source {address.source}: large object {number}, where rollview keeps what it captures, is used"
            " for something else, or is another role's",
            subject=address.source,
            hint=f"if nobody needs it, its owner can remove it: `SELECT lo_unlink({number})`; if it is of"
            " another role that rollview had, `ALTER LARGE OBJECT … OWNER TO …`",
        )
    return decode(comment)


def other_registrations(connection: Connection, address: Address) -> list[Registration]:
    """The registrations for other slots of this database: their tables may be ours, too."""
    rows = connection.execute(
        "SELECT coalesce(obj_description(oid, 'pg_largeobject'), '') FROM pg_largeobject_metadata"
        " WHERE oid >= %s::oid AND oid <> %s::oid",
        (_OWN_IDS, registration_id(address)),
    )
    return [found for (comment,) in rows if (found := decode(comment)) is not None]


def registration_statement(address: Address, registration: Registration, version: int) -> str:
    """The statement that writes it; values that only the server knows are those of this transaction."""
    described = {
        "publication": registration.publication,
        "released": {name: registration.released[name] for name in sorted(registration.released)},
        "readable_since": position_text(registration.readable_since) if registration.readable_since else None,
        "tables": [_described(registration.tables[name]) for name in sorted(registration.tables)],
    }
    body = _FILL_IN.format(
        registration=text_literal(json.dumps(described, ensure_ascii=False)),
        publication=text_literal(address.publication),
        header=text_literal(_HEADER),
        id=registration_id(address),
        member=member_sql(version, "c.oid", "c.relnamespace"),
    )
    tag = "$rollview$"
    while tag in body:
        tag = f"{tag[:-1]}_$"
    return f"DO {tag}{body}{tag}"


def _described(table: Registered) -> dict[str, Any]:
    renewals = [
        (reason, columns, position_text(since) if since is not None else None)
        for reason, columns, since in table.renewals
    ]
    since, halves, before = table.beginning
    beginning = (position_text(since), halves, position_text(before) if before is not None else None)
    fields = {"member": table.member, "renewals": renewals, "beginning": beginning, "key": table.key}
    return asdict(table) | fields


@lru_cache(maxsize=64)
def decode(comment: str) -> Registration | None:
    """The registration in a comment; None if it is not one of ours, or one of another release."""
    if not comment.startswith(_HEADER):
        return None
    try:
        stored = json.loads(comment.removeprefix(_HEADER))
        tables = [_registered(each) for each in stored["tables"]]
        return Registration(
            {each.name: each for each in tables},
            CatalogRow(*stored["publication"]),
            {
                name: Released(table, tuple((number, identity) for number, identity in identities))
                for name, (table, identities) in stored["released"].items()
            },
            position_of(stored["readable_since"]),
        )
    except (ValueError, TypeError, KeyError):
        return None


def _registered(stored: dict[str, Any]) -> Registered:
    columns = tuple(
        PostgresColumn(**column | {"labels": tuple(map(tuple, column["labels"]))})
        for column in stored["columns"]
    )
    renewals = tuple(
        Renewal(reason, tuple(names), position_of(since)) for reason, names, since in stored["renewals"]
    )
    since, halves, before = stored["beginning"]
    # Older registrations have none.
    key = stored.get("key")
    return Registered(
        **stored
        | {
            "columns": columns,
            "renewals": renewals,
            # Somebody has taken it out of the publication while it was registered.
            "member": CatalogRow(*stored["member"]) if stored["member"] is not None else None,
            "partitions": tuple(RegisteredPartition(*each) for each in stored["partitions"]),
            "beginning": Beginning(position_of(since), tuple(halves), position_of(before)),
            "key": UniqueKey(key[0], tuple(key[1])) if key is not None else None,
        }
    )
