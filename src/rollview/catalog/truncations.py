"""Where captured tables were truncated: a reading from one side cannot be rolled to the other."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import Connection, insert, select

from rollview.catalog import schema
from rollview.catalog.records import Truncation

_truncation = schema.truncation.c


def note_truncations(connection: Connection, found: Sequence[Truncation]) -> None:
    """Writes down truncations of units that become history."""
    for each in found:
        connection.execute(insert(schema.truncation).values(table_name=each.table, csn=each.csn))


def read_truncations(connection: Connection, tables: Collection[str], after: int) -> list[Truncation]:
    """The truncations of tables behind a csn, in the order of the history."""
    found = select(_truncation.table_name, _truncation.csn).where(
        _truncation.table_name.in_(tables), _truncation.csn > after
    )
    return [Truncation(*row) for row in connection.execute(found.order_by(_truncation.csn))]
