"""The right to announce parts of global transactions: a function of ours, and the table that it writes.

A message in the log (`pg_logical_emit_message`) and the name of a prepared transaction are open to every
role, and neither says whose it is. So a transaction is a part only if it has a row of a table that nobody but
its owner writes, by a function that only the roles of the option `coordinators` may execute. The function
deletes the row again: it is in the log, and that is all it is for.
"""

from __future__ import annotations

from dataclasses import dataclass

from rollview.errors import CaptureRefused
from rollview.sources.postgres.address import Address
from rollview.sources.postgres.connections import (
    MAY_CREATE,
    Connection,
    Connections,
    may,
    quote,
    role_of,
    text_literal,
)
from rollview.sources.postgres.log.pgoutput import Relation
from rollview.sources.postgres.publication import read_publication
from rollview.sources.postgres.setup.plan import InstallPlan

TABLE, FUNCTION = "part", "take_part"
_LONGEST_ID = 200
_LONGEST_SOURCES = 2000
# The owner of such a schema could announce anything. An administrator may have made it for us.
_TRUSTED = (
    "({owner} = (SELECT oid FROM pg_roles WHERE rolname = current_user)"
    " OR {owner} = (SELECT datdba FROM pg_database WHERE datname = current_database())"
    " OR (SELECT rolsuper FROM pg_roles WHERE oid = {owner}))"
)
_GRANTED = """
    ARRAY(SELECT coalesce(r.rolname::text, 'public')
          FROM aclexplode(coalesce({acl}, acldefault({kind}, {owner}))) a
          LEFT JOIN pg_roles r ON r.oid = a.grantee WHERE a.grantee <> {owner} ORDER BY 1)
"""
_LOOK = f"""
    SELECT {_TRUSTED.format(owner="n.nspowner")}
             AND coalesce({_TRUSTED.format(owner="c.relowner")}, true)
             AND coalesce({_TRUSTED.format(owner="f.proowner")}, true),
           c.relreplident = 'f', f.prosrc, f.prosecdef,
           {_GRANTED.format(acl="f.proacl", kind="'f'", owner="f.proowner")},
           {_GRANTED.format(acl="n.nspacl", kind="'n'", owner="n.nspowner")},
           EXISTS (SELECT FROM pg_publication_tables t WHERE t.pubname = %(publication)s
                   AND t.schemaname = n.nspname AND t.tablename = c.relname),
           pg_has_role(n.nspowner, 'USAGE')
    FROM pg_namespace n
    LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = '{TABLE}' AND c.relkind = 'r'
    LEFT JOIN pg_proc f ON f.pronamespace = n.oid AND f.proname = '{FUNCTION}'
    WHERE n.nspname = %(schema)s
"""
_IS_OURS = f"""
    SELECT {_TRUSTED.format(owner="c.relowner")} FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = %s::oid AND n.nspname = %s AND c.relname = '{TABLE}'
"""


def call_of(address: Address) -> str:
    """How an application says that its transaction is a part."""
    return f"SELECT {address.global_schema}.{FUNCTION}('ID', '{address.source},…')"


def untrusted_part(address: Address) -> str:
    """The note, given once, on transactions that call themselves parts and are none."""
    may = f"{', '.join(address.coordinators)} by `{call_of(address)}`" if address.coordinators else "nobody"
    return (
        f"source {address.source}: a transaction announces itself as a part of a global one by"
        " pg_logical_emit_message or the name that it was prepared with. Every role can do that, so it is"
        f" taken as a transaction of its own; announced by {may}, a part counts (option `coordinators`)"
    )


def counts(connections: Connections, address: Address, relation: Relation) -> bool:
    """Whether rows of a relation of the log say of their transactions that they are parts."""
    if (relation.schema, relation.name) != (address.global_schema, TABLE):
        return False
    with connections.connection() as connection:
        row = connection.execute(_IS_OURS, (relation.id, address.global_schema)).fetchone()
    return row is not None and bool(row[0])


@dataclass(frozen=True)
class _Installed:
    """The objects that are there. `is_intact` leaves out whom the function is granted to."""

    is_trusted: bool
    is_intact: bool
    granted: tuple[str, ...]
    is_published: bool
    is_ours: bool


def plan_parts(connection: Connection, address: Address, plan: InstallPlan) -> None:
    """Adds what gives exactly the roles of the project file the right to announce parts."""
    if not address.coordinators:
        # A schema of somebody else that has our name harms nobody then: what it says does not count.
        plan_removal(connection, address, plan)
        return
    found = _installed(connection, address)
    if found is not None and not found.is_trusted:
        schema = quote(address.global_schema)
        raise CaptureRefused(
            f"source {address.source}: schema {address.global_schema}, by which global transactions are"
            " announced, belongs to another role",
            subject=address.global_schema,
            hint=f"if nobody needs it, its owner can remove it: `DROP SCHEMA {schema} CASCADE`",
        )
    _expect_roles(connection, address)
    roles = ", ".join(address.coordinators)
    if found is None or not found.is_intact or found.granted != address.coordinators:
        is_ours = found.is_ours if found is not None else may(connection, MAY_CREATE)
        statements = _statements(connection, address, found.granted if found is not None else ())
        sentence = f"{roles} may announce parts of global transactions: {call_of(address)}"
        for place, statement in enumerate(statements):
            plan.add(statement, sentence if not place else "", is_ours)
    if found is None or not found.is_published:
        publication = read_publication(connection, address)
        is_ours = not address.owners_publication and (publication is None or publication.is_ours)
        name = f"{quote(address.global_schema)}.{TABLE}"
        plan.add(f"ALTER PUBLICATION {quote(address.publication)} ADD TABLE {name}", "", is_ours)


def plan_removal(connection: Connection, address: Address, plan: InstallPlan) -> None:
    """Adds what takes all of it away again."""
    found = _installed(connection, address)
    if found is not None and found.is_trusted:
        sentence = "nobody may announce parts of global transactions any more"
        plan.add(f"DROP SCHEMA {quote(address.global_schema)} CASCADE", sentence, found.is_ours)


def _installed(connection: Connection, address: Address) -> _Installed | None:
    sought = {"schema": address.global_schema, "publication": address.publication}
    rows = connection.execute(_LOOK, sought).fetchall()
    if not rows:
        return None
    is_trusted, logs_in_full, body, is_definer, callers, users, is_published, is_ours = rows[0]
    is_intact = len(rows) == 1 and bool(logs_in_full) and bool(is_definer) and body == _body(address)
    return _Installed(
        bool(is_trusted),
        is_intact and callers == users,
        tuple(sorted({*callers, *users})),
        bool(is_published),
        bool(is_ours),
    )


def _expect_roles(connection: Connection, address: Address) -> None:
    rows = connection.execute(
        "SELECT rolname::text FROM pg_roles WHERE rolname = ANY(%s)", (list(address.coordinators),)
    )
    known = {name for (name,) in rows}
    for role in address.coordinators:
        if role not in known:
            raise CaptureRefused(
                f"source {address.source}: there is no role {role} at the server, to announce parts of global"
                " transactions",
                subject=role,
                hint="check the option `coordinators`, or create the role",
            )


def _statements(connection: Connection, address: Address, granted: tuple[str, ...]) -> list[str]:
    """The statements that grant the function to exactly the roles of the project file."""
    schema, owner = quote(address.global_schema), quote(role_of(connection))
    table, function = f"{schema}.{TABLE}", f"{schema}.{FUNCTION}(text, text)"
    roles = ", ".join(map(quote, address.coordinators))
    gone = [quote(role) if role != "public" else "PUBLIC" for role in granted]
    others = ", ".join(dict.fromkeys(("PUBLIC", *gone)))
    return [
        f"CREATE SCHEMA IF NOT EXISTS {schema} AUTHORIZATION {owner}",
        f"CREATE TABLE IF NOT EXISTS {table} (global_id text NOT NULL, sources text NOT NULL)",
        f"ALTER TABLE {table} OWNER TO {owner}",
        f"ALTER TABLE {table} REPLICA IDENTITY FULL",
        f"REVOKE ALL ON {table} FROM PUBLIC",
        f"CREATE OR REPLACE FUNCTION {schema}.{FUNCTION}(global_id text, sources text) RETURNS void"
        f" LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp"
        f" AS {text_literal(_body(address))}",
        f"ALTER FUNCTION {function} OWNER TO {owner}",
        f"REVOKE ALL ON SCHEMA {schema} FROM {others}",
        f"REVOKE ALL ON FUNCTION {function} FROM {others}",
        f"GRANT USAGE ON SCHEMA {schema} TO {roles}",
        f"GRANT EXECUTE ON FUNCTION {function} TO {roles}",
    ]


def _body(address: Address) -> str:
    table = f"{quote(address.global_schema)}.{TABLE}"
    return f"""
DECLARE
    place tid;
BEGIN
    IF length(coalesce(global_id, '')) NOT BETWEEN 1 AND {_LONGEST_ID}
        OR length(coalesce(sources, '')) NOT BETWEEN 1 AND {_LONGEST_SOURCES} THEN
        RAISE EXCEPTION 'take_part needs an id of 1 to {_LONGEST_ID} characters and the names of the sources'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    INSERT INTO {table} VALUES (global_id, sources) RETURNING ctid INTO place;
    DELETE FROM {table} WHERE ctid = place;
END
"""
