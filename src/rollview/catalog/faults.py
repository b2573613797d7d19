"""Faults that stop sites, tables and views. Each has at most one."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace

from sqlalchemy import Connection, delete, insert, select

from rollview.catalog import schema
from rollview.catalog.database import Database
from rollview.catalog.records import Fault
from rollview.errors import UnrepresentableValue

_MISFIT = UnrepresentableValue.__name__


def read_faults(connection: Connection, scope: str) -> dict[str, Fault]:
    """The faults of one scope by name."""
    fault = schema.fault.c
    statement = select(*(fault[each.name] for each in fields(Fault))).where(fault.scope == scope)
    rows = connection.execute(statement.order_by(fault.name)).mappings()
    return {row["name"]: Fault(**{**row, "columns": tuple(json.loads(row["columns"]))}) for row in rows}


def note_fault(connection: Connection, fault: Fault, now: float) -> bool:
    """Writes a fault down in place of an earlier one; whether it says anything new."""
    known = read_faults(connection, fault.scope).get(fault.name)
    if known == fault:
        return False
    since = now if known is None else known.since
    clear_fault(connection, fault.scope, fault.name)
    row = asdict(replace(fault, since=since)) | {"columns": json.dumps(fault.columns)}
    connection.execute(insert(schema.fault).values(**row))
    return True


def note_losses(connection: Connection, losses: tuple[Fault, ...], now: float) -> None:
    """Of a table that has lost changes before, the first loss counts; a later one may add columns."""
    known = read_faults(connection, "table")
    for loss in losses:
        both = loss if loss.name not in known else _both(known[loss.name], loss)
        if both != known.get(loss.name):
            note_fault(connection, both, now)
            known[loss.name] = both


def _both(known: Fault, new: Fault) -> Fault:
    """Two losses of one table as one. Where that says too much, a view stops earlier than it must.

    Of two rows that cannot be represented the newer one is named; any other loss is the graver one.
    """
    first = known if known.csn <= new.csn else new
    if _MISFIT in (known.kind, new.kind):
        graver = known if new.kind == _MISFIT != known.kind else new
        return replace(graver, csn=first.csn, columns=())
    columns: tuple[str, ...] = ()
    if known.columns and new.columns:
        columns = tuple(dict.fromkeys((*known.columns, *new.columns)))
    wider = new if known.columns and set(columns) != set(known.columns) else first
    return replace(wider, csn=first.csn, columns=columns)


def clear_fault(connection: Connection, scope: str, name: str) -> bool:
    """Forgets a fault; whether there was one."""
    fault = schema.fault.c
    gone = delete(schema.fault).where(fault.scope == scope, fault.name == name)
    return bool(connection.execute(gone).rowcount)


@dataclass(frozen=True)
class Faults:
    """The faults of sites, tables and views."""

    database: Database
    clock: Callable[[], float]

    def of(self, scope: str) -> dict[str, Fault]:
        """The faults of sites, tables or views, by name."""
        with self.database.reading() as connection:
            return read_faults(connection, scope)

    def note(self, fault: Fault) -> bool:
        """Records what stops something; returns whether that is new."""
        with self.database.writing() as connection:
            return note_fault(connection, fault, self.clock())

    def note_losses(self, losses: Sequence[Fault]) -> None:
        """Writes down from which csn on changes of tables are missing; of two losses the earlier counts."""
        with self.database.writing() as connection:
            note_losses(connection, tuple(losses), self.clock())

    def clear(self, scope: str, name: str) -> bool:
        """Records that something continues; returns whether it had stopped."""
        if name not in self.of(scope):
            return False
        with self.database.writing() as connection:
            return clear_fault(connection, scope, name)
