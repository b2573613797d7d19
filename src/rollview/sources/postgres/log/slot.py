"""The replication slot: it makes the server keep its log until we have read it."""

from __future__ import annotations

import time
from dataclasses import dataclass

import psycopg

from rollview.errors import CaptureRefused, LogLost, NotSetUp, SourceFailed
from rollview.sources.postgres.address import Address
from rollview.sources.postgres.connections import Connection, quote
from rollview.sources.postgres.position import position_of
from rollview.sources.source import reload_hint

GIDS_SINCE = 150000
"""From this version on the log has the names of prepared transactions."""

MUCH_LOG_BYTES = 1 << 30
_PATIENCE_SECONDS = 10.0


@dataclass(frozen=True)
class Slot:
    """The slot as it is now. `confirmed` is up to where the server may have dropped what we captured."""

    confirmed: int
    active_pid: int | None
    is_lost: bool
    kept_bytes: int
    is_bounded: bool

    def is_of_no_use(self, since: int) -> bool:
        """Whether the server has invalidated it, or has to begin with log that it cannot read."""
        return self.is_lost or self.confirmed < since

    @property
    def warning(self) -> str:
        """Warnings for the owner of the server about the log that is kept for us; mostly none."""
        if self.kept_bytes < MUCH_LOG_BYTES:
            return ""
        bound = "" if self.is_bounded else ", without a bound (max_slot_wal_keep_size)"
        return f"the server keeps {self.kept_bytes >> 20} MB of log until they are captured{bound}"


def slot_of(connection: Connection, address: Address) -> Slot | None:
    """The slot; None if there is none. One that somebody else made for another purpose is refused."""
    row = connection.execute(
        "SELECT plugin, database = current_database(), confirmed_flush_lsn::text, active_pid,"
        " coalesce(wal_status, '') = 'lost',"
        " coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0)::int8,"
        " current_setting('max_slot_wal_keep_size') <> '-1'"
        " FROM pg_replication_slots WHERE slot_name = %s",
        (address.slot,),
    ).fetchone()
    if row is None:
        return None
    plugin, here, confirmed, active_pid, is_lost, kept_bytes, is_bounded = row
    if plugin != "pgoutput" or not here:
        raise CaptureRefused(
            f"source {address.source}: replication slot {address.slot} is used for something else",
            subject=address.slot,
            hint="choose another name by the option `slot`",
        )
    return Slot(position_of(confirmed or "0/0"), active_pid, is_lost, kept_bytes, is_bounded)


def slot_obstacles(connection: Connection, address: Address) -> list[str]:
    """The statements that an administrator must run before a slot can be made and read."""
    row = connection.execute(
        "SELECT current_setting('wal_level'), current_setting('max_replication_slots')::int,"
        " (SELECT count(*) FROM pg_replication_slots), current_setting('max_wal_senders')::int,"
        " current_user, rolsuper OR rolreplication OR EXISTS (SELECT FROM pg_roles r"
        "   WHERE r.rolname = 'rds_replication' AND pg_has_role(r.oid, 'MEMBER'))"
        " FROM pg_roles WHERE rolname = current_user"
    ).fetchone()
    assert row is not None
    level, slots, used, senders, role, may_replicate = row
    restart = " -- then restart PostgreSQL"
    needed = []
    if level != "logical":
        needed.append(f"ALTER SYSTEM SET wal_level = 'logical';{restart}")
    if used >= slots and slot_of(connection, address) is None:
        needed.append(f"ALTER SYSTEM SET max_replication_slots = {used + 4};{restart}")
    if senders < 1:
        needed.append(f"ALTER SYSTEM SET max_wal_senders = 10;{restart}")
    if not may_replicate:
        needed.append(f"ALTER ROLE {quote(role)} REPLICATION;")
    return needed


def slot_changes(address: Address, slot: Slot | None, since: int) -> list[str]:
    """The effect of `create_slot` on this slot, as sentences."""
    created = f"created replication slot {address.slot}"
    if slot is None:
        return [created]
    return [_dropped(address), created] if slot.is_of_no_use(since) else []


def _dropped(address: Address) -> str:
    return f"dropped replication slot {address.slot}"


def create_slot(connection: Connection, address: Address, since: int) -> None:
    """Creates the slot, or recreates it where it is unusable: log can be read since a position."""
    slot = slot_of(connection, address)
    if slot is not None and slot.is_of_no_use(since):
        drop_slot(connection, address)
        slot = None
    if slot is not None:
        return
    version = connection.info.server_version
    two_phase = ", false, true" if version >= GIDS_SINCE else ""
    milliseconds = round(address.timeout * 1000)
    try:
        connection.execute("SELECT set_config('statement_timeout', %s, false)", (str(milliseconds),))
        connection.execute(
            f"SELECT pg_create_logical_replication_slot(%s, 'pgoutput'{two_phase})".encode(),
            (address.slot,),
        )
    except psycopg.errors.QueryCanceled:
        raise SourceFailed(
            f"source {address.source}: no replication slot could be created in {address.timeout:.0f} s,"
            " because transactions that have written are still open",
            subject=address.slot,
            hint="end them (see pg_stat_activity and pg_prepared_xacts), or wait longer: option `timeout`",
        ) from None
    connection.execute("SELECT set_config('statement_timeout', '0', false)")


def drop_slot(connection: Connection, address: Address) -> list[str]:
    """Drops the slot, also from under a reader of ours."""
    if slot_of(connection, address) is None:
        return []
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        end_reader(connection, address)
        try:
            connection.execute("SELECT pg_drop_replication_slot(%s)", (address.slot,))
            return [_dropped(address)]
        except psycopg.errors.ObjectInUse:
            if time.monotonic() > deadline:
                raise


def end_reader(connection: Connection, address: Address) -> None:
    """Ends the session that reads the slot, if any: one reader at a time, and the last one to come is right.

    Only who holds the warehouse's lease captures. A reader that died may be known to the server for a while.
    """
    connection.execute(
        "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots"
        " WHERE slot_name = %s AND active_pid IS NOT NULL",
        (address.slot,),
    )


def expect_server(address: Address, captured: str, server: str) -> None:
    """The history of the log must be the one that was captured: positions of another one say nothing."""
    if captured == server:
        return
    system, _, timeline = server.partition("/")
    was_system, _, was_timeline = captured.partition("/")
    if system != was_system:
        raise log_lost(address, f"the server is another one, {system} in place of {was_system or 'none'}")
    raise log_lost(
        address,
        f"the server is on timeline {timeline} in place of {was_timeline}: it was restored from a backup,"
        " or a standby was promoted",
    )


def expect_log(connection: Connection, address: Address, start: int) -> None:
    """The server must still have all that was committed from a position on."""
    slot = slot_of(connection, address)
    if slot is None:
        published = connection.execute(
            "SELECT FROM pg_publication WHERE pubname = %s", (address.publication,)
        )
        if published.fetchone() is None:
            raise not_set_up(address)
        raise log_lost(address, f"its replication slot {address.slot} was dropped")
    if slot.is_lost:
        raise log_lost(address, "the server has removed log that was not captured yet")
    if slot.confirmed > start:
        raise log_lost(address, "the slot was advanced past changes that were not captured")
    row = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
    assert row is not None
    if position_of(row[0]) < start:
        raise log_lost(address, "the server was restored to an earlier state, or is a different one")


def not_set_up(address: Address) -> NotSetUp:
    """Setup has not been there."""
    return NotSetUp(
        f"source {address.source} is not set up for capture",
        subject=address.source,
        hint="run `rollview setup`",
    )


def log_lost(address: Address, reason: str) -> LogLost:
    """The error of a log that no longer has the commits since the last capture."""
    return LogLost(
        f"source {address.source} cannot be captured from where capture stopped: {reason}",
        subject=address.source,
        hint=reload_hint(address.source),
    )


def log_removed(address: Address, reason: str) -> LogLost:
    """Files of the log are gone, and the slot does not know: the server cannot read from it ever again."""
    drop = f"`SELECT pg_drop_replication_slot('{address.slot}')` at the server"
    lost = log_lost(address, reason)
    return LogLost(lost.message, subject=lost.subject, hint=f"{drop}; then {lost.hint}")
