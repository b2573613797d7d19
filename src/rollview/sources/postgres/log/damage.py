"""The damage of a captured table since setup, as a sentence; none if all of its changes are in the log.

Harmless changes are no damage: new columns, wider types, indexes, defaults, constraints other
than the key, rights, comments, another tablespace, and whatever moves rows without changing them. Partitions
that come and go are no damage either: see `partitions.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rollview.sources.postgres.address import Address
from rollview.sources.postgres.connections import Connection
from rollview.sources.postgres.partitions import BELOW, TREE, Partition, partitions_of
from rollview.sources.postgres.registration import (
    CatalogRow,
    Registered,
    RegisteredPartition,
    Registration,
    member_sql,
    registration_id,
)
from rollview.sources.postgres.structure import PostgresColumn, UniqueKey, keeps_values, partition_obstacle

# The state that capture and look-ups rely on, as it is at the server right now.
#
# The server writes nothing to its log when a publication is altered or a table is rewritten. So what matters
# is looked at after the log has been read: what is the same then was the same for all that was read. That
# happens all the time, so a digest is compared first, in one query that costs little even for many tables.

# Altering a column, a comment, a partition or a member of a publication leaves another xmin.
_GLANCE = f"""
    SELECT encode(sha256(convert_to(concat_ws('|', p.oid, p.xmin,
        (SELECT d.xmin FROM pg_description d WHERE d.classoid = 'pg_largeobject'::regclass
         AND d.objoid = %(registration)s::oid AND d.objsubid = 0),
        (SELECT string_agg(concat_ws(',', e.oid, e.xmin), ';' ORDER BY e.oid)
         FROM pg_enum e WHERE e.oid = ANY(%(labels)s::oid[])),
        (SELECT string_agg(concat_ws(',', c.oid, n.nspname, c.relname, c.relkind, c.relpersistence,
                c.relreplident, c.relfilenode, c.reltoastrelid, row_security_active(c.oid), r.oid, r.xmin,
                EXISTS (SELECT FROM pg_inherits h WHERE h.inhparent = c.oid)), ';' ORDER BY c.oid)
         FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
         LEFT JOIN LATERAL ({{member}}) r ON true
         WHERE c.oid = ANY(%(tables)s::oid[])),
        (SELECT string_agg(concat_ws(',', a.attrelid, a.attnum, a.xmin), ';' ORDER BY a.attrelid, a.attnum)
         FROM pg_attribute a WHERE a.attrelid = ANY(%(tables)s::oid[]) AND a.attnum > 0),
        (SELECT string_agg(concat_ws(',', i.indexrelid, i.indisvalid, k.oid), ';' ORDER BY i.indexrelid)
         FROM pg_index i LEFT JOIN pg_constraint k ON k.conindid = i.indexrelid AND k.contype IN ('p', 'u')
         WHERE i.indrelid = ANY(%(tables)s::oid[]) AND i.indisunique),
        ({BELOW.format(root="ANY(%(tables)s::oid[])")}
         SELECT string_agg(concat_ws(',', h.inhrelid, h.inhparent, h.xmin, c.relkind, c.relpersistence,
                c.relreplident, c.relfilenode, c.reltoastrelid, r.oid), ';' ORDER BY h.inhrelid, h.inhparent)
         FROM below JOIN pg_inherits h ON h.inhrelid = below.inhrelid AND h.inhparent = below.inhparent
         JOIN pg_class c ON c.oid = h.inhrelid
         LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = c.oid)
    ), 'UTF8')), 'hex') FROM pg_publication p WHERE p.pubname = %(publication)s
"""
_LOOK = f"""
    SELECT p.oid::int8, p.xmin::text,
        p.pubinsert AND p.pubupdate AND p.pubdelete AND p.pubtruncate AND NOT p.pubviaroot
            AND (coalesce(to_jsonb(p) ->> 'pubgencols', 's') = 's' OR NOT EXISTS (SELECT FROM pg_attribute a
                WHERE a.attrelid = ANY(%(tables)s::oid[]) AND a.attgenerated = 's')),
        coalesce(obj_description(%(registration)s::oid, 'pg_largeobject'), ''),
        (SELECT jsonb_object_agg(e.oid, e.xmin::text) FROM pg_enum e WHERE e.oid = ANY(%(labels)s::oid[])),
        (SELECT jsonb_agg(jsonb_build_object(
            'id', c.oid::int8, 'schema', n.nspname, 'name', c.relname,
            'kind', c.relkind, 'persistence', c.relpersistence, 'identity', c.relreplident,
            'is_secured', row_security_active(c.oid),
            'has_children', EXISTS (SELECT FROM pg_inherits h WHERE h.inhparent = c.oid),
            'file', c.relfilenode::int8, 'toast', c.reltoastrelid::int8,
            'member', CASE WHEN r.oid IS NOT NULL THEN jsonb_build_array(r.oid::int8, r.xmin::text) END,
            'has_row_filter', r.entry ->> 'prqual' IS NOT NULL,
            'has_column_list', r.entry ->> 'prattrs' IS NOT NULL,
            'partitions', CASE WHEN c.relkind = 'p' THEN {TREE} END,
            'has_member_below', c.relkind = 'p' AND EXISTS ({BELOW.format(root="c.oid")}
                SELECT FROM below JOIN pg_publication_rel m ON m.prpubid = p.oid AND m.prrelid = inhrelid),
            'keys', (SELECT jsonb_agg(jsonb_build_array(coalesce(k.oid, 0)::int8,
                    to_jsonb((i.indkey::int2[])[0:i.indnkeyatts - 1])))
                FROM pg_index i LEFT JOIN pg_constraint k ON k.conindid = i.indexrelid
                    AND k.conrelid = i.indrelid AND k.contype IN ('p', 'u')
                WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid
                    AND i.indpred IS NULL AND i.indexprs IS NULL
                    AND NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND NOT a.attnotnull
                        AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1]))),
            'columns', (SELECT jsonb_object_agg(a.attname, jsonb_build_array(
                    a.attnum, a.atttypid::int8, a.atttypmod,
                    coalesce(l.collisdeterministic, true), a.xmin::text))
                FROM pg_attribute a LEFT JOIN pg_collation l ON l.oid = a.attcollation
                WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)))
         FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
         LEFT JOIN LATERAL ({{member}}) r ON true
         WHERE c.oid = ANY(%(tables)s::oid[]))
    FROM pg_publication p WHERE p.pubname = %(publication)s
"""


class ColumnFingerprint(NamedTuple):
    """A column; `is_deterministic` is said of its collation, `version` of its row in the catalog."""

    number: int
    type_id: int
    modifier: int
    is_deterministic: bool
    version: str


@dataclass(frozen=True)
class TableFingerprint:
    """A table. `is_secured` says that row security hides rows from us.

    `has_member_below`: a partition of it is in the publication on its own, where it may have a filter.
    """

    id: int
    schema: str
    name: str
    kind: str
    persistence: str
    identity: str
    is_secured: bool
    has_children: bool
    file: int
    toast: int
    member: CatalogRow | None
    has_row_filter: bool
    has_column_list: bool
    partitions: tuple[Partition, ...]
    has_member_below: bool
    keys: tuple[UniqueKey, ...]
    columns: Mapping[str, ColumnFingerprint]


@dataclass(frozen=True)
class Fingerprint:
    """The publication, the comment that registers, and tables by id. `labels` are rows of enums' values."""

    publication: CatalogRow
    publishes_all: bool
    comment: str
    labels: Mapping[int, str]
    tables: Mapping[int, TableFingerprint]


def glance(connection: Connection, address: Address, tables: Collection[Registered]) -> str:
    """A digest of the result of `read_fingerprint`: equal if that is equal. Empty without a publication."""
    row = connection.execute(_of(_GLANCE, connection), _sought(address, tables)).fetchone()
    return str(row[0]) if row is not None else ""


def _sought(address: Address, tables: Collection[Registered]) -> dict[str, Any]:
    labels = [label for table in tables for column in table.columns for label, _ in column.labels]
    return {
        "publication": address.publication,
        "registration": registration_id(address),
        "tables": [table.id for table in tables],
        "labels": labels,
    }


def _of(query: str, connection: Connection) -> bytes:
    """The query as this server understands it."""
    member = member_sql(connection.info.server_version, "c.oid", "c.relnamespace")
    return query.replace("{member}", member).encode()


def read_fingerprint(
    connection: Connection, address: Address, tables: Collection[Registered]
) -> Fingerprint | None:
    """These tables as they are now; None if there is no publication."""
    row = connection.execute(_of(_LOOK, connection), _sought(address, tables)).fetchone()
    if row is None:
        return None
    identity, xmin, publishes_all, comment, found_labels, found = row
    return Fingerprint(
        CatalogRow(identity, xmin),
        publishes_all,
        comment,
        {int(label): version for label, version in (found_labels or {}).items()},
        {each["id"]: _table(each) for each in found or ()},
    )


def _table(found: dict[str, object]) -> TableFingerprint:
    member, columns = found["member"], found["columns"] or {}
    assert isinstance(columns, dict)
    fields = found | {
        "member": CatalogRow(*member) if isinstance(member, list) else None,
        "partitions": partitions_of(found["partitions"]),  # type: ignore[arg-type]
        "keys": tuple(UniqueKey(constraint, tuple(key)) for constraint, key in found["keys"] or ()),  # type: ignore[attr-defined]
        "columns": {name: ColumnFingerprint(*column) for name, column in columns.items()},
    }
    return TableFingerprint(**fields)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Damage:
    """The damage of a table, or only of some of its columns, if they are named."""

    reason: str
    columns: tuple[str, ...] = ()


def combined(damages: Sequence[Damage]) -> Damage | None:
    """Several as one; what concerns all columns goes before what concerns some."""
    if whole := [each for each in damages if not each.columns]:
        return whole[0]
    columns = dict.fromkeys(column for each in damages for column in each.columns)
    reasons = dict.fromkeys(each.reason for each in damages)
    return Damage("; ".join(reasons), tuple(columns)) if columns else None


def damage_of_all(registration: Registration, now: Fingerprint, publication: str) -> str:
    """The damage of every table of a publication."""
    was = registration.publication
    if was is None or was.id != now.publication.id:
        return f"publication {publication} was replaced by another one of the same name"
    if not now.publishes_all:
        return f"publication {publication} was altered and does not publish all changes any more"
    if was != now.publication:
        return f"publication {publication} was altered, and may have published less for a while"
    return ""


def damage(table: Registered, now: Fingerprint, place: str) -> Damage | None:
    """The damage of one table; `place` is its name in the sentence."""
    found = now.tables.get(table.id)
    if found is None:
        return Damage(f"table {place} was dropped")
    if reason := _damaged_identity(table, found, place) or _damaged_membership(table, found, place):
        return Damage(reason)
    reasons = {column.name: _damaged_column(column, table, now, place) for column in table.columns}
    return combined([Damage(reason, (name,)) for name, reason in reasons.items() if reason])


def _damaged_identity(table: Registered, now: TableFingerprint, place: str) -> str:
    if (table.schema, table.relation) != (now.schema, now.name):
        return f"table {place} was renamed to {now.schema}.{now.name}"
    if now.kind != table.kind:
        return f"table {place} is not the kind of table any more that it was"
    if now.persistence != "p":
        return f"table {place} was set UNLOGGED, so its changes are not in the log"
    if table.is_partitioned:
        obstacles = (partition_obstacle(each) for each in now.partitions)
        if obstacle := next((reason for reason in obstacles if reason), ""):
            return f"table {place}: {obstacle}"
    elif now.has_children:
        return f"other tables inherit from table {place} now, and their rows are not captured"
    elif now.identity != "f":
        return f"table {place} no longer has REPLICA IDENTITY FULL, so old rows are not in the log"
    if table.key is not None and not any(_is_same(table.key, each) for each in now.keys):
        return f"the key of table {place} was dropped, or replaced: it may no longer identify rows"
    return ""


def _is_same(key: UniqueKey, now: UniqueKey) -> bool:
    """Whether a key has been there all the time. Replacing an index is no damage; dropping one is."""
    if key.constraint:
        return key.constraint == now.constraint
    return set(key.columns) == set(now.columns)


def _damaged_membership(table: Registered, now: TableFingerprint, place: str) -> str:
    if now.member is None:
        return f"table {place} was taken out of the publication"
    if now.has_row_filter:
        return f"table {place} was given a row filter in the publication"
    if now.has_column_list:
        return f"table {place} was given a column list in the publication"
    if now.has_member_below:
        return f"a partition of table {place} was put into the publication on its own"
    if now.member != table.member:
        return f"table {place} was taken out of the publication and put back, or had a filter for a while"
    return ""


def _damaged_column(column: PostgresColumn, table: Registered, now: Fingerprint, place: str) -> str:
    fingerprint = now.tables[table.id]
    found = fingerprint.columns.get(column.name)
    if found is None:
        return f"column {column.name} of table {place} was dropped or renamed"
    if found.number != column.number:
        return f"column {column.name} of table {place} is another one than before"
    if not keeps_values(column, found.type_id, found.modifier):
        return f"column {column.name} of table {place} has another type than before"
    if column.exact and not found.is_deterministic:
        return f"column {column.name} of table {place} has a collation that takes unequal texts as equal"
    if any(now.labels.get(label) != version for label, version in column.labels):
        return f"a value of the enum type of column {column.name} of table {place} was renamed"
    if found.version != column.version and _is_rewritten(table, fingerprint):
        return f"table {place} was rewritten, and its column {column.name} altered: values may differ"
    return ""


def _is_rewritten(table: Registered, now: TableFingerprint) -> bool:
    """Whether ALTER TABLE has rewritten all rows; of a partitioned table, those of all its partitions."""
    if not table.is_partitioned:
        return _is_moved(table, now)
    left = {each.id: each for each in now.partitions}
    known = [(each, left[each.id]) for each in table.partitions if each.id in left and each.file]
    # Without any that was there before, nothing speaks against it.
    return all(_is_moved(was, found) for was, found in known)


def _is_moved(was: Registered | RegisteredPartition, now: TableFingerprint | Partition) -> bool:
    """Whether rows are stored in another place, by ALTER TABLE if that can be decided.

    It gives a table another TOAST table then, and VACUUM FULL and CLUSTER do not. Of a table that has none,
    only the file shows it, and so these look alike.
    """
    return now.toast != was.toast if was.toast else now.file != was.file
