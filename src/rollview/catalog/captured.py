"""The captured tables, as they were registered, and the sites that commit them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from shlex import quote

from sqlalchemy import Connection, delete, func, insert, select, update

from rollview.algebra.relation import ForeignKey, Table
from rollview.catalog import schema
from rollview.catalog.database import Database
from rollview.catalog.faults import clear_fault
from rollview.catalog.records import Site, TableHistory
from rollview.errors import CatalogError, NotRegistered, SourceChanged


def register(connection: Connection, tables: Sequence[Table], origins: Mapping[str, tuple[str, str]]) -> None:
    """Adds new tables and their sites. A known table may get and lose columns; none may change its type."""
    known = read_tables(connection)
    sites = read_sites(connection)
    now = connection.scalar(select(func.max(schema.unit_of_work.c.csn))) or 0
    began = {"lake_version": 0, "origin_csn": now, "history": uuid.uuid4().hex}
    for table in tables:
        if table.site not in sites:
            if table.site not in origins:
                raise CatalogError(
                    f"table {table.qualified} belongs to site {table.site}, "
                    "for which no log position is given",
                    subject=table.qualified,
                    hint="pass the source's `current_position` of the site when its tables are registered",
                )
            source, log_position = origins[table.site]
            site = Site(table.site, source, 0, log_position, None)
            connection.execute(insert(schema.site).values(**asdict(site), source_txids_grow=True))
            sites[site.name] = site
        names = schema.captured_table
        if table.qualified in known:
            kept = _reconciled(known[table.qualified], table)
            statement = (
                update(names).where(names.c.name == table.qualified).values(definition=encode_table(kept))
            )
            connection.execute(statement)
        else:
            kept = table
            row = {"name": table.qualified, "site": table.site, "definition": encode_table(table)}
            connection.execute(insert(names).values(**row, **began))
        known[table.qualified] = kept


def unregister(connection: Connection, tables: Sequence[str]) -> None:
    """Forgets tables, and sites of which no table is left, with all their history."""
    names = schema.captured_table
    for name in tables:
        connection.execute(delete(names).where(names.c.name == name))
        for known in (schema.touch, schema.truncation):
            connection.execute(delete(known).where(known.c.table_name == name))
        clear_fault(connection, "table", name)
    used = set(connection.scalars(select(names.c.site)))
    for name in set(read_sites(connection)) - used:
        connection.execute(delete(schema.part).where(schema.part.c.site == name))
        connection.execute(delete(schema.site).where(schema.site.c.name == name))
        clear_fault(connection, "site", name)


def read_tables(connection: Connection) -> dict[str, Table]:
    """All registered tables by qualified name."""
    names = schema.captured_table
    rows = connection.execute(select(names.c.name, names.c.definition).order_by(names.c.name))
    return {name: decode_table(definition) for name, definition in rows}


def lake_versions(connection: Connection) -> dict[str, int]:
    """For each registered table the version of its change log that holds all that was captured."""
    names = schema.captured_table.c
    return {row.name: row.lake_version for row in connection.execute(select(names.name, names.lake_version))}


def read_histories(connection: Connection) -> dict[str, TableHistory]:
    """For each registered table the history that it has now."""
    names = schema.captured_table.c
    rows = connection.execute(select(names.name, names.history, names.origin_csn))
    return {name: TableHistory(history, origin_csn) for name, history, origin_csn in rows}


def read_present_columns(connection: Connection) -> dict[str, tuple[str, ...]]:
    """For each registered table the columns that it has at its source; none before they were read."""
    names = schema.captured_table.c
    rows = connection.execute(select(names.name, names.present_columns))
    return {name: tuple(json.loads(columns)) for name, columns in rows}


def note_columns(connection: Connection, found: Mapping[str, Sequence[str]]) -> None:
    """Keeps the columns that tables have at their sources."""
    names = schema.captured_table
    for name, columns in found.items():
        kept = json.dumps(list(columns))
        connection.execute(update(names).where(names.c.name == name).values(present_columns=kept))


def read_sites(connection: Connection) -> dict[str, Site]:
    """All sites by name."""
    site = schema.site.c
    statement = select(*(site[field.name] for field in fields(Site)))
    return {row.name: Site(*row) for row in connection.execute(statement.order_by(site.name))}


def note_looked(connection: Connection, sites: Sequence[str], moment: float) -> None:
    """All that these sites had committed at a moment is captured."""
    own = schema.site
    # Also if it is earlier than the last one: a clock may have been wrong, and put right.
    connection.execute(update(own).where(own.c.name.in_(sites)).values(looked_at=moment))


def read_site(connection: Connection, name: str) -> Site:
    """One site; refuses a name that is none."""
    site = schema.site.c
    statement = select(*(site[field.name] for field in fields(Site)))
    row = connection.execute(statement.where(site.name == name)).one_or_none()
    if row is None:
        raise NotRegistered(
            f"site {name} is not captured",
            subject=name,
            hint="run `rollview setup`, which registers all sites in use",
        )
    return Site(*row)


def require_tables(connection: Connection, tables: Sequence[str]) -> None:
    """Refuses names of tables that are not registered."""
    names = schema.captured_table.c.name
    known = set(connection.scalars(select(names).where(names.in_(tables))))
    for table in tables:
        if table not in known:
            raise NotRegistered(
                f"table {table} is not captured",
                subject=table,
                hint="run `rollview setup`, which registers all tables in use",
            )


def _reconciled(old: Table, new: Table) -> Table:
    """The new definition, if it has the old one's columns and types as far as both are known."""
    if old.own_log != new.own_log:
        raise CatalogError(
            f"table {new.qualified} was captured as a part of site {old.site} and is now one of {new.site}",
            subject=new.qualified,
            hint=f"`rollview setup --reload {quote(new.source)}` reloads the views that read it",
        )
    types = new.types or old.types
    before = dict(zip(old.columns, old.types or types, strict=False))
    after = dict(zip(new.columns, types, strict=False))
    if any(before[name] != after[name] for name in before.keys() & after.keys()):
        raise SourceChanged(
            f"table {new.qualified} has changed: it was ({_columns(old)}) and is now ({_columns(new)})",
            subject=new.qualified,
            hint=f"`rollview setup --reload {quote(new.source)}` reloads the views that read it",
        )
    return replace(new, types=types)


def _columns(table: Table) -> str:
    if not table.types:
        return ", ".join(table.columns)
    return ", ".join(f"{name} {kind}" for name, kind in zip(table.columns, table.types, strict=True))


def encode_table(table: Table) -> str:
    """A table as text."""
    return json.dumps(asdict(table))


def decode_table(text: str) -> Table:
    """The table that a text describes."""
    said = json.loads(text)
    foreign_keys = tuple(
        ForeignKey(tuple(each["columns"]), each["references"]) for each in said["foreign_keys"]
    )
    return Table(
        source=said["source"],
        name=said["name"],
        columns=tuple(said["columns"]),
        key=tuple(said["key"]),
        foreign_keys=foreign_keys,
        types=tuple(said["types"]),
        own_log=said["own_log"],
    )


@dataclass(frozen=True)
class Captured:
    """The captured tables, and the sites that commit them."""

    database: Database

    def register(self, tables: Sequence[Table], origins: Mapping[str, tuple[str, str]]) -> None:
        """Adds tables; `origins` gives source and first log position of every site that may be new.

        The keys of a known table may change; other columns or types are refused with SourceChanged.
        """
        with self.database.writing() as connection:
            register(connection, tables, origins)

    def unregister(self, tables: Sequence[str]) -> None:
        """Forgets tables with what is known of their changes, and sites of which none is left."""
        with self.database.writing() as connection:
            unregister(connection, tables)

    def tables(self) -> dict[str, Table]:
        """The captured tables by qualified name, as they were registered."""
        with self.database.reading() as connection:
            return read_tables(connection)

    def lake_versions(self) -> dict[str, int]:
        """For each captured table the version of its change log that holds all that was captured."""
        with self.database.reading() as connection:
            return lake_versions(connection)

    def histories(self) -> dict[str, TableHistory]:
        """The history that each captured table has now."""
        with self.database.reading() as connection:
            return read_histories(connection)

    def present_columns(self) -> dict[str, tuple[str, ...]]:
        """The columns that each captured table had at its source when they were last read; none before."""
        with self.database.reading() as connection:
            return read_present_columns(connection)

    def note_columns(self, found: Mapping[str, Sequence[str]]) -> None:
        """Keeps the columns that captured tables have at their sources."""
        with self.database.writing() as connection:
            note_columns(connection, found)

    def sites(self) -> dict[str, Site]:
        """The sites by name, each with how far it has been captured."""
        with self.database.reading() as connection:
            return read_sites(connection)

    def note_looked(self, sites: Sequence[str], moment: float) -> None:
        """All that these sites had committed at a moment is captured."""
        with self.database.writing() as connection:
            note_looked(connection, sites, moment)
