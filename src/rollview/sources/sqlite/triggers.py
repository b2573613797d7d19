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
another identity. Hence nothing is logged twice when DELETE triggers do fire. Notes that turned out needless
go with the next insert that collides.

BEFORE triggers do not see the new row quite as it will be written. Too many notes do no harm, so what is not
certain is noted: all rows that agree on the rest of a key of which REPLACE will fill in a part. Generated
columns are computed by then from those columns alone that the trigger mentions, so it mentions all.

A table may be written again while one of its rows is being written, because foreign keys' actions and older
BEFORE triggers of the owner come between our BEFORE and our AFTER triggers (`Structure.is_reentrant`). There
the order of things cannot be known, so `_old_` is kept as a *mirror* instead: for every row that is touched,
what the log says that the table holds. After each change the rows that can be concerned are compared with the
table, and every difference is logged. Only what a transaction changed in all matters, so it does not matter
who comes first.

A conflict clause of the writer's statement rules inside triggers, too, so no statement here relies on one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rollview.sources.sqlite.connection import quote
from rollview.sources.sqlite.owner_triggers import OURS
from rollview.sources.sqlite.structure import Structure, UniqueKey, is_literal

VERSION_TABLE = f"{OURS}_version"
COUNTER = f"(SELECT version FROM {VERSION_TABLE} WHERE id = 0)"
_COUNT_ONE = f"UPDATE {VERSION_TABLE} SET version = version + 1 WHERE id = 0;"
INSERTED, UPDATED, DELETED = 1, 0, -1
"""The kinds of a log record."""
_ON_TABLE = (
    "insert", "update", "delete", "leave", "move", "note_insert", "note_update",
    "replace_insert", "replace_update",
)  # fmt: skip
_ON_NOTES = ("gone", "come", "changed")


def log_name(table: str) -> str:
    """The table that holds a table's change log."""
    return f"{OURS}_log_{table}"


def old_name(table: str) -> str:
    """The table that holds the rows which a REPLACE may be about to delete."""
    return f"{OURS}_old_{table}"


def trigger_names(table: str) -> tuple[str, ...]:
    """The triggers that may be made on a table, and then those on its notes."""
    return tuple(f"{OURS}_{what}_{table}" for what in (*_ON_TABLE, *_ON_NOTES))


def unlogged(structure: Structure, columns: Sequence[str]) -> str:
    """That a note does not say what the table holds, as SQL over the notes.

    Outside of a writer's statement every note does, unless our triggers were kept from logging a change.
    """
    table, old = quote(structure.name), quote(old_name(structure.name))
    place = [
        f"{table}.{column} = {old}.i{i}{_collate(collation)}"
        for i, (column, collation) in enumerate(structure.identity)
    ]
    same = [f"{old}.c{i} IS {table}.{quote(column)} COLLATE BINARY" for i, column in enumerate(columns)]
    there = f"EXISTS (SELECT 1 FROM {table} WHERE {' AND '.join(place)}"
    return f"CASE WHEN gone THEN {there}) ELSE NOT {' AND '.join((there, *same))}) END"


def goes_with_table(name: str, table: str) -> bool:
    """Whether something that was made for a table is a trigger on it, which is dropped with it."""
    return name in trigger_names(table)[: len(_ON_TABLE)]


def statements(structure: Structure, columns: Sequence[str]) -> dict[str, str]:
    """All that is made to capture these columns of a table: names and CREATE statements, in order."""
    writer = _MirrorWriter if structure.is_reentrant else _NoteWriter
    return dict(writer(structure, columns).all())


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

    def _log_table(self) -> tuple[str, str]:
        columns = ["version INTEGER PRIMARY KEY", "kind", "time", *self._numbered("o"), *self._numbered("n")]
        return log_name(self.structure.name), f"CREATE TABLE {self.log}({', '.join(columns)})"

    def _trigger(self, what: str, event: str, table: str, body: str, when: str = "") -> tuple[str, str]:
        name = f"{OURS}_{what}_{self.structure.name}"
        condition = f" WHEN {when}" if when else ""
        return name, f"CREATE TRIGGER {quote(name)} {event} ON {table}{condition} BEGIN {body} END"

    def _numbered(self, letter: str) -> list[str]:
        return [f"{letter}{i}" for i in range(self.width)]

    def _values(self, of: str) -> list[str]:
        return [f"{of}.{quote(column)}" for column in self.columns]

    def _noted(self, of: str) -> list[str]:
        return [f"{of}.{name}" for name in self._numbered("c")]

    def _record(self, kind: int, old: Sequence[str] = (), new: Sequence[str] = ()) -> str:
        """Counts one and logs a record with these old and new values."""
        names, values = ["version", "kind", "time"], [COUNTER, str(kind), "julianday('now')"]
        if old:
            names += self._numbered("o")
            values += old
        if new:
            names += self._numbered("n")
            values += new
        return f"{_COUNT_ONE} INSERT INTO {self.log}({', '.join(names)}) VALUES ({', '.join(values)});"

    def _same_key(self, key: UniqueKey) -> str:
        parts = [f"{column} IS NULL" for column in (f"NEW.{each}" for each in key.when_null)]
        parts = [f"({' OR '.join(parts)})"] if parts else []
        for column, collation in key.columns:
            parts.append(f"{self.table}.{column} = {self._new_value(column)}{_collate(collation)}")
        if key.condition:
            # The line break ends a comment that the owner may have left in the condition.
            parts.append(f"({key.condition}\n)")
        return " AND ".join(parts)

    def _new_value(self, column: str) -> str:
        """REPLACE puts the default in place of a forbidden NULL, but only after BEFORE triggers ran."""
        absent = {quote(each.name): each.absent for each in self.structure.columns}
        default = absent.get(column, "")
        return f"coalesce(NEW.{column}, ({default}))" if is_literal(default) else f"NEW.{column}"

    def _mentioned(self) -> str:
        """Mentions every column of the new row, so that SQLite computes generated ones from all of them."""
        return " AND ".join(
            f"NEW.{name} IS NEW.{name}" for name in (quote(each.name) for each in self.structure.columns)
        )

    def _own(self) -> str:
        return " AND ".join(f"{self.table}.{column} IS OLD.{column}" for column, _ in self.structure.identity)


class _NoteWriter(_Writer):
    """For a table that is not written again while one of its rows is being written."""

    def all(self) -> Iterator[tuple[str, str]]:
        """Names and statements: the two tables first, then the triggers."""
        name = self.structure.name
        old, new = self._values("OLD"), self._values("NEW")
        yield self._log_table()
        yield old_name(name), f"CREATE TABLE {self.old}(gone, {', '.join((*self.ids, *self._numbered('c')))})"
        yield self._trigger("insert", "AFTER INSERT", self.table, self._record(INSERTED, new=new))
        yield self._trigger("update", "AFTER UPDATE", self.table, self._record(UPDATED, old, new))
        yield self._trigger("delete", "AFTER DELETE", self.table, self._record(DELETED, old))
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
        yield self._trigger(
            "gone", "AFTER UPDATE OF gone", self.old, self._record(DELETED, self._noted("NEW"))
        )

    def _collides(self, update: bool = False) -> str:
        """Whether the new row collides with another one; an update only where it changes the key."""
        return " OR ".join(
            self._collides_with_new_row(key)
            if update
            else f"EXISTS (SELECT 1 FROM {self.table} WHERE {self._same_key(key)})"
            for key in self.structure.unique
        )

    def _collides_with_new_row(self, key: UniqueKey) -> str:
        """A change of another column may bring a row under the key's condition, or change a computed key."""
        found = f"EXISTS (SELECT 1 FROM {self.table} WHERE {self._same_key(key)}"
        if key.condition or key.is_computed or key.when_null:
            mentioned = f"{self._mentioned()} AND " if key.is_computed else ""
            return f"({mentioned}{found} AND NOT ({self._own()})))"
        changed = " OR ".join(_differs(column) for column, _ in key.columns)
        return f"(({changed}) AND {found}))"

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
        notes = " ".join(self._note(key, f" AND NOT ({self._own()})") for key in self.structure.unique)
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


class _MirrorWriter(_Writer):
    """For a table that may be written again while one of its rows is being written.

    A row of the mirror says what the log says of the row with this identity: that it has these values, or
    (`gone`) that there is none. It also holds the columns of all unique keys, by which AFTER triggers find
    the rows that the new one may have replaced. Rows of the mirror stay until `acknowledge` deletes them.
    """

    def __init__(self, structure: Structure, columns: Sequence[str]) -> None:
        super().__init__(structure, columns)
        self.exact = [key for key in structure.unique[1:] if not key.when_null]
        self.keyed = list(dict.fromkeys(column for key in self.exact for column, _ in key.columns))
        self.kept = {column: f"k{i}" for i, column in enumerate(self.keyed)}

    def all(self) -> Iterator[tuple[str, str]]:
        """Names and statements: tables and indexes first, then the triggers."""
        yield self._log_table()
        yield from self._mirror()
        moved = f"{self._note(self._own())} {self._note_victims()} {self._note_absence()}"
        gone, come = self._is_at("OLD"), self._concerned()
        absence = self._note_absence()
        yield self._trigger("note_insert", "BEFORE INSERT", self.table, self._note_victims())
        mentioned = self._mentioned() if any(key.is_computed for key in self.exact) else ""
        yield self._trigger("note_update", "BEFORE UPDATE", self.table, moved, mentioned)
        yield self._trigger("leave", "BEFORE DELETE", self.table, self._note(self._own()))
        yield self._trigger("insert", "AFTER INSERT", self.table, f"{absence} {self._compare(come)}")
        both = f"({gone}) OR {come}"
        yield self._trigger("update", "AFTER UPDATE", self.table, f"{absence} {self._compare(both)}")
        yield self._trigger("delete", "AFTER DELETE", self.table, self._compare(gone))
        old, new = self._noted("OLD"), self._noted("NEW")
        differs = " OR ".join(f"{one} IS NOT {other}" for one, other in zip(old, new, strict=True)) or "0"
        for what, when, record in (
            ("gone", "NEW.gone AND NOT OLD.gone", self._record(DELETED, old)),
            ("come", "OLD.gone AND NOT NEW.gone", self._record(INSERTED, new=new)),
            ("changed", f"NOT (OLD.gone OR NEW.gone) AND ({differs})", self._record(UPDATED, old, new)),
        ):
            yield self._trigger(what, "AFTER UPDATE", self.old, record, when)

    def _mirror(self) -> Iterator[tuple[str, str]]:
        collations = [_collate(collation) for _, collation in self.structure.identity]
        ids = [f"{name}{collation}" for name, collation in zip(self.ids, collations, strict=True)]
        columns = ", ".join(("gone", *ids, *self._numbered("c"), *self.kept.values()))
        name = old_name(self.structure.name)
        yield name, f"CREATE TABLE {self.old}({columns}, PRIMARY KEY ({', '.join(self.ids)}))"
        for i, key in enumerate(self.exact):
            index = f"{name}_{i}"
            parts = ", ".join(
                f"{self.kept[column]}{_collate(collation)}" for column, collation in key.columns
            )
            yield index, f"CREATE INDEX {quote(index)} ON {self.old}({parts})"

    def _row(self) -> list[str]:
        """The values of a row of the table, as the mirror holds them after its identity."""
        return [*self._values(self.table), *(f"{self.table}.{column}" for column in self.keyed)]

    def _same(self, place: Sequence[str]) -> str:
        """That a row of the mirror is at this place.

        The sign takes its type from the value: it could keep SQLite from using an index on untyped columns.
        """
        return " AND ".join(f"{self.old}.{i} = +{value}" for i, value in zip(self.ids, place, strict=True))

    def _is_at(self, row: str) -> str:
        return self._same([f"{row}.{column}" for column, _ in self.structure.identity])

    def _there(self) -> str:
        """That a row of the table is at the place of one of the mirror."""
        return " AND ".join(
            f"{self.table}.{column} = {self.old}.{i}{_collate(collation)}"
            for i, (column, collation) in zip(self.ids, self.structure.identity, strict=True)
        )

    def _note(self, where: str) -> str:
        """Copies rows of the table that the mirror does not have yet."""
        place = [f"{self.table}.{column}" for column, _ in self.structure.identity]
        return (
            f"INSERT INTO {self.old} SELECT {', '.join(('0', *place, *self._row()))} FROM {self.table}"
            f" WHERE {where} AND NOT EXISTS (SELECT 1 FROM {self.old} WHERE {self._same(place)});"
        )

    def _note_victims(self) -> str:
        return " ".join(self._note(self._same_key(key)) for key in self.structure.unique)

    def _note_absence(self) -> str:
        """That there is nothing at the new row's place, if there is nothing, or was not until now."""
        values = [self._new_value(column) for column, _ in self.structure.identity]
        return (
            f"INSERT INTO {self.old}(gone, {', '.join(self.ids)}) SELECT 1, {', '.join(values)}"
            f" WHERE NOT EXISTS (SELECT 1 FROM {self.old} WHERE {self._same(values)});"
        )

    def _concerned(self) -> str:
        """The rows of the mirror at the new row's place, and those that collide with it by another key."""
        found = [self._is_at("NEW")]
        for key in self.exact:
            parts = [
                f"{self.old}.{self.kept[column]} = +NEW.{column}{_collate(collation)}"
                for column, collation in key.columns
            ]
            found.append(" AND ".join(parts))
        return " OR ".join(f"({each})" for each in found)

    def _compare(self, concerned: str) -> str:
        """Brings rows of the mirror up to date; triggers on the mirror log what that changes."""
        names = ", ".join(("gone", *self._numbered("c"), *self.kept.values()))
        there = f"FROM {self.table} WHERE {self._there()}"
        return (
            f"UPDATE {self.old} SET gone = 1"
            f" WHERE ({concerned}) AND NOT gone AND NOT EXISTS (SELECT 1 {there});"
            f" UPDATE {self.old} SET ({names}) = (SELECT {', '.join(('0', *self._row()))} {there})"
            f" WHERE ({concerned}) AND EXISTS (SELECT 1 {there});"
        )


def _differs(column: str) -> str:
    return f"NEW.{column} IS NOT OLD.{column} COLLATE BINARY"


def _collate(collation: str) -> str:
    return f" COLLATE {quote(collation)}" if collation else ""
