"""Delta tables and their triggers, installed and removed: all in a schema that is named like the slot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rollview.errors import CaptureRefused
from rollview.sources.deltas import DeltaDefinition
from rollview.sources.postgres.address import Address
from rollview.sources.postgres.apply_triggers import ApplyPlan
from rollview.sources.postgres.connections import Connection, quote, text_literal
from rollview.sources.postgres.delta_triggers import DeltaPlan, delta_name
from rollview.sources.postgres.joined_rows import JoinedRows
from rollview.sources.postgres.publication import read_publication
from rollview.sources.postgres.statements_run import run_all
from rollview.sources.postgres.structure import Structure, structures
from rollview.sources.source import SetupResult

_INSTALLED = """
    SELECT c.relname::text, coalesce(obj_description(c.oid, 'pg_class'), '')
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %s AND c.relkind = 'r' AND c.relname !~ '_(state|open)$'
"""
_MAY_CREATE = "has_database_privilege(current_database(), 'CREATE')"
_COMMENT = "rollview lets writers append here what their changes do to a view"


@dataclass(frozen=True)
class Planned:
    """What is installed for a definition: a delta, and what applies it, if it is to be applied."""

    delta: DeltaPlan
    applied: ApplyPlan | None

    @property
    def obstacle(self) -> str:
        """Why not; empty if nothing stands in the way."""
        return self.delta.rows.obstacle or (self.applied.obstacle if self.applied is not None else "")

    @property
    def triggers(self) -> set[str]:
        """The names of all triggers."""
        return self.delta.triggers | (self.applied.triggers if self.applied is not None else set())

    @property
    def tables(self) -> tuple[Structure, ...]:
        """The tables that have triggers."""
        return self.delta.rows.structures

    def statements(self) -> list[str]:
        """What installs all but the delta table."""
        applied = self.applied.statements() if self.applied is not None else ()
        return [*self.delta.trigger_statements(), *applied]


def plans_of(
    connection: Connection, address: Address, definitions: Sequence[DeltaDefinition]
) -> list[Planned]:
    """What is to be installed for each definition."""
    known = structures(connection, address)
    found = []
    for each in definitions:
        tables = tuple(_table(address, relation.table.name, known) for relation in each.relations)
        rows = JoinedRows(each, tables)
        applied = ApplyPlan(address, rows, each.applied) if each.applied is not None else None
        found.append(Planned(DeltaPlan(address, rows), applied))
    return found


def _table(address: Address, name: str, known: dict[str, Structure]) -> Structure:
    if name not in known:
        message = f"source {address.source} has no table {name}"
        raise CaptureRefused(message, subject=name, hint="check the views' FROM, and the option `schemas`")
    return known[name]


def installed(connection: Connection, address: Address) -> dict[str, bool]:
    """The delta tables that there are, and whether all that belongs to each was installed."""
    rows = connection.execute(_INSTALLED, (address.delta_schema,)).fetchall()
    return {name: comment == _COMMENT for name, comment in rows}


def check_deltas(
    connection: Connection, address: Address, definitions: Sequence[DeltaDefinition]
) -> SetupResult:
    """What `add_deltas` would do, or what an administrator must do before."""
    plans = _missing(connection, address, definitions)
    if not plans:
        return SetupResult()
    row = connection.execute("SELECT current_user::text, current_database()::text").fetchone()
    assert row is not None
    role, database = map(quote, row)
    needed = []
    tables = {each.id: each for plan in plans for each in plan.tables}
    for table in tables.values():
        if not table.is_ours and not _may(connection, f"has_table_privilege({table.id}::oid, 'TRIGGER')"):
            needed.append(f"GRANT TRIGGER ON {table.qualified} TO {role};")
    if not _has_own_publication(connection, address, tables.values()):
        needed += _by_administrator(connection, address, plans, role)
    elif not _has_schema(connection, address) and not _may(connection, _MAY_CREATE):
        needed.append(f"GRANT CREATE ON DATABASE {database} TO {role};")
    if needed:
        return SetupResult(needed=tuple(needed))
    return SetupResult(done=tuple(_sentence(plan) for plan in plans))


def _has_own_publication(connection: Connection, address: Address, tables: Iterable[Structure]) -> bool:
    """Whether we may add tables to the publication, also to one that setup is going to create."""
    publication = read_publication(connection, address)
    if publication is not None:
        return publication.is_ours
    return _may(connection, _MAY_CREATE) and all(each.is_ours for each in tables)


def _by_administrator(
    connection: Connection, address: Address, plans: Sequence[Planned], role: str
) -> Iterator[str]:
    """The delta tables that are not there, ours from the beginning, in a publication that is not."""
    if not _has_schema(connection, address):
        yield f"CREATE SCHEMA {quote(address.delta_schema)} AUTHORIZATION {role};"
    there = installed(connection, address)
    for plan in plans:
        delta = plan.delta
        if delta_name(delta.definition) not in there:
            yield from (f"{statement};" for statement in delta.table_statements())
            if delta.is_captured:
                yield f"ALTER PUBLICATION {quote(address.publication)} ADD TABLE {delta.name};"
            yield f"ALTER TABLE {delta.name} OWNER TO {role};"


def add_deltas(
    connection: Connection, address: Address, definitions: Sequence[DeltaDefinition]
) -> SetupResult:
    """Installs what is not there yet, each delta in one transaction."""
    checked = check_deltas(connection, address, definitions)
    if checked.needed:
        return checked
    there = installed(connection, address)
    for plan in _missing(connection, address, definitions):
        statements = plan.statements()
        if delta_name(plan.delta.definition) not in there:
            statements = [*plan.delta.table_statements(), *statements]
        if not _has_schema(connection, address):
            statements.insert(0, f"CREATE SCHEMA {quote(address.delta_schema)}")
        statements.append(f"COMMENT ON TABLE {plan.delta.name} IS {text_literal(_COMMENT)}")
        run_all(connection, address, statements)
    return checked


def keep_deltas(
    connection: Connection, address: Address, definitions: Sequence[DeltaDefinition]
) -> SetupResult:
    """Removes all others, and the schema with the last one."""
    kept = {delta_name(each) for each in definitions}
    gone = [name for name in installed(connection, address) if name not in kept]
    if not kept:
        return remove_deltas(connection, address)
    for name in gone:
        functions = connection.execute(
            "SELECT p.oid::regprocedure::text FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace"
            " WHERE n.nspname = %s AND starts_with(p.proname, %s || '_')",
            (address.delta_schema, name),
        ).fetchall()
        statements = [f"DROP FUNCTION {function} CASCADE" for (function,) in functions]
        for table in (name, f"{name}_state", f"{name}_open"):
            statements.append(f"DROP TABLE IF EXISTS {quote(address.delta_schema)}.{quote(table)} CASCADE")
        run_all(connection, address, statements)
    return SetupResult(done=tuple(f"writers no longer make the delta {name}" for name in gone))


def remove_deltas(connection: Connection, address: Address) -> SetupResult:
    """Takes all of it away."""
    if not _has_schema(connection, address):
        return SetupResult()
    gone = installed(connection, address)
    run_all(connection, address, [f"DROP SCHEMA {quote(address.delta_schema)} CASCADE"])
    return SetupResult(done=tuple(f"writers no longer make the delta {name}" for name in gone))


def purge_deltas(connection: Connection, address: Address) -> None:
    """Deletes what delta tables have: it is in the log, and nobody reads it here."""
    for name in installed(connection, address):
        connection.execute(f"DELETE FROM {quote(address.delta_schema)}.{quote(name)}".encode())


def _missing(
    connection: Connection, address: Address, definitions: Sequence[DeltaDefinition]
) -> list[Planned]:
    """The deltas that are not there as a whole: each is to have all its triggers, on each of its tables."""
    if not definitions:
        return []
    there = {name for name, is_whole in installed(connection, address).items() if is_whole}
    rows = connection.execute(
        "SELECT g.tgname::text, g.tgrelid::int8 FROM pg_trigger g JOIN pg_proc p ON p.oid = g.tgfoid"
        " JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = %s AND g.tgenabled IN ('O', 'A')",
        (address.delta_schema,),
    ).fetchall()
    triggers = {(name, table) for name, table in rows}
    return [
        plan
        for plan in plans_of(connection, address, definitions)
        if delta_name(plan.delta.definition) not in there
        or not triggers.issuperset((name, table.id) for name in plan.triggers for table in plan.tables)
    ]


def _sentence(plan: Planned) -> str:
    tables = ", ".join(dict.fromkeys(each.name for each in plan.tables))
    if plan.applied is not None:
        return f"writers of {tables} keep {plan.applied.shown_name}"
    return f"writers of {tables} make the delta of {plan.delta.definition.name}"


def _has_schema(connection: Connection, address: Address) -> bool:
    found = "SELECT FROM pg_namespace WHERE nspname = %s"
    return connection.execute(found, (address.delta_schema,)).fetchone() is not None


def _may(connection: Connection, privilege: str) -> bool:
    row = connection.execute(f"SELECT {privilege}".encode()).fetchone()
    assert row is not None
    return bool(row[0])
