"""What capture and look-ups rely on, as it is at the server right now.

The server writes nothing to its log when a publication is altered or a table is rewritten. So what matters is
looked at after the log has been read: what is the same then was the same for all that was read. That happens
all the time, so a digest is compared first, in one query that costs little even for many tables.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from rollview.sources.postgres.address import Address
from rollview.sources.postgres.connections import Connection
from rollview.sources.postgres.membership import member_sql
from rollview.sources.postgres.partitions import BELOW, TREE, Partition, partitions_of
from rollview.sources.postgres.registration import CatalogRow, Registered, registration_id
from rollview.sources.postgres.structure import UniqueKey

# Whoever alters a column, a comment, a partition or a member of a publication leaves another xmin.
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

    `has_member_below`: a partition of it is in the publication by itself, where it may have a filter.
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
    """A digest of what `look` would find: if it is the same, so is all else. Empty without a publication."""
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


def look(connection: Connection, address: Address, tables: Collection[Registered]) -> Fingerprint | None:
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
    told = found | {
        "member": CatalogRow(*member) if isinstance(member, list) else None,
        "partitions": partitions_of(found["partitions"]),  # type: ignore[arg-type]
        "keys": tuple(UniqueKey(constraint, tuple(key)) for constraint, key in found["keys"] or ()),  # type: ignore[attr-defined]
        "columns": {name: ColumnFingerprint(*column) for name, column in columns.items()},
    }
    return TableFingerprint(**told)  # type: ignore[arg-type]
