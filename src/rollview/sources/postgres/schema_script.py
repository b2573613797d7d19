"""The script for an administrator who wants to be asked once: a whole schema may be captured from then on."""

from __future__ import annotations

from rollview.errors import InputError
from rollview.sources.postgres.address import Address
from rollview.sources.postgres.connections import Connection, quote
from rollview.sources.postgres.install import role_of
from rollview.sources.postgres.publication import publication_options, read_publication
from rollview.sources.postgres.schema_function import function_statements
from rollview.sources.postgres.slot import slot_obstacles


def schema_script(connection: Connection, address: Address, schema: str) -> tuple[str, ...]:
    """The statements. Whoever runs them must be a superuser, or have the rights of all tables' owners."""
    row = connection.execute(
        "SELECT current_database()::text, EXISTS (SELECT FROM pg_namespace WHERE nspname = %s)", (schema,)
    ).fetchone()
    assert row is not None
    database, is_there = row
    if not is_there or (address.schemas and schema not in address.schemas):
        raise InputError(
            f"source {address.source} has no schema {schema}",
            subject=schema,
            hint=f"its schemas are {', '.join(address.schemas)}" if address.schemas else "is it spelled so?",
        )
    role = role_of(connection)
    publication = []
    if not address.owners_publication and read_publication(connection, address) is None:
        options = publication_options(connection)
        publication = [f"CREATE PUBLICATION {quote(address.publication)} WITH ({options});"]
    return (
        f"-- Lets {_comment(role)} capture every table of schema {_comment(schema)} in database"
        f" {_comment(database)}, now and later.",
        "-- Run it once in that database, as a superuser or as the owner of all tables of the schema.",
        *slot_obstacles(connection, address),
        "BEGIN;",
        f"GRANT USAGE ON SCHEMA {quote(schema)} TO {quote(role)};",
        *publication,
        *function_statements(address, schema, role),
        "COMMIT;",
    )


def _comment(name: str) -> str:
    """A name that does not end the line."""
    return " ".join(name.split())
