"""setup and remove: replica identity, publication, replication slot.

Everything is checked first. What we may not do ourselves, or what needs a restart, is told as statements for
an administrator, and then nothing is done at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import psycopg

from rollview.errors import CaptureRefused, SourceFailed
from rollview.sources.postgres.address import Address
from rollview.sources.postgres.connections import Connection, quote, text_literal, transaction
from rollview.sources.postgres.registration import (
    Publication,
    Registered,
    encode,
    read_publication,
    register,
)
from rollview.sources.postgres.slot import create_slot, drop_slot, slot_changes, slot_obstacles, slot_of
from rollview.sources.postgres.structure import GENERATED_SINCE, Structure, structures
from rollview.sources.source import SetupResult

OLDEST_VERSION = 130000
_LOCK_SECONDS = 3
_ATTEMPTS = 10


@dataclass
class _Plan:
    """What is to be done. `needed` is for the administrator; `statements` make one transaction."""

    statements: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    needed: list[str] = field(default_factory=list)
    ours: bool = True

    def add(self, statement: str, sentence: str, ours: bool) -> None:
        """A statement, what it does, and whether we may run it."""
        self.statements.append(statement)
        if sentence:
            self.done.append(sentence)
        self.ours = self.ours and ours

    @property
    def result(self) -> SetupResult:
        """As the source tells it."""
        done = () if self.needed else tuple(self.done)
        return SetupResult(done, tuple(self.warnings), tuple(self.needed))


def check(connection: Connection, address: Address, names: Sequence[str]) -> SetupResult:
    """What `install` would do."""
    return _plan_install(connection, address, names).result


def install(connection: Connection, address: Address, names: Sequence[str]) -> SetupResult:
    """Makes exactly these tables captured."""
    plan = _plan_install(connection, address, names)
    if not plan.needed:
        if plan.statements:
            _run(connection, address, plan.statements)
        create_slot(connection, address)
    return plan.result


def _plan_install(connection: Connection, address: Address, names: Sequence[str]) -> _Plan:
    """Everything that can be known before; nothing is changed."""
    _check_server(connection, address)
    known = structures(connection, address.schema)
    wanted = [_capturable(address, name, known) for name in sorted(names)]
    plan = _Plan()
    plan.needed += slot_obstacles(connection, address)
    plan.needed += _reading_grants(connection, address, wanted)
    for table in wanted:
        plan.warnings += [
            f"column {address.source}.{table.name}.{name} cannot be used in views: its type is {kind}"
            for name, kind in table.unmapped
        ]
    publication = read_publication(connection, address)
    _plan_publication(connection, address, plan, publication, wanted, known)
    if not plan.ours:
        plan.needed += ["BEGIN;", *(f"{statement};" for statement in plan.statements), "COMMIT;"]
    slot = slot_of(connection, address)
    plan.done += slot_changes(address, slot)
    if slot is not None and not slot.is_lost and slot.warning:
        plan.warnings.append(slot.warning)
    return plan


def uninstall(connection: Connection, address: Address) -> SetupResult:
    """Takes back all of it: first the slot, because of which the server keeps its log."""
    done = drop_slot(connection, address)
    publication = read_publication(connection, address)
    if publication is None:
        return SetupResult(done=tuple(done))
    plan = _Plan()
    known = {each.id: each for each in structures(connection, address.schema).values()}
    for table in publication.tables.values():
        _plan_identity_back(plan, table, known.get(table.id))
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


def _plan_publication(
    connection: Connection,
    address: Address,
    plan: _Plan,
    publication: Publication | None,
    wanted: Sequence[Structure],
    known: dict[str, Structure],
) -> None:
    """The statements that lead from the publication as it is to the one that is wanted."""
    before = publication.tables if publication is not None else {}
    members = publication.members if publication is not None else frozenset()
    name = quote(address.slot)
    added = [table for table in wanted if table.id not in members]
    if added:
        # A transaction that has written the table and is still open would be captured by half: it is
        # waited for. New writers wait with us, so the lock is given up soon and tried again.
        tables = ", ".join(table.qualified for table in added)
        plan.add(f"LOCK TABLE {tables} IN SHARE ROW EXCLUSIVE MODE", "", True)
    for table in wanted:
        if table.identity != "FULL":
            statement = f"ALTER TABLE {table.qualified} REPLICA IDENTITY FULL"
            plan.add(statement, f"table {table.name} now logs old rows in full", table.is_ours)
    may_add = all(table.is_ours for table in added)
    if publication is None:
        row = connection.execute("SELECT has_database_privilege(current_database(), 'CREATE')").fetchone()
        assert row is not None
        tables = f" FOR TABLE {', '.join(table.qualified for table in wanted)}" if wanted else ""
        options = "publish = 'insert, update, delete, truncate'"
        if connection.info.server_version >= GENERATED_SINCE:
            # A table that logs old rows in full cannot be updated if not all of its columns are published.
            options += ", publish_generated_columns = stored"
        plan.add(
            f"CREATE PUBLICATION {name}{tables} WITH ({options})",
            f"created publication {address.slot} of {len(wanted)} tables",
            may_add and bool(row[0]),
        )
    else:
        gone = [each for each in known.values() if each.id in members and each not in wanted]
        for table in gone:
            statement = f"ALTER PUBLICATION {name} DROP TABLE {table.qualified}"
            plan.add(statement, f"table {table.name} is no longer captured", publication.is_ours)
            if table.name in before:
                _plan_identity_back(plan, before[table.name], table)
        for table in added:
            statement = f"ALTER PUBLICATION {name} ADD TABLE {table.qualified}"
            plan.add(statement, f"table {table.name} is now captured", publication.is_ours and may_add)
    registered = {table.name: register(table, before.get(table.name)) for table in wanted}
    if registered != before:
        comment = text_literal(encode(registered.values()))
        ours = publication is None or publication.is_ours
        plan.add(f"COMMENT ON PUBLICATION {name} IS {comment}", "", ours)


def _plan_identity_back(plan: _Plan, table: Registered, now: Structure | None) -> None:
    """Gives a table the replica identity that it had, if it is still the one that we gave it."""
    if now is None or now.id != table.id or now.identity != "FULL" or table.identity == "FULL":
        return
    statement = f"ALTER TABLE {now.qualified} REPLICA IDENTITY {table.identity}"
    plan.add(statement, f"table {table.name} logs old rows as before", now.is_ours)


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
