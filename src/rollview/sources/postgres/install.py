"""setup and remove: replica identity, publication, replication slot.

Everything is checked first. What we may not do ourselves, or what needs a restart, is told as statements for
an administrator, and then nothing is done at all.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

import psycopg

from rollview.errors import CaptureRefused, SourceFailed
from rollview.sources.postgres.address import Address
from rollview.sources.postgres.connections import Connection, quote, transaction
from rollview.sources.postgres.install_plan import InstallPlan
from rollview.sources.postgres.plan_publication import (
    plan_identity_back,
    plan_publication,
    read_publication,
)
from rollview.sources.postgres.slot import create_slot, drop_slot, slot_changes, slot_obstacles, slot_of
from rollview.sources.postgres.structure import Structure, structures
from rollview.sources.source import SetupResult, Table

OLDEST_VERSION = 130000
_LOCK_SECONDS = 3
_ATTEMPTS = 10


def check(connection: Connection, address: Address, tables: Sequence[Table]) -> SetupResult:
    """What `install` would do."""
    return _plan_install(connection, address, tables).result


def install(connection: Connection, address: Address, tables: Sequence[Table]) -> SetupResult:
    """Makes exactly these tables captured."""
    plan = _plan_install(connection, address, tables)
    if not plan.needed:
        if plan.statements:
            _run(connection, address, plan.statements)
        create_slot(connection, address, _readable_since(connection, address))
    return plan.result


def _plan_install(connection: Connection, address: Address, tables: Sequence[Table]) -> InstallPlan:
    """Everything that can be known before; nothing is changed."""
    _check_server(connection, address)
    known = structures(connection, address.schema)
    wanted = {
        table: _capturable(address, table.name, known)
        for table in sorted(tables, key=lambda table: table.name)
    }
    plan = InstallPlan()
    plan.needed += slot_obstacles(connection, address)
    plan.needed += _reading_grants(connection, address, wanted.values())
    for table in wanted.values():
        plan.warnings += [
            f"column {address.source}.{table.name}.{name} cannot be used in views: its type is {kind}"
            for name, kind in table.unmapped
        ]
    plan_publication(connection, address, plan, wanted, known.values())
    if not plan.ours:
        plan.needed += ["BEGIN;", *(f"{statement};" for statement in plan.statements), "COMMIT;"]
    slot = slot_of(connection, address)
    since = sys.maxsize if plan.has_new_publication else _readable_since(connection, address)
    plan.done += slot_changes(address, slot, since)
    if slot is not None and not slot.is_lost and slot.warning:
        plan.warnings.append(slot.warning)
    return plan


def _readable_since(connection: Connection, address: Address) -> int:
    publication = read_publication(connection, address)
    registration = publication.registration if publication is not None else None
    return registration.readable_since if registration is not None else 0


def uninstall(connection: Connection, address: Address) -> SetupResult:
    """Takes back all of it: first the slot, because of which the server keeps its log."""
    done = drop_slot(connection, address)
    publication = read_publication(connection, address)
    if publication is None:
        return SetupResult(done=tuple(done))
    plan = InstallPlan()
    known = {each.id: each for each in structures(connection, address.schema).values()}
    for table in publication.tables.values():
        plan_identity_back(plan, table, known.get(table.id))
    plan.add(
        f"DROP PUBLICATION {quote(address.slot)}", f"dropped publication {address.slot}", publication.is_ours
    )
    if not plan.ours:
        return SetupResult(done=tuple(done), needed=tuple(f"{statement};" for statement in plan.statements))
    _run(connection, address, plan.statements)
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
            f"source {address.source} has no table {name} in schema {address.schema}",
            subject=place,
            hint="check the views' FROM; another schema is chosen by the option `schema`",
        )
    if known[name].obstacles:
        raise CaptureRefused(
            f"table {place} cannot be captured: {'; '.join(known[name].obstacles)}",
            subject=place,
            hint="change the table at the source, or leave it out of the views",
        )
    return known[name]


def _reading_grants(connection: Connection, address: Address, tables: Iterable[Structure]) -> list[str]:
    row = connection.execute(
        "SELECT current_user, has_schema_privilege(%s, 'USAGE')", (address.schema,)
    ).fetchone()
    assert row is not None
    role, usable = quote(row[0]), row[1]
    needed = [] if usable else [f"GRANT USAGE ON SCHEMA {quote(address.schema)} TO {role};"]
    return needed + [f"GRANT SELECT ON {t.qualified} TO {role};" for t in tables if not t.readable]


def _run(connection: Connection, address: Address, statements: Iterable[str]) -> None:
    """All in one transaction. Others must not wait behind a lock that we cannot get: it is tried again."""
    for attempt in range(_ATTEMPTS):
        try:
            with transaction(connection):
                connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_SECONDS}s'".encode())
                for statement in statements:
                    connection.execute(statement.encode())
            return
        except psycopg.errors.LockNotAvailable:
            if attempt == _ATTEMPTS - 1:
                raise SourceFailed(
                    f"source {address.source}: a table stayed locked for {_ATTEMPTS * _LOCK_SECONDS} s by a"
                    " transaction that has written to it and is still open",
                    subject=address.source,
                    hint="end that transaction (see pg_stat_activity and pg_prepared_xacts), then try again",
                ) from None
