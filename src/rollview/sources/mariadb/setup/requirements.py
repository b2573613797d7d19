"""The requirements of a server, so that nothing is lost silently; each with the statements to meet it.

Settings of the whole server are its administrator's business: they are asked for, never changed from here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pymysql

from rollview.errors import CaptureRefused, RollviewError
from rollview.sources.mariadb.binlog.log_stream import LogStream
from rollview.sources.mariadb.binlog.server_log import server_state, written_position
from rollview.sources.mariadb.connection import Server
from rollview.sources.mariadb.registered import our_tables
from rollview.sources.mariadb.structure import quote

_OLDEST = (10, 5)
_SETTINGS = {"binlog_format": "ROW", "binlog_row_image": "FULL", "binlog_row_metadata": "FULL"}
_WHY = {
    "binlog_format": "rows are captured from the log, so the log must hold rows",
    "binlog_row_image": "the old values of rows are needed, too",
    "binlog_row_metadata": "names and types of columns must be in the log beside the rows",
}
_DENIED = frozenset({1044, 1045, 1142, 1143, 1227})
_SHORT_SECONDS = 86_400


@dataclass(frozen=True)
class Lacks:
    """Statements and lines that an administrator must see to, and what is merely worth knowing."""

    needed: tuple[str, ...]
    warnings: tuple[str, ...]


def check_version(source: str, cursor: Any) -> str:
    """The server's version, if it is one that works."""
    cursor.execute("SELECT VERSION()")
    (version,) = cursor.fetchone()
    numbers = tuple(int(part) for part in version.split("-")[0].split(".")[:2])
    if "mariadb" not in version.lower():
        raise CaptureRefused(
            f"source {source} is MySQL {version}, which does not report what a consistent snapshot sees",
            subject=source,
            hint="only MariaDB is supported: tested with 10.11",
        )
    if numbers < _OLDEST:
        raise CaptureRefused(
            f"source {source} is MariaDB {version}, which is too old",
            subject=source,
            hint="use 10.5 or newer",
        )
    return str(version)


def lacks(server: Server, connection: Any, tables: Iterable[str]) -> Lacks:
    """The obstacles to capturing these tables. Nothing is changed."""
    with connection.cursor() as cursor:
        settings = _settings(cursor)
        needed = list(_log_settings(settings))
        if settings["log_bin"] not in ("ON", "1"):
            return Lacks(tuple(needed), ())
        user = _user(cursor)
        needed += _missing_grants(server, cursor, user, tables)
        if not needed:
            needed += _unlogged(server, cursor)
    return Lacks(tuple(needed), tuple(_warnings(settings)))


def _settings(cursor: Any) -> dict[str, str]:
    cursor.execute(
        "SHOW GLOBAL VARIABLES WHERE variable_name IN ('log_bin', 'server_id', 'binlog_format',"
        " 'binlog_row_image', 'binlog_row_metadata', 'binlog_expire_logs_seconds', 'expire_logs_days')"
    )
    return {name.lower(): value for name, value in cursor.fetchall()}


def _log_settings(settings: dict[str, str]) -> Iterable[str]:
    lines = [f"{name} = {value}" for name, value in _SETTINGS.items() if settings.get(name) != value]
    if settings["log_bin"] not in ("ON", "1"):
        lines.insert(0, "log_bin")
        yield "-- the server writes no binary log; that takes a line in its configuration and a restart"
    if settings.get("server_id") == "0":
        lines.append("server_id = 1")
    for name, value in _SETTINGS.items():
        if settings.get(name) != value:
            yield f"SET GLOBAL {name} = '{value}';  -- {_WHY[name]}; sessions that are open keep their own"
    if settings.get("server_id") == "0":
        yield "SET GLOBAL server_id = 1;  -- with server_id 0 the server sends its log to nobody"
    if lines:
        yield f"-- in the server's configuration, under [mariadb]: {'; '.join(lines)}"


def _missing_grants(server: Server, cursor: Any, user: str, tables: Iterable[str]) -> Iterable[str]:
    database = quote(server.address.database)
    if _is_denied(cursor, "SHOW MASTER STATUS"):
        # Without the one it cannot be tried whether the other is there; granting it again does no harm.
        yield f"GRANT BINLOG MONITOR, REPLICATION SLAVE ON *.* TO {user};"
    elif _may_not_dump(server, cursor):
        yield f"GRANT REPLICATION SLAVE ON *.* TO {user};"
    for table in tables:
        # Privileges for all single columns would not show the table's declaration.
        if any(
            _is_denied(cursor, f"{tried} {quote(table)}{limit}")
            for tried, limit in (("SELECT * FROM", " LIMIT 0"), ("SHOW CREATE TABLE", ""))
        ):
            yield f"GRANT SELECT ON {database}.{quote(table)} TO {user};"
    if _is_denied(cursor, "CREATE TEMPORARY TABLE _rollview_try (id INT)"):
        yield f"GRANT CREATE TEMPORARY TABLES ON {database}.* TO {user};"
    else:
        cursor.execute("DROP TEMPORARY TABLE IF EXISTS _rollview_try")


def _may_not_dump(server: Server, cursor: Any) -> bool:
    try:
        LogStream(server, written_position(cursor), None).close()
    except RollviewError as error:
        if "REPLICATION SLAVE" not in str(error):
            raise
        return True
    return False


def _is_denied(cursor: Any, statement: str) -> bool:
    try:
        cursor.execute(statement)
        cursor.fetchall()
    except pymysql.err.MySQLError as error:
        if error.args[0] not in _DENIED:
            raise
        return True
    return False


def _may_not_create(cursor: Any, statement: str) -> bool:
    """The server looks at privileges when it prepares a statement, which is then not executed."""
    if _is_denied(cursor, cursor.mogrify("PREPARE _rollview_try FROM %s", (statement,))):
        return True
    cursor.execute("DEALLOCATE PREPARE _rollview_try")
    return False


def _unlogged(server: Server, cursor: Any) -> Iterable[str]:
    """Changes that the server leaves out of its log."""
    if lacks := server_state(cursor, server.address.database).lacks:
        yield f"-- {lacks}: change its configuration and restart it"


def unfit_settings(cursor: Any) -> list[str]:
    """Settings of the whole server with which new sessions would write what cannot be captured."""
    settings = _settings(cursor)
    return [
        f"{name} is {settings.get(name)}" for name, value in _SETTINGS.items() if settings.get(name) != value
    ]


def _warnings(settings: dict[str, str]) -> Iterable[str]:
    seconds = float(settings.get("binlog_expire_logs_seconds") or 0)
    if 0 < seconds < _SHORT_SECONDS:
        yield (
            f"the server deletes its binary logs after {seconds / 3600:.1f} h: if rollview is stopped for"
            " longer, the views must be reloaded (binlog_expire_logs_seconds)"
        )


def _user(cursor: Any) -> str:
    cursor.execute("SELECT CURRENT_USER()")
    name, _, host = str(cursor.fetchone()[0]).rpartition("@")
    return f"'{name}'@'{host}'"


def grant_database(server: Server, cursor: Any) -> str:
    """The grants that let us read every table of the database, and ship keys."""
    database = quote(server.address.database)
    return f"GRANT SELECT, CREATE TEMPORARY TABLES ON {database}.* TO {_user(cursor)};"


def grants_for_ours(server: Server, cursor: Any, missing: Iterable[str]) -> tuple[str, ...]:
    """The statements for an administrator where we may not create our own missing tables; else none."""
    ours = our_tables(server.address.registry)
    if not any(_may_not_create(cursor, ours[name]) for name in missing):
        return ()
    database, user = quote(server.address.database), _user(cursor)
    grants = [f"GRANT SELECT, INSERT, DELETE, DROP ON {database}.{quote(name)} TO {user};" for name in ours]
    return (f"USE {database};", *(f"{statement};" for statement in ours.values()), *grants)
