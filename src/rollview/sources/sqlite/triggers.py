"""The statements that make a table write its own change log.

Per table there is a log, `_rollview_log_T`: one record per changed row, numbered by the source's counter,
with the old values, the new values, or both, in columns without a type so that every value stays as it is.
The counter is the only row of `_rollview_version`; every record takes the next number, so the counter at a
commit is also the number of the transaction's last record.

REPLACE deletes rows without firing DELETE triggers (unless `recursive_triggers` is on in the writer's
connection). So BEFORE triggers note the rows that collide with the new one on any unique key in
`_rollview_old_T`, and AFTER triggers log those that are gone. Whether a noted row really goes depends on the
writer (INSERT OR IGNORE and upserts collide as well), so all rests on one invariant:

    a noted row is an exact copy of a row of the table, or of one that was deleted silently.

An UPDATE trigger renews the note. A BEFORE trigger drops it when the row is going to be deleted or to get
another identity: before, because foreign keys' actions, which run our triggers, come between such a change
and its AFTER triggers. Hence nothing is logged twice when DELETE triggers do fire, or when an action touches
a noted row first. Notes that turned out needless go with the next insert that collides.

A conflict clause of the writer's statement rules inside triggers, too, so no statement here relies on one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rollview.sources.sqlite.connection import quote
from rollview.sources.sqlite.structure import OURS, Structure, UniqueKey

VERSION_TABLE = f"{OURS}_version"
COUNTER = f"(SELECT version FROM {VERSION_TABLE} WHERE id = 0)"
_COUNT_ONE = f"UPDATE {VERSION_TABLE} SET version = version + 1 WHERE id = 0;"
INSERTED, UPDATED, DELETED = 1, 0, -1
"""The kinds of a log record."""
_TRIGGERS = (
    "insert", "update", "delete", "leave", "move", "note_insert", "note_update",
    "replace_insert", "replace_update", "gone",
)  # fmt: skip


def log_name(table: str) -> str:
    """The table that holds a table's change log."""
    return f"{OURS}_log_{table}"


def old_name(table: str) -> str:
    """The table that holds the rows which a REPLACE may be about to delete."""
    return f"{OURS}_old_{table}"


def trigger_names(table: str) -> tuple[str, ...]:
    """The triggers that are made for a table."""
    return tuple(f"{OURS}_{what}_{table}" for what in _TRIGGERS)


def statements(structure: Structure, columns: Sequence[str]) -> dict[str, str]:
    """All that is made to capture these columns of a table: names and CREATE statements, in order."""
    return dict(_Writer(structure, columns).all())


class _Writer:
    """Writes the statements of one table; only the names in them are kept."""

    def __init__(self, structure: Structure, columns: Sequence[str]) -> None:
        self.structure = structure
        self.columns = columns
        self.table = quote(structure.name)
        self.log = quote(log_name(structure.name))
        self.old = quote(old_name(structure.name))
        self.width = len(columns)
        self.ids = [f"i{i}" for i in range(len(structure.identity))]

    def all(self) -> Iterator[tuple[str, str]]:
        """Names and statements: the two tables first, then the triggers."""
        name = self.structure.name
        columns = ["version INTEGER PRIMARY KEY", "kind", "time", *self._numbered("o"), *self._numbered("n")]
        yield log_name(name), f"CREATE TABLE {self.log}({', '.join(columns)})"
        yield old_name(name), f"CREATE TABLE {self.old}(gone, {', '.join((*self.ids, *self._numbered('c')))})"
        yield self._trigger("insert", "AFTER INSERT", self.table, self._record(INSERTED, new="NEW"))
        yield self._trigger("update", "AFTER UPDATE", self.table, self._record(UPDATED, old="OLD", new="NEW"))
        yield self._trigger("delete", "AFTER DELETE", self.table, self._record(DELETED, old="OLD"))
        some = f"EXISTS (SELECT 1 FROM {self.old})"
        drop_note = f"DELETE FROM {self.old} WHERE {self._noted_is('OLD')};"
        moves = " OR ".join(_differs(column) for column, _ in self.structure.identity)
        yield self._trigger("leave", "BEFORE DELETE", self.table, drop_note, some)
        yield self._trigger("move", "BEFORE UPDATE", self.table, drop_note, f"({moves}) AND {some}")
        yield self._trigger("note_insert", "BEFORE INSERT", self.table, self._note_insert(), self._collides())
        yield self._trigger(
            "note_update", "BEFORE UPDATE", self.table, self._note_update(), self._collides(True)
        )
        yield self._trigger("replace_insert", "AFTER INSERT", self.table, self._settle_insert(), some)
        yield self._trigger("replace_update", "AFTER UPDATE", self.table, self._settle_update(), some)
        yield self._trigger("gone", "AFTER UPDATE OF gone", self.old, self._record(DELETED, noted="NEW"))

    def _trigger(self, what: str, event: str, table: str, body: str, when: str = "") -> tuple[str, str]:
        name = f"{OURS}_{what}_{self.structure.name}"
        condition = f" WHEN {when}" if when else ""
        return name, f"CREATE TRIGGER {quote(name)} {event} ON {table}{condition} BEGIN {body} END"

    def _numbered(self, letter: str) -> list[str]:
        return [f"{letter}{i}" for i in range(self.width)]

    def _values(self, of: str) -> list[str]:
        return [f"{of}.{quote(column)}" for column in self.columns]

    def _record(self, kind: int, old: str = "", new: str = "", noted: str = "") -> str:
        """Counts one and logs a record."""
        names, values = ["version", "kind", "time"], [COUNTER, str(kind), "julianday('now')"]
        if old:
            names += self._numbered("o")
            values += self._values(old)
        if noted:
            names += self._numbered("o")
            values += [f"{noted}.{name}" for name in self._numbered("c")]
        if new:
            names += self._numbered("n")
            values += self._values(new)
        return f"{_COUNT_ONE} INSERT INTO {self.log}({', '.join(names)}) VALUES ({', '.join(values)});"

    def _collides(self, update: bool = False) -> str:
        """Whether the new row collides with another one; an update only where it changes the key."""
        parts = []
        for key in self.structure.unique:
            changed = " OR ".join(_differs(column) for column, _ in key.columns)
            found = f"EXISTS (SELECT 1 FROM {self.table} WHERE {self._same_key(key)})"
            parts.append(f"(({changed}) AND {found})" if update else found)
        return " OR ".join(parts)

    def _same_key(self, key: UniqueKey) -> str:
        absent = {quote(column.name): column.absent for column in self.structure.columns}
        parts = []
        for column, collation in key.columns:
            # REPLACE puts the default in place of a forbidden NULL, but only after BEFORE triggers ran.
            default = absent.get(column, "")
            value = f"coalesce(NEW.{column}, ({default}))" if default else f"NEW.{column}"
            parts.append(f"{self.table}.{column} = {value}{_collate(collation)}")
        if key.condition:
            # The line break ends a comment that the owner may have left in the condition.
            parts.append(f"({key.condition}\n)")
        return " AND ".join(parts)

    def _note(self, key: UniqueKey, besides: str = "") -> str:
        identity = [f"{self.table}.{column}" for column, _ in self.structure.identity]
        same = " AND ".join(f"p.{i} IS {column}" for i, column in zip(self.ids, identity, strict=True))
        return (
            f"INSERT INTO {self.old} SELECT 0, {', '.join((*identity, *self._values(self.table)))}"
            f" FROM {self.table} WHERE {self._same_key(key)}{besides}"
            f" AND NOT EXISTS (SELECT 1 FROM {self.old} AS p WHERE {same});"
        )

    def _note_insert(self) -> str:
        notes = " ".join(self._note(key) for key in self.structure.unique)
        return f"DELETE FROM {self.old}; {notes}"

    def _note_update(self) -> str:
        own = " AND ".join(f"{self.table}.{column} IS OLD.{column}" for column, _ in self.structure.identity)
        notes = " ".join(self._note(key, f" AND NOT ({own})") for key in self.structure.unique)
        # A foreign key's action may run in the middle of a REPLACE, whose notes must then be kept.
        return notes if self.structure.moved_by_parents else f"DELETE FROM {self.old}; {notes}"

    def _noted_is(self, row: str) -> str:
        pairs = zip(self.ids, self.structure.identity, strict=True)
        return " AND ".join(f"{i} IS {row}.{column}" for i, (column, _) in pairs)

    def _is_gone(self) -> str:
        """The new row has its place, or nothing has."""
        pairs = list(zip(self.ids, self.structure.identity, strict=True))
        taken = " AND ".join(f"NEW.{column} = {i}{_collate(collation)}" for i, (column, collation) in pairs)
        there = " AND ".join(
            f"{self.table}.{column} = {self.old}.{i}{_collate(collation)}" for i, (column, collation) in pairs
        )
        return f"(({taken}) OR NOT EXISTS (SELECT 1 FROM {self.table} WHERE {there}))"

    def _settle_insert(self) -> str:
        return f"UPDATE {self.old} SET gone = 1 WHERE {self._is_gone()}; DELETE FROM {self.old} WHERE gone;"

    def _settle_update(self) -> str:
        columns = [*self.ids, *self._numbered("c")]
        values = [*(f"NEW.{column}" for column, _ in self.structure.identity), *self._values("NEW")]
        renewed = ", ".join(f"{name} = {value}" for name, value in zip(columns, values, strict=True))
        return (
            f"UPDATE {self.old} SET gone = 1 WHERE NOT ({self._noted_is('OLD')}) AND {self._is_gone()};"
            f" DELETE FROM {self.old} WHERE gone;"
            f" UPDATE {self.old} SET {renewed} WHERE {self._noted_is('OLD')};"
        )


def _differs(column: str) -> str:
    return f"NEW.{column} IS NOT OLD.{column} COLLATE BINARY"


def _collate(collation: str) -> str:
    return f" COLLATE {quote(collation)}" if collation else ""
