"""What is captured, as the server itself knows it: the comment on the publication.

It has the tables with their columns as they were at setup, the replica identity that each had before, and by
what to tell whether anything that capture relies on was changed since. So nothing of ours is needed in the
database but the publication and the slot, and whatever a process must know can be read again.

`setup` writes it in the transaction that alters the publication. A table that is as it was registered keeps
its registration as it is; one that is not is renewed, with the position since which its changes are complete
again. Who captures from an earlier position misses some, and learns the reason.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from rollview.sources.postgres.address import Address
from rollview.sources.postgres.connections import quote, text_literal
from rollview.sources.postgres.partitions import PARTITIONED, TABLE, Partition
from rollview.sources.postgres.position import PartitionLink, position_of, position_text
from rollview.sources.postgres.structure import PostgresColumn, Structure

_HEADER = "rollview keeps here what it captures: "


class CatalogRow(NamedTuple):
    """A row of a system catalog: which one, and the transaction that wrote it last.

    Whoever alters it leaves another transaction id, also if it is altered back; a row that was deleted and
    inserted again has another id.
    """

    id: int
    xmin: str


class Renewal(NamedTuple):
    """Why a table, or some columns, were registered anew, and since when they are complete (None: now)."""

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


@dataclass(frozen=True)
class Registered:
    """A captured table as it was at setup, and the replica identity that it had before.

    `file` and `toast` say where its rows are stored. `member` is its row in the publication, and None before
    it is registered. `partitions` are all that was below a partitioned table then; which ones there are later
    on is for log positions to tell.
    """

    id: int
    schema: str
    name: str
    columns: tuple[PostgresColumn, ...]
    identity: str
    file: int
    toast: int
    renewals: tuple[Renewal, ...] = ()
    member: CatalogRow | None = None
    kind: str = TABLE
    partitions: tuple[RegisteredPartition, ...] = ()

    @property
    def is_partitioned(self) -> bool:
        """Whether its rows are in partitions."""
        return self.kind == PARTITIONED

    @cached_property
    def qualified(self) -> str:
        """The name as SQL text."""
        return f"{quote(self.schema)}.{quote(self.name)}"

    @cached_property
    def scanned(self) -> str:
        """What to read its rows from, as SQL text."""
        return self.qualified if self.is_partitioned else f"ONLY {self.qualified}"

    @cached_property
    def links(self) -> dict[int, PartitionLink]:
        """The partitions, as a log position has them."""
        return {each.id: PartitionLink(each.xmin) for each in self.partitions}

    @cached_property
    def by_name(self) -> dict[str, PostgresColumn]:
        """The columns by name."""
        return {column.name: column for column in self.columns}


@dataclass(frozen=True)
class Registration:
    """All captured tables. `publication` is None where it is not known yet.

    `released` are tables that were captured once: whoever captures one of them again has missed changes.
    `readable_since` is where the publication was created: with it, the server cannot read older log.
    """

    tables: Mapping[str, Registered] = field(default_factory=dict)
    publication: CatalogRow | None = None
    released: frozenset[str] = frozenset()
    readable_since: int = 0


def register(structure: Structure, columns: Sequence[str], before: Registered | None = None) -> Registered:
    """A table as it will be registered, with those of the columns that it has.

    What its replica identity was is remembered from the first time.
    """
    same = before is not None and before.id == structure.id
    identity = before.identity if before is not None and same else structure.identity
    return Registered(
        structure.id,
        structure.schema,
        structure.name,
        tuple(column for column in structure.columns if column.name in columns),
        identity,
        structure.file,
        structure.toast,
        kind=structure.kind,
        partitions=tuple(_register_partition(each, before) for each in structure.partitions),
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
                'member', coalesce(nullif(t -> 'member', 'null'),
                    (SELECT jsonb_build_array(r.oid::int8, r.xmin::text) FROM pg_publication_rel r
                     WHERE r.prpubid = p.oid AND r.prrelid = (t ->> 'id')::oid)))), '[]')
            FROM jsonb_array_elements(registration -> 'tables') t))
    INTO STRICT registration FROM pg_publication p WHERE p.pubname = {name};
    EXECUTE format('COMMENT ON PUBLICATION %I IS %L', {name}, {header} || registration::text);
END
"""


def registration_statement(address: Address, registration: Registration) -> str:
    """What writes the comment, with what only the server knows, as the present transaction leaves it."""
    described = {
        "publication": registration.publication,
        "released": sorted(registration.released),
        "readable_since": position_text(registration.readable_since) if registration.readable_since else None,
        "tables": [_described(registration.tables[name]) for name in sorted(registration.tables)],
    }
    body = _FILL_IN.format(
        registration=text_literal(json.dumps(described, ensure_ascii=False)),
        name=text_literal(address.slot),
        header=text_literal(_HEADER),
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
    return asdict(table) | {"member": table.member, "renewals": renewals}


@lru_cache(maxsize=64)
def decode(comment: str) -> Registration | None:
    """What a comment says; None if it is not one of ours, or one of another release."""
    if not comment.startswith(_HEADER):
        return None
    try:
        told = json.loads(comment.removeprefix(_HEADER))
        tables = [_registered(each) for each in told["tables"]]
        return Registration(
            {each.name: each for each in tables},
            CatalogRow(*told["publication"]),
            frozenset(told["released"]),
            position_of(told["readable_since"]),
        )
    except (ValueError, TypeError, KeyError):
        return None


def _registered(told: dict[str, Any]) -> Registered:
    columns = tuple(
        PostgresColumn(**column | {"labels": tuple(map(tuple, column["labels"]))})
        for column in told["columns"]
    )
    renewals = tuple(
        Renewal(reason, tuple(names), position_of(since)) for reason, names, since in told["renewals"]
    )
    member = CatalogRow(*told["member"])
    partitions = tuple(RegisteredPartition(*each) for each in told["partitions"])
    read = {"columns": columns, "member": member, "renewals": renewals, "partitions": partitions}
    return Registered(**told | read)
