"""Setup and its undoing: which tables are captured, written down in the database itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pymysql

from rollview.errors import CaptureRefused, InputError
from rollview.sources.mariadb.binlog.damage import Damage
from rollview.sources.mariadb.binlog.fingerprint import table_damage
from rollview.sources.mariadb.binlog.server_log import written_position
from rollview.sources.mariadb.connection import Server
from rollview.sources.mariadb.registered import (
    GLOBAL_TABLE,
    REGISTRY,
    Registered,
    our_tables,
    read_registered,
    registered_as,
    write_registered,
)
from rollview.sources.mariadb.setup.requirements import check_version, grant_database, grants_for_ours, lacks
from rollview.sources.mariadb.structure import Structure, is_forbidden, quote, structures_of
from rollview.sources.source import SetupResult, Table


@dataclass(frozen=True)
class _Plan:
    """The plan: our own tables that are missing, tables to register, and those to let go.

    `begun` are captured from now on, `kept` continue and are declared in another way, the `reshaped` ones of
    them with other columns. `needed` is for the administrator; then nothing is done at all. `is_first`:
    nothing is captured for this project yet.
    """

    missing: tuple[str, ...] = ()
    begun: tuple[Registered, ...] = ()
    kept: tuple[Registered, ...] = ()
    reshaped: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()
    is_first: bool = False

    @property
    def result(self) -> SetupResult:
        """The plan as `setup` reports it."""
        done = [f"table {table.name} is captured from the binary log" for table in self.begun]
        done += [f"table {name} is captured with the columns that it has now" for name in self.reshaped]
        done += [f"table {name} is no longer captured" for name in self.gone]
        return SetupResult(tuple(done), self.warnings, self.needed, self.is_first)


def check(server: Server, tables: Sequence[Table]) -> SetupResult:
    """The plan of `install`."""
    with server.session() as connection, connection.cursor() as cursor:
        return _plan_install(server, connection, cursor, tables).result


def install(server: Server, tables: Sequence[Table]) -> SetupResult:
    """Makes exactly these tables captured. Nothing is changed unless all of it can be."""
    with server.session() as connection, connection.cursor() as cursor:
        plan = _plan_install(server, connection, cursor, tables)
        if not plan.needed:
            _make_ours(server, cursor, plan.missing)
            since = written_position(cursor).ordinal
            if plan.begun or plan.kept or plan.gone:
                cursor.execute("START TRANSACTION")
                begun = [replace(table, since=since) for table in plan.begun]
                write_registered(cursor, server.address.registry, [*begun, *plan.kept], plan.gone)
                cursor.execute("COMMIT")
    return plan.result


def _plan_install(server: Server, connection: Any, cursor: Any, tables: Sequence[Table]) -> _Plan:
    """Everything that can be known before; nothing is changed."""
    check_version(server.source, cursor)
    names = [table.name for table in tables]
    structures = structures_of(cursor, server.address.database, server.charsets(connection).single_byte)
    hidden = [name for name in names if name not in structures and is_forbidden(cursor, name)]
    wanted = [_capturable(server.source, name, structures) for name in names if name not in hidden]
    lacking = lacks(server, connection, names)
    missing = _missing_ours(server, cursor)
    # All in one, so that the administrator is asked once.
    if needed := (*lacking.needed, *grants_for_ours(server, cursor, missing)):
        return _Plan(needed=needed, warnings=lacking.warnings)
    present = read_registered(cursor, server.address) or {}
    written = written_position(cursor)
    begun, kept = [], []
    for table, structure in zip(tables, wanted, strict=True):
        new, known = registered_as(structure, table.columns), present.get(table.name)
        if known is None:
            begun.append(new)
            continue
        damage = _damage(known, table, structure, written.ordinal)
        if damage is not None and not damage.columns:
            begun.append(replace(new, again=True, damage=damage))
        elif (continued := _continued(known, new)) != replace(known, damage=None):
            kept.append(replace(continued, damage=damage))
    gone = tuple(sorted(present.keys() - set(names)))
    warnings = (*lacking.warnings, *_unmapped(wanted))
    reshaped = tuple(table.name for table in kept if table.types.keys() != present[table.name].types.keys())
    is_first = server.address.registry in missing
    return _Plan(missing, tuple(begun), tuple(kept), reshaped, gone, warnings, is_first=is_first)


def database_statements(server: Server, database: str) -> tuple[str, ...]:
    """Statements for an administrator, run once, so that every table of the database can be captured."""
    if database != server.address.database:
        raise InputError(
            f"source {server.source} reads database {server.address.database}, not {database}",
            subject=database,
            hint="another database is a source of its own",
        )
    with server.session() as connection, connection.cursor() as cursor:
        check_version(server.source, cursor)
        needed = [each for each in lacks(server, connection, ()).needed if "TEMPORARY" not in each]
        ours = grants_for_ours(server, cursor, _missing_ours(server, cursor))
        return (*needed, grant_database(server, cursor), *ours)


def _damage(known: Registered, table: Table, structure: Structure, written: int) -> Damage | None:
    """Why a table, or some of its columns, can no longer be captured as before."""
    if known.since > written:
        return Damage("it was set up with another binary log than the one that the server has now")
    types = dict(zip(table.columns, table.types, strict=True)) if table.types else {}
    if any(types.get(name, kind) != kind for name, kind in known.types.items()):
        return Damage("columns of it have other types than before")
    return table_damage(known, structure)


def _continued(known: Registered, new: Registered) -> Registered:
    """A table whose capture continues, with the types that it began with; columns may come and go."""
    columns = tuple((column, known.types.get(column.name, kind)) for column, kind in new.columns)
    return replace(new, columns=columns, since=known.since, again=known.again)


def uninstall(server: Server) -> SetupResult:
    """Drops what setup made; what another project needs as well stays."""
    with server.session() as connection, connection.cursor() as cursor:
        present = read_registered(cursor, server.address)
        cursor.execute(f"DROP TABLE IF EXISTS {quote(server.address.registry)}")
        if not any(name.startswith(REGISTRY) for name in _tables_there(server, cursor)):
            cursor.execute(f"DROP TABLE IF EXISTS {quote(GLOBAL_TABLE)}")
    return SetupResult(done=tuple(f"table {name} is no longer captured" for name in present or ()))


def clear_markers(server: Server) -> None:
    """Deletes the rows by which applications marked global transactions: the log has them."""
    with server.session() as connection, connection.cursor() as cursor:
        # A plain SELECT sees what is committed and waits for nobody.
        cursor.execute(f"SELECT id FROM {quote(GLOBAL_TABLE)} LIMIT 1000")
        for (identity,) in cursor.fetchall():
            cursor.execute(f"DELETE FROM {quote(GLOBAL_TABLE)} WHERE id = %s", (identity,))


def _capturable(source: str, name: str, structures: dict[str, Structure]) -> Structure:
    place = f"{source}.{name}"
    structure = structures.get(name)
    if structure is None:
        raise CaptureRefused(
            f"source {source} has no table {name}", subject=place, hint="check the views' FROM"
        )
    if structure.obstacles:
        raise CaptureRefused(
            f"table {place} cannot be captured: {'; '.join(structure.obstacles)}",
            subject=place,
            hint="change the table at the source, or leave it out of the views",
        )
    return structure


def _missing_ours(server: Server, cursor: Any) -> tuple[str, ...]:
    """Those of our own tables that are not there."""
    present = _tables_there(server, cursor)
    return tuple(name for name in our_tables(server.address.registry) if name not in present)


def _tables_there(server: Server, cursor: Any) -> set[str]:
    cursor.execute(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = %s", (server.address.database,)
    )
    return {name for (name,) in cursor.fetchall()}


def _make_ours(server: Server, cursor: Any, missing: Sequence[str]) -> None:
    """Makes our own tables, all or none."""
    made: list[str] = []
    ours = our_tables(server.address.registry)
    try:
        for name in missing:
            cursor.execute(ours[name])
            made.append(name)
    except pymysql.err.MySQLError:
        for name in made:
            cursor.execute(f"DROP TABLE {quote(name)}")
        raise


def _unmapped(structures: Sequence[Structure]) -> list[str]:
    return [
        f"column {structure.name}.{name} {why}: views cannot use it"
        for structure in structures
        for name, why in structure.unmapped
    ]
