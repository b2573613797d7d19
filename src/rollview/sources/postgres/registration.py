"""What is captured, as the server itself knows it: the publication, and the comment on it.

The publication lists the tables. Its comment has their columns as they were at setup, and the replica
identity that each had before. So nothing of ours is needed in the database but the publication and the slot,
and whatever a process must know can be read again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property

from rollview.errors import NotSetUp, SourceChanged
from rollview.sources.postgres.address import Address
from rollview.sources.postgres.connections import Connection, quote
from rollview.sources.postgres.structure import PostgresColumn, Structure
from rollview.sources.reload_hint import reload_hint

_HEADER = "rollview keeps here what it captures: "


@dataclass(frozen=True)
class Registered:
    """A captured table as it was at setup, and the replica identity that it had before."""

    id: int
    schema: str
    name: str
    columns: tuple[PostgresColumn, ...]
    identity: str

    @cached_property
    def qualified(self) -> str:
        """The name as SQL text."""
        return f"{quote(self.schema)}.{quote(self.name)}"

    @cached_property
    def by_name(self) -> dict[str, PostgresColumn]:
        """The columns by name."""
        return {column.name: column for column in self.columns}


@dataclass(frozen=True)
class Publication:
    """The publication as it is now. `members` are the ids of its tables; `is_ours`: we may alter it."""

    tables: Mapping[str, Registered]
    members: frozenset[int]
    is_ours: bool


def read_publication(connection: Connection, address: Address) -> Publication | None:
    """The publication with what its comment says; None if there is none."""
    row = connection.execute(
        "SELECT pg_has_role(p.pubowner, 'USAGE'), obj_description(p.oid, 'pg_publication'),"
        " ARRAY(SELECT r.prrelid::int8 FROM pg_publication_rel r WHERE r.prpubid = p.oid)"
        " FROM pg_publication p WHERE p.pubname = %s",
        (address.slot,),
    ).fetchone()
    if row is None:
        return None
    is_ours, comment, members = row
    return Publication(_decode(comment or ""), frozenset(members), is_ours)


def registered_tables(connection: Connection, address: Address) -> Mapping[str, Registered]:
    """The captured tables by name; refuses where setup has not been."""
    publication = read_publication(connection, address)
    if publication is None:
        raise NotSetUp(
            f"source {address.source} is not set up for capture",
            subject=address.source,
            hint="run `rollview setup`",
        )
    return publication.tables


def expect_intact(connection: Connection, address: Address) -> Mapping[str, Registered]:
    """The captured tables, all of them as they were at setup; otherwise an error that says what happened.

    PostgreSQL writes nothing to its log when it rewrites a table, so this is how such a change is noticed.
    """
    tables = registered_tables(connection, address)
    rows = connection.execute(
        "SELECT c.oid::int8, c.relreplident, a.attname, a.attnum, a.atttypid::int8, a.atttypmod"
        " FROM pg_publication p JOIN pg_publication_rel r ON r.prpubid = p.oid"
        " JOIN pg_class c ON c.oid = r.prrelid JOIN pg_attribute a ON a.attrelid = c.oid"
        " WHERE p.pubname = %s AND a.attnum > 0 AND NOT a.attisdropped",
        (address.slot,),
    ).fetchall()
    identities = {row[0]: row[1] for row in rows}
    columns = {(row[0], row[2]): row[3:] for row in rows}
    for table in tables.values():
        if reason := _damage(table, identities, columns):
            raise SourceChanged(
                f"source {address.source}: {reason}",
                subject=f"{address.source}.{table.name}",
                hint=reload_hint(address.source),
            )
    return tables


def _damage(
    table: Registered,
    identities: Mapping[int, str],
    columns: Mapping[tuple[int, str], tuple[int, int, int]],
) -> str:
    if table.id not in identities:
        return f"table {table.name} is gone, or no longer in the publication"
    if identities[table.id] != "f":
        return f"the replica identity of table {table.name} is no longer FULL, so old rows are not in the log"
    for column in table.columns:
        now = columns.get((table.id, column.name))
        if now is None:
            return f"table {table.name} has lost its column {column.name}"
        if now != (column.number, column.type_id, column.modifier):
            return f"column {column.name} of table {table.name} changed its type or was recreated"
    return ""


def register(structure: Structure, before: Registered | None) -> Registered:
    """A table as it will be registered. What its replica identity was is remembered from the first time."""
    same = before is not None and before.id == structure.id
    identity = before.identity if before is not None and same else structure.identity
    return Registered(structure.id, structure.schema, structure.name, structure.columns, identity)


def encode(tables: Iterable[Registered]) -> str:
    """The comment."""
    described = [asdict(table) for table in sorted(tables, key=lambda each: each.name)]
    return _HEADER + json.dumps(described, ensure_ascii=False)


def _decode(comment: str) -> dict[str, Registered]:
    if not comment.startswith(_HEADER):
        return {}
    found = {}
    for each in json.loads(comment.removeprefix(_HEADER)):
        columns = tuple(PostgresColumn(**column) for column in each.pop("columns"))
        found[each["name"]] = Registered(columns=columns, **each)
    return found
