"""setup and remove: replica identity, publication, what is registered, replication slot.

Everything is checked first. Statements that we may not run, and settings that need a restart, are listed as
statements for an administrator, and then nothing is done at all.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Sequence
from dataclasses import replace

from rollview.errors import CaptureRefused, SourceFailed
from rollview.sources.postgres.address import Address
from rollview.sources.postgres.connections import Connection, quote, role_of
from rollview.sources.postgres.log.slot import create_slot, drop_slot, slot_changes, slot_obstacles, slot_of
from rollview.sources.postgres.publication import (
    identities_elsewhere,
    identities_to_give_back,
    identity_statement,
    logs_as_before,
    read_publication,
)
from rollview.sources.postgres.read.read_point import present
from rollview.sources.postgres.registration import (
    Beginning,
    Registration,
    read_registration,
    registration_id,
    registration_statement,
)
from rollview.sources.postgres.setup.global_parts import plan_parts, plan_removal
from rollview.sources.postgres.setup.plan import InstallPlan, plan_publication, run_all
from rollview.sources.postgres.setup.schema_function import drop_statement, schema_functions
from rollview.sources.postgres.structure import Structure, structures
from rollview.sources.source import SetupResult, Table

# Transactions that are writing tables, waited for without holding anybody up.
#
# A transaction that has written a table before it was published would be captured by half. A lock on the
# table would prove that there is none, but others would have to wait behind it, and only an owner may take
# it. So those that hold a lock of theirs are waited for. Later transactions find the table published.


_STEP_SECONDS = 0.05
# A writer of rows of a table may have locked only the part of it, or the child, that has them. A
# transaction without an id has not written anything yet.
_WRITERS = """
    WITH RECURSIVE family(id) AS (
        SELECT unnest(%s::oid[])
        UNION SELECT h.inhrelid FROM pg_inherits h JOIN family f ON h.inhparent = f.id)
    SELECT DISTINCT w.virtualtransaction, x.transactionid::text::int8
    FROM pg_locks w LEFT JOIN pg_locks x
      ON x.virtualtransaction = w.virtualtransaction AND x.locktype = 'transactionid' AND x.granted
    WHERE w.locktype = 'relation' AND w.granted AND w.relation IN (SELECT id FROM family)
      AND w.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
      AND w.mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
      AND w.pid IS DISTINCT FROM pg_backend_pid()
"""


def await_writers(connection: Connection, address: Address, tables: Collection[int]) -> tuple[int, ...]:
    """Waits until all that are writing these tables now have ended; their transaction ids, 32 bits each."""
    if not tables:
        return ()
    found = _writers(connection, tables)
    waiting = {transaction for transaction, _ in found}
    deadline = time.monotonic() + address.timeout
    while waiting:
        if time.monotonic() > deadline:
            raise SourceFailed(
                f"source {address.source}: a transaction that has written to one of its tables was still open"
                f" after {address.timeout:g} s",
                subject=address.source,
                hint="end that transaction (see pg_stat_activity and pg_prepared_xacts), or wait longer:"
                " option `timeout`; then try again",
            )
        time.sleep(_STEP_SECONDS)
        waiting &= {transaction for transaction, _ in _writers(connection, tables)}
    return tuple(sorted({xid for _, xid in found if xid is not None}))


def _writers(connection: Connection, tables: Collection[int]) -> list[tuple[str, int | None]]:
    return [(each, xid) for each, xid in connection.execute(_WRITERS, (list(tables),))]


OLDEST_VERSION = 130000


def check(connection: Connection, address: Address, tables: Sequence[Table]) -> SetupResult:
    """The plan of `install`."""
    return _plan_install(connection, address, tables).result


def install(connection: Connection, address: Address, tables: Sequence[Table]) -> SetupResult:
    """Makes exactly these tables captured."""
    plan = _plan_install(connection, address, tables)
    if not plan.needed:
        if plan.statements:
            run_all(connection, address, plan.statements)
        if plan.registration is not None:
            since = present(connection).position
            beginning = Beginning(since, await_writers(connection, address, plan.fresh), None)
            registration = _begun(plan.registration, plan.begun, beginning)
            statement = registration_statement(address, registration, connection.info.server_version)
            run_all(connection, address, [statement])
        create_slot(connection, address, _readable_since(connection, address))
    return plan.result


def _begun(registration: Registration, names: Collection[str], beginning: Beginning) -> Registration:
    """The same with tables whose capture begins here."""
    tables = {
        name: replace(table, beginning=beginning) if name in names else table
        for name, table in registration.tables.items()
    }
    return replace(registration, tables=tables)


def _plan_install(connection: Connection, address: Address, tables: Sequence[Table]) -> InstallPlan:
    """Everything that can be known before; nothing is changed."""
    _check_server(connection, address)
    known = structures(connection, address)
    wanted = {
        table: _capturable(address, table.name, known)
        for table in sorted(tables, key=lambda table: table.name)
    }
    plan = InstallPlan()
    for table in wanted.values():
        plan.warnings += [
            f"column {address.source}.{table.name}.{name} cannot be used in views: its type is {kind}"
            for name, kind in table.unmapped
        ]
    plan_publication(connection, address, plan, wanted, known.values())
    plan_parts(connection, address, plan)
    plan.needed += slot_obstacles(connection, address)
    plan.needed += _reading_grants(connection, [t for t in wanted.values() if t.id not in plan.granted])
    if not plan.ours:
        plan.needed += ["BEGIN;", *(f"{statement};" for statement in plan.statements), "COMMIT;"]
    slot = slot_of(connection, address)
    plan.is_first = slot is None and read_registration(connection, address) is None
    since = sys.maxsize if plan.has_new_publication else _readable_since(connection, address)
    plan.done += slot_changes(address, slot, since)
    if slot is not None and not slot.is_lost and slot.warning:
        plan.warnings.append(slot.warning)
    return plan


def _readable_since(connection: Connection, address: Address) -> int:
    registration = read_registration(connection, address)
    return registration.readable_since if registration is not None else 0


def uninstall(connection: Connection, address: Address) -> SetupResult:
    """Takes back all of it: first the slot, because of which the server keeps its log."""
    done = drop_slot(connection, address)
    publication = read_publication(connection, address)
    registration = read_registration(connection, address) or Registration()
    plan = InstallPlan()
    elsewhere = identities_elsewhere(connection, address)
    known = {each.id: each for each in structures(connection, address).values() if each.id not in elsewhere}
    for table in known.values():
        for each, identity in identities_to_give_back(table, registration.identities):
            plan.add(identity_statement(each, identity), logs_as_before(each), each.is_ours)
    if publication is not None and not address.owners_publication:
        sentence = f"dropped publication {address.publication}"
        plan.add(f"DROP PUBLICATION {quote(address.publication)}", sentence, publication.is_ours)
    plan_removal(connection, address, plan)
    for function in schema_functions(connection, address).values():
        plan.add(drop_statement(function), f"dropped the function of {function.schema}", function.is_ours)
    row = connection.execute(
        "SELECT FROM pg_largeobject_metadata WHERE oid = %s::oid", (registration_id(address),)
    ).fetchone()
    if row is not None:
        plan.add(f"SELECT lo_unlink({registration_id(address)}::oid)", "", True)
    if not plan.ours:
        return SetupResult(done=tuple(done), needed=tuple(f"{statement};" for statement in plan.statements))
    run_all(connection, address, plan.statements)
    return SetupResult(done=(*done, *plan.done))


def _check_server(connection: Connection, address: Address) -> None:
    row = connection.execute(
        "SELECT current_setting('server_version_num')::int, pg_is_in_recovery(),"
        " current_setting('server_encoding')"
    ).fetchone()
    assert row is not None
    version, standby, encoding = row
    reason, hint = "", "choose another server or database"
    if version < OLDEST_VERSION:
        reason, hint = f"the server is version {version // 10000}; 13 or newer is needed", "upgrade it"
    elif standby:
        reason, hint = "the server is a standby, which cannot report what a query saw", "name the primary"
    elif encoding != "UTF8":
        reason = f"the database's encoding is {encoding}; only UTF8 has all texts that Spark has"
    if reason:
        raise CaptureRefused(
            f"source {address.source} cannot be captured: {reason}", subject=address.source, hint=hint
        )


def _capturable(address: Address, name: str, known: dict[str, Structure]) -> Structure:
    place = f"{address.source}.{name}"
    if name not in known:
        raise CaptureRefused(
            f"source {address.source} has no table {name}",
            subject=place,
            hint="check the views' FROM, and the option `schemas`",
        )
    if known[name].obstacles:
        raise CaptureRefused(
            f"table {place} cannot be captured: {'; '.join(known[name].obstacles)}",
            subject=place,
            hint="change the table at the source, or leave it out of the views",
        )
    return known[name]


def _reading_grants(connection: Connection, tables: Sequence[Structure]) -> list[str]:
    """The grants that let us read these tables."""
    rows = connection.execute(
        "SELECT n.nspname::text FROM pg_namespace n WHERE n.nspname = ANY(%s)"
        " AND NOT has_schema_privilege(n.oid, 'USAGE') ORDER BY 1",
        (sorted({table.schema for table in tables}),),
    ).fetchall()
    role = quote(role_of(connection))
    needed = [f"GRANT USAGE ON SCHEMA {quote(schema)} TO {role};" for (schema,) in rows]
    return needed + [
        f"GRANT SELECT ON {table.qualified} TO {role};" for table in tables if not table.readable
    ]
