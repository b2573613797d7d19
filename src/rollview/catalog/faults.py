"""What keeps sites, tables and views from going on. Each has at most one fault."""

from __future__ import annotations

import json
from dataclasses import asdict, fields, replace

from sqlalchemy import Connection, delete, insert, select

from rollview.catalog import schema
from rollview.catalog.records import Fault


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
    """Of a table that has lost changes before, the first loss counts."""
    known = read_faults(connection, "table")
    for loss in sorted(losses, key=lambda each: each.csn, reverse=True):
        if loss.name not in known or loss.csn < known[loss.name].csn:
            note_fault(connection, loss, now)


def clear_fault(connection: Connection, scope: str, name: str) -> bool:
    """Forgets a fault; whether there was one."""
    fault = schema.fault.c
    gone = delete(schema.fault).where(fault.scope == scope, fault.name == name)
    return bool(connection.execute(gone).rowcount)
