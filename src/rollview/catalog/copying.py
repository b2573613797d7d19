"""A catalog in another database: all rows, in one transaction there, read back and compared."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, Row, Table, delete, func, insert, select, update

from rollview.catalog import schema
from rollview.errors import CatalogError, InputError

_ROWS = 5_000
_MADE_EMPTY = {schema.schema_version, schema.catalog, schema.lease}
"""These have rows in a catalog that was just made."""

Content = tuple[int, int]
"""How many rows there are, and the sum of their digests: it does not depend on their order."""


def copy_rows(here: Connection, there: Connection, epoch: str) -> int:
    """Copies all rows; in the copy `epoch` is the lake's, and no lease is held. Returns their number."""
    for table in schema.metadata.sorted_tables:
        if table not in _MADE_EMPTY and there.scalar(select(func.count()).select_from(table)):
            raise InputError(
                "the database that `catalog` names has a catalog already",
                subject="catalog",
                hint="name a database, or a file, that has none",
            )
    number = 0
    for table in schema.metadata.sorted_tables:
        there.execute(delete(table))
        expected = _copy(here, there, table)
        if _content(_rows(there, table)) != expected:
            raise CatalogError(f"the copy of {table.name} differs, so it was not made", subject=table.name)
        number += expected[0]
    there.execute(update(schema.catalog).values(epoch=epoch, next_epoch=""))
    there.execute(update(schema.lease).values(pid=None))
    return number


def _copy(here: Connection, there: Connection, table: Table) -> Content:
    rows, digests, names = 0, 0, table.columns.keys()
    for part in _rows(here, table).partitions(_ROWS):
        there.execute(insert(table), [dict(zip(names, row, strict=True)) for row in part])
        more = _content(part)
        rows, digests = rows + more[0], digests + more[1]
    return rows, digests


def _rows(connection: Connection, table: Table) -> Any:
    return connection.execute(select(table), execution_options={"yield_per": _ROWS})


def _content(rows: Iterable[Row[Any]]) -> Content:
    number = digests = 0
    for row in rows:
        # As it is stored: no database has to keep a NUL.
        said = repr(tuple(row)).replace("\\x00", "\N{SYMBOL FOR NULL}")
        digests += int.from_bytes(hashlib.blake2b(said.encode(), digest_size=16).digest())
        number += 1
    return number, digests
