"""Delta tables and their triggers, installed and removed: all in a schema that is named like the slot."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import psycopg

from rollview.errors import CaptureRefused
from rollview.sources.deltas import DeltaDefinition, Marked, columns_of
from rollview.sources.postgres.address import Address
from rollview.sources.postgres.connections import (
    MAY_CREATE,
    Connection,
    Connections,
    may,
    quote,
    text_literal,
)
from rollview.sources.postgres.deltas.apply_triggers import ApplyPlan
from rollview.sources.postgres.deltas.key_locks import TRACES, purge_traces
from rollview.sources.postgres.deltas.shown_view import attached
from rollview.sources.postgres.deltas.triggers import DeltaPlan, JoinedRows, delta_name, written
from rollview.sources.postgres.publication import read_publication
from rollview.sources.postgres.read.read_point import snapshot_of
from rollview.sources.postgres.setup.plan import run_all
from rollview.sources.postgres.structure import Structure, structures, table_name
from rollview.sources.source import SetupResult, Table

_INSTALLED = """
    SELECT c.relname::text, coalesce(obj_description(c.oid, 'pg_class'), '')
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %s AND c.relkind = 'r' AND c.relname !~ '_(state|open|trace)$'
"""
_TRACED = """
    SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %s AND c.relkind = 'r' AND c.relname LIKE %s
"""
_COMMENT = "rollview lets writers append here what their changes do to a view"


@dataclass(frozen=True)
class Planned:
    """The objects for a definition: a delta, and the triggers that apply it, if it is to be applied."""

    delta: DeltaPlan
    applied: ApplyPlan | None

    @property
    def obstacle(self) -> str:
        """Why not; empty if there is no obstacle."""
        return self.delta.rows.obstacle or (self.applied.obstacle if self.applied is not None else "")

    @property
    def triggers(self) -> set[str]:
        return self.delta.triggers | (self.applied.triggers if self.applied is not None else set())

    @property
    def tables(self) -> tuple[Structure, ...]:
        """The tables that have triggers."""
        return self.delta.rows.structures

    @property
    def written(self) -> dict[int, str]:
        """What statements name to change them, by id: the tables and their partitions."""
        found: dict[int, str] = {}
        for table in self.tables:
            ids = [table.id, *(each.id for each in table.partitions)]
            found.update(zip(ids, written(table), strict=True))
        return found

    @property
    def comment(self) -> str:
        """What the delta table says when all is installed; a view that is kept depends on the partitions."""
        parts = dict.fromkeys(each for table in self.tables for each in attached(table))
        return (
            f"{_COMMENT}; partitions {', '.join(parts)}" if self.applied is not None and parts else _COMMENT
        )

    @property
    def before(self) -> set[str]:
        """The deltas of the inputs of a UNION ALL that this one shows as well."""
        return {delta_name(each) for each in self.applied.view.before} if self.applied is not None else set()

    def statements(self) -> list[str]:
        """The statements that install all but the delta table."""
        applied = self.applied.statements() if self.applied is not None else ()
        return [*self.delta.trigger_statements(), *applied]


def plans_of(
    connection: Connection, address: Address, definitions: Sequence[DeltaDefinition]
) -> list[Planned]:
    """The objects to install for each definition."""
    known = structures(connection, address)
    found = []
    for each in definitions:
        rows, applied = _rows(address, each, known), None
        if each.applied is not None:
            before = tuple(_rows(address, one, known) for one in each.applied.before)
            applied = ApplyPlan(address, rows, each.applied, before)
        found.append(Planned(DeltaPlan(address, rows), applied))
    return found


def _rows(address: Address, definition: DeltaDefinition, known: dict[str, Structure]) -> JoinedRows:
    tables = tuple(_table(address, relation.table.name, known) for relation in definition.relations)
    return JoinedRows(definition, tables)


def _table(address: Address, name: str, known: dict[str, Structure]) -> Structure:
    if name not in known:
        message = f"source {address.source} has no table {name}"
        raise CaptureRefused(message, subject=name, hint="check the views' FROM, and the option `schemas`")
    return known[name]


def installed(connection: Connection, address: Address) -> dict[str, str]:
    """The delta tables that there are, and what each says; nothing if not all that belongs to it is there."""
    return dict(connection.execute(_INSTALLED, (address.delta_schema,)).fetchall())


def check_deltas(
    connection: Connection, address: Address, definitions: Sequence[DeltaDefinition]
) -> SetupResult:
    """The plan of `add_deltas`, or the statements that an administrator must run before."""
    plans = _missing(connection, address, definitions)
    if not plans:
        return SetupResult()
    row = connection.execute("SELECT current_user::text, current_database()::text").fetchone()
    assert row is not None
    role, database = map(quote, row)
    needed = []
    tables = {each.id: each for plan in plans for each in plan.tables}
    for number, name in {number: name for plan in plans for number, name in plan.written.items()}.items():
        if not may(connection, f"has_table_privilege({number}::oid, 'TRIGGER')"):
            needed.append(f"GRANT TRIGGER ON {name} TO {role};")
    if not _has_own_publication(connection, address, tables.values()):
        needed += _by_administrator(connection, address, plans, role)
    elif not _has_schema(connection, address) and not may(connection, MAY_CREATE):
        needed.append(f"GRANT CREATE ON DATABASE {database} TO {role};")
    if needed:
        return SetupResult(needed=tuple(needed))
    return SetupResult(done=tuple(_sentence(plan) for plan in plans))


def _has_own_publication(connection: Connection, address: Address, tables: Iterable[Structure]) -> bool:
    """Whether we may add tables to the publication, also to one that setup is going to create."""
    publication = read_publication(connection, address)
    if publication is not None:
        return publication.is_ours
    return may(connection, MAY_CREATE) and all(each.is_ours for each in tables)


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
        statements.append(f"COMMENT ON TABLE {plan.delta.name} IS {text_literal(plan.comment)}")
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
        for table in (name, f"{name}_state", f"{name}_open", f"{name}_{TRACES}"):
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
    for (name,) in connection.execute(_TRACED, (address.delta_schema, f"%\\_{TRACES}")).fetchall():
        with suppress(psycopg.errors.LockNotAvailable):
            # Somebody relies on them; next time, then.
            purge_traces(connection, f"{quote(address.delta_schema)}.{quote(name)}")


def _missing(
    connection: Connection, address: Address, definitions: Sequence[DeltaDefinition]
) -> list[Planned]:
    """The deltas that are not there as a whole: each is to have all its triggers, on each of its tables."""
    if not definitions:
        return []
    there = installed(connection, address)
    rows = connection.execute(
        "SELECT g.tgname::text, g.tgrelid::int8 FROM pg_trigger g JOIN pg_proc p ON p.oid = g.tgfoid"
        " JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = %s AND g.tgenabled IN ('O', 'A')",
        (address.delta_schema,),
    ).fetchall()
    triggers = {(name, table) for name, table in rows}
    missing: dict[str, Planned] = {}
    for plan in plans_of(connection, address, definitions):
        name = delta_name(plan.delta.definition)
        needed = {(each, table) for each in plan.triggers for table in plan.written}
        # Whoever installs an input of a UNION ALL again takes what shows it away.
        if there.get(name) != plan.comment or not triggers >= needed or plan.before & missing.keys():
            missing[name] = plan
    return list(missing.values())


def _sentence(plan: Planned) -> str:
    tables = ", ".join(dict.fromkeys(each.name for each in plan.tables))
    if plan.applied is not None:
        part = "" if plan.applied.shown_name else " an input of"
        name = plan.applied.shown_name or quote(plan.delta.definition.name)
        return f"writers of {tables} keep{part} {name}"
    return f"writers of {tables} make the delta of {plan.delta.definition.name}"


def _has_schema(connection: Connection, address: Address) -> bool:
    found = "SELECT FROM pg_namespace WHERE nspname = %s"
    return connection.execute(found, (address.delta_schema,)).fetchone() is not None


# The delta tables of a source: their names, their obstacles, and that they stay small.

_PURGE_SECONDS = 60.0


def delta_table(address: Address, definition: DeltaDefinition) -> Table:
    """A delta table, as the service knows it."""
    columns = columns_of(definition, ("smallint", "smallint", "string"))
    name = table_name(address, address.delta_schema, delta_name(definition))
    return Table(
        address.source,
        name,
        tuple(column for column, _ in columns),
        types=tuple(kind for _, kind in columns),
    )


class DeltaTables:
    """The objects that are at the server."""

    def __init__(self, address: Address, connections: Connections) -> None:
        self._address = address
        self._connections = connections
        self._purged_at = 0.0

    def obstacle(self, definition: DeltaDefinition) -> str:
        """Why a delta cannot be made; empty if it can."""
        with self._connections.connection() as connection:
            (plan,) = plans_of(connection, self._address, [definition])
        return plan.obstacle

    def known(self) -> frozenset[str]:
        """The delta tables, as `source.table`."""
        with self._connections.connection() as connection:
            names = installed(connection, self._address)
        return frozenset(
            f"{self._address.source}.{table_name(self._address, self._address.delta_schema, name)}"
            for name in names
        )

    def purge(self) -> None:
        """Deletes, now and then, what writers have appended: it is in the log."""
        if time.monotonic() - self._purged_at < _PURGE_SECONDS:
            return
        self._purged_at = time.monotonic()
        with self._connections.connection() as connection:
            purge_deltas(connection, self._address)


# Reads the marks in a delta table: the statement's snapshot, compared with what was committed before.


_MICROSECONDS = 1_000_000


def first_unseen(marks: Sequence[str]) -> int:
    """The least transaction id that was in progress, or had not begun, for any of these statements."""
    return min(snapshot_of(mark.rpartition(" ")[2]).xmin for mark in marks)


def read_marks(marks: Sequence[tuple[str, int]], before: Sequence[int]) -> list[Marked]:
    """Each mark comes with how many of the transactions in `before` are before its own."""
    xids = np.asarray(before, dtype=np.int64)
    # A snapshot that sees the greatest of them sees all up to a place.
    greatest = np.maximum.accumulate(xids) if len(xids) else xids
    return [_read(mark, xids[:place], greatest[:place]) for mark, place in marks]


def _read(mark: str, xids: np.ndarray, greatest: np.ndarray) -> Marked:
    _, _, relation, began, snapshot = mark.split(" ")
    saw = snapshot_of(snapshot)
    recent = xids[int(np.searchsorted(greatest, saw.xmin)) :]
    running = np.isin(recent, list(saw.in_progress)) if saw.in_progress else False
    unseen = recent[(recent >= saw.xmax) | running]
    return Marked(int(relation), frozenset(unseen.tolist()), began, int(began) / _MICROSECONDS)
