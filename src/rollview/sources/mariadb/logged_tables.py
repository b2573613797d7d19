"""Tables as the log describes them, matched with those that are captured.

Columns are found by name, so that others may come and go. A description that lacks a registered column means
that the table was changed in a way that no statement of the log has told; its rows are lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rollview.sources.mariadb.charsets import Charsets
from rollview.sources.mariadb.connection import Address
from rollview.sources.mariadb.damage import Damage, combined
from rollview.sources.mariadb.logged_values import Convert, logged_values
from rollview.sources.mariadb.registered import GLOBAL_TABLE, Registered
from rollview.sources.mariadb.row_image import RowImages
from rollview.sources.mariadb.table_map import TableMap, parse_table_map

_MOST_KNOWN = 10_000
_ID_BYTES = 6
_NAMES_AT = 8
SET_UP_LATER = Damage("it was set up again behind this change, because it was not the same table any more")
_UNDESCRIBED = Damage(
    "its rows were logged without a description of their columns (SET GLOBAL binlog_row_metadata = FULL at"
    " the server and in its configuration)"
)


@dataclass(frozen=True, eq=False)
class LoggedTable:
    """How to read the row events of a table that matters: a captured one, or one of ours.

    `damage` names columns that are missing, without which the rows go on.
    """

    name: str
    images: RowImages
    columns: tuple[tuple[str, str], ...] = ()
    convert: tuple[Convert, ...] = ()
    damage: Damage | None = None


@dataclass(frozen=True)
class UnreadableTable:
    """A captured table whose row events cannot be read, and why."""

    name: str
    damage: Damage


class LoggedTables:
    """What the table-map events of one database mean for the capture of some of its tables."""

    def __init__(
        self, source: str, address: Address, tables: Mapping[str, Registered], charsets: Charsets
    ) -> None:
        self.tables = tables
        self.registry = address.registry
        self._source = source
        self._charsets = charsets
        database = address.database.encode()
        self._prefix = bytes((len(database),)) + database + b"\0"
        self._known: dict[bytes, LoggedTable | UnreadableTable | None] = {}

    def is_own(self, body: bytes) -> bool:
        """Whether the table of a table-map event is in the database."""
        return body.startswith(self._prefix, _NAMES_AT)

    def known(self, body: bytes, ordinal: int) -> LoggedTable | UnreadableTable | None:
        """The table of a table-map event; None if it is of no interest, or not yet at this mark."""
        # The same description comes with every statement; only its number may differ.
        key = body[_ID_BYTES:]
        if key in self._known:
            return self._known[key]
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        found: LoggedTable | UnreadableTable | None = None
        if self.is_own(body):
            table = parse_table_map(body)
            registered = self.tables.get(table.table)
            if registered is not None and registered.since > ordinal:
                return UnreadableTable(table.table, SET_UP_LATER) if registered.again else None
            found = self._match(table, registered)
        self._known[key] = found
        return found

    def _match(self, table: TableMap, registered: Registered | None) -> LoggedTable | UnreadableTable | None:
        names = [column.name for column in table.columns]
        if table.table in (GLOBAL_TABLE, self.registry):
            return LoggedTable(table.table, RowImages(table.columns, (0, 1)))
        if registered is None:
            return None
        place = f"{self._source}.{table.table}"
        if not all(names):
            return UnreadableTable(table.table, _UNDESCRIBED)
        convert: list[Convert] = []
        places: list[int] = []
        columns: list[tuple[str, str]] = []
        damages: list[Damage] = []
        for column, kind in registered.columns:
            logged = table.columns[names.index(column.name)] if column.name in names else None
            found = None
            if logged is not None:
                found = logged_values(logged, column.declared, kind, self._charsets, f"{place}.{column.name}")
            if found is None:
                now = "is gone" if logged is None else f"is no longer {column.declared}"
                damages.append(Damage(f"its column {column.name} {now}", (column.name,)))
                continue
            convert.append(found)
            places.append(names.index(column.name))
            columns.append((column.name, kind))
        damage = combined(damages)
        if damage is not None and not columns:
            return UnreadableTable(table.table, Damage(damage.reason))
        images = RowImages(table.columns, places)
        return LoggedTable(table.table, images, tuple(columns), tuple(convert), damage)
