"""The function that an administrator may leave in a schema, so that setup need not ask again.

It runs with the rights of its creator, and captures or releases a table of its own schema for us: the
right to read it, its replica identity, its place in our publication. Nobody else may call it. It is called as
the slot is, so that several projects do not meet. It gets a table by its id and names it itself, so no text
of ours becomes a part of a statement.
"""

from __future__ import annotations

from dataclasses import dataclass

from rollview.errors import InputError
from rollview.sources.postgres.address import Address
from rollview.sources.postgres.connections import Connection, quote, role_of, text_literal
from rollview.sources.postgres.log.slot import slot_obstacles
from rollview.sources.postgres.partitions import Stored
from rollview.sources.postgres.publication import publication_options, read_publication

_ARGUMENTS = "act text, captured oid, identity text"
# Everything is named in full, or found in pg_catalog alone.
_FUNCTION = """CREATE FUNCTION {function}({arguments}) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS {tag}
DECLARE
    named text;
BEGIN
    SELECT format('%I.%I', n.nspname, c.relname) INTO named
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = captured AND n.nspname = {schema} AND c.relkind IN ('r', 'p');
    IF named IS NULL THEN
        RAISE insufficient_privilege
        USING MESSAGE = format('%s is not a table of schema %I', captured, {schema});
    END IF;
    IF act = 'capture' THEN
        EXECUTE format('GRANT SELECT ON %s TO %I', named, {role});{add}
    ELSIF act = 'log' THEN
        EXECUTE format('ALTER TABLE %s REPLICA IDENTITY FULL', named);
    ELSIF act = 'release' THEN{drop}
        IF identity IN ('DEFAULT', 'NOTHING') THEN
            EXECUTE format('ALTER TABLE %s REPLICA IDENTITY %s', named, identity);
        ELSIF identity <> '' THEN
            EXECUTE format('ALTER TABLE %s REPLICA IDENTITY USING INDEX %I', named, identity);
        END IF;
    ELSE
        RAISE invalid_parameter_value USING MESSAGE = format('%s is neither capture, log nor release', act);
    END IF;
END
{tag};"""
_MEMBER = """EXISTS (SELECT FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
            WHERE p.pubname = {publication} AND r.prrelid = captured)"""
_ADD = """
        IF NOT {member} THEN
            EXECUTE format('ALTER PUBLICATION %I ADD TABLE %s', {publication}, named);
        END IF;"""
_DROP = """
        IF {member} THEN
            EXECUTE format('ALTER PUBLICATION %I DROP TABLE ONLY %s', {publication}, named);
        END IF;"""
_INDEX = "USING INDEX "


@dataclass(frozen=True)
class SchemaFunction:
    """A function that we may call, and the tables for which it has the rights that it takes.

    `is_ours`: we may drop it.
    """

    schema: str
    slot: str
    tables: frozenset[int]
    is_ours: bool

    def capture(self, table: Stored) -> str:
        """The statement that lets us read a table, and publishes it."""
        return self._call("capture", table, "")

    def log(self, table: Stored) -> str:
        """The statement that lets a table, or a partition, log old rows in full."""
        return self._call("log", table, "")

    def release(self, table: Stored, identity: str) -> str:
        """The statement that lets a table go, and gives it a replica identity back unless that is empty."""
        if identity.startswith(_INDEX):
            identity = identity.removeprefix(_INDEX)
            if identity.startswith('"'):
                identity = identity[1:-1].replace('""', '"')
        return self._call("release", table, identity)

    def _call(self, act: str, table: Stored, identity: str) -> str:
        function = f"{quote(self.schema)}.{quote(self.slot)}"
        return f"SELECT {function}('{act}', {table.id}::oid, {text_literal(identity)})"


def schema_functions(connection: Connection, address: Address) -> dict[str, SchemaFunction]:
    """The functions that we may call, by schema.

    Only one that runs as somebody who may alter the table anyway is of use: whatever it does, it does not do
    it with our rights, and not with more rights than its author has.
    """
    rows = connection.execute(
        "SELECT n.nspname::text, ARRAY(SELECT c.oid::int8 FROM pg_class c WHERE c.relnamespace = n.oid"
        "   AND c.relkind IN ('r', 'p') AND pg_has_role(f.proowner, c.relowner, 'USAGE')"
        "   AND NOT EXISTS (SELECT FROM pg_publication p"
        "     WHERE p.pubname = %(altered)s AND NOT pg_has_role(f.proowner, p.pubowner, 'USAGE'))),"
        " pg_has_role(f.proowner, 'USAGE') FROM pg_proc f JOIN pg_namespace n ON n.oid = f.pronamespace"
        " WHERE f.proname = %(slot)s AND f.prosecdef AND f.proargtypes = '25 26 25'::oidvector"
        " AND has_function_privilege(f.oid, 'EXECUTE') AND has_schema_privilege(n.oid, 'USAGE')",
        {"slot": address.slot, "altered": "" if address.owners_publication else address.publication},
    )
    return {
        schema: SchemaFunction(schema, address.slot, frozenset(tables), is_ours)
        for schema, tables, is_ours in rows
    }


def function_statements(address: Address, schema: str, role: str) -> list[str]:
    """The statements that create the function, for us alone. It does not alter an owner's publication."""
    function = f"{quote(schema)}.{quote(address.slot)}"
    publication = text_literal(address.publication)
    member = _MEMBER.format(publication=publication)
    parts = {
        "function": function,
        "arguments": _ARGUMENTS,
        "schema": text_literal(schema),
        "role": text_literal(role),
        "add": "" if address.owners_publication else _ADD.format(member=member, publication=publication),
        "drop": "" if address.owners_publication else _DROP.format(member=member, publication=publication),
    }
    tag = "$rollview$"
    while any(tag in part for part in parts.values()):
        tag = f"{tag[:-1]}_$"
    signature = f"{function}(text, oid, text)"
    return [
        # One that somebody else has created would stay theirs if it were replaced.
        f"DROP FUNCTION IF EXISTS {signature};",
        _FUNCTION.format(tag=tag, **parts),
        f"REVOKE ALL ON FUNCTION {signature} FROM PUBLIC;",
        f"GRANT EXECUTE ON FUNCTION {signature} TO {quote(role)};",
    ]


def drop_statement(function: SchemaFunction) -> str:
    """The statements by which an administrator removes it."""
    return f"DROP FUNCTION {quote(function.schema)}.{quote(function.slot)}(text, oid, text)"


# The script for an administrator who wants to be asked once: a whole schema may be captured from then on.


def schema_script(connection: Connection, address: Address, schema: str) -> tuple[str, ...]:
    """The statements, for a superuser, or a role with the rights of all tables' owners."""
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
