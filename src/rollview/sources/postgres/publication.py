"""The publication as it is, and the replica identities that its tables had before they were captured."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from rollview.sources.postgres.address import Address
from rollview.sources.postgres.connections import Connection
from rollview.sources.postgres.partitions import TABLE, Stored
from rollview.sources.postgres.registration import other_registrations
from rollview.sources.postgres.structure import GENERATED_SINCE, Structure

_NOTE = "rollview captures these tables, whose replica identities were: "
_IDENTITY = re.compile(r'(\d+) ((?:USING INDEX )?(?:"(?:[^"]|"")*"|\w+))(?:; |$)')


@dataclass(frozen=True)
class Publication:
    """The publication as it is now. `members` are the ids of its tables; `is_ours`: we may alter it.

    `identities` is what its comment says: the replica identities that tables had before an administrator let
    us capture them. They are restored from there when the table is given back.
    """

    members: frozenset[int]
    is_ours: bool
    is_of_all_tables: bool
    identities: Mapping[int, str]


def read_publication(connection: Connection, address: Address) -> Publication | None:
    """The publication; None if there is none."""
    row = connection.execute(
        "SELECT pg_has_role(p.pubowner, 'USAGE'),"
        " ARRAY(SELECT r.prrelid::int8 FROM pg_publication_rel r WHERE r.prpubid = p.oid), p.puballtables,"
        " coalesce(obj_description(p.oid, 'pg_publication'), '') FROM pg_publication p WHERE p.pubname = %s",
        (address.publication,),
    ).fetchone()
    if row is None:
        return None
    is_ours, members, is_of_all_tables, comment = row
    is_altered = is_ours and not address.owners_publication
    return Publication(frozenset(members), is_altered, is_of_all_tables, _noted(comment))


def _noted(comment: str) -> dict[int, str]:
    """The replica identities that a comment has by the tables' ids; none if somebody else wrote it."""
    if not comment.startswith(_NOTE):
        return {}
    return {int(table): identity for table, identity in _IDENTITY.findall(comment.removeprefix(_NOTE))}


def note_of(identities: Mapping[int, str]) -> str:
    """The comment that says which replica identities tables had, by their ids."""
    return _NOTE + "; ".join(f"{table} {identity}" for table, identity in sorted(identities.items()))


def publication_options(connection: Connection) -> str:
    """The options of a publication of ours: all changes of its tables."""
    options = "publish = 'insert, update, delete, truncate', publish_via_partition_root = false"
    if connection.info.server_version >= GENERATED_SINCE:
        # A table that logs old rows in full cannot be updated if not all of its columns are published.
        options += ", publish_generated_columns = stored"
    return options


def identity_statement(table: Stored, identity: str) -> str:
    """The statement that gives a table another replica identity."""
    return f"ALTER TABLE {table.qualified} REPLICA IDENTITY {identity}"


def identities_to_give_back(table: Structure, had: Mapping[int, str]) -> list[tuple[Stored, str]]:
    """The replica identities that a table or its partitions had, where they still have the one that we gave.

    A partition that was not there when its table was registered had the one that all new tables have.
    """
    if table.id not in had:
        return []
    found = [(each, had.get(each.id, "DEFAULT")) for each in table.stored if each.kind == TABLE]
    return [(each, identity) for each, identity in found if each.identity == "FULL" != identity]


def identities_elsewhere(connection: Connection, address: Address) -> dict[int, str]:
    """The tables that other slots of this database capture, each with the replica identity that it had."""
    others = other_registrations(connection, address)
    tables = [table for other in others for table in other.tables.values()]
    return dict(pair for table in tables for pair in table.identities.items())


def logs_as_before(table: Stored) -> str:
    """The effect as a sentence."""
    return f"table {table.name} logs old rows as before"
