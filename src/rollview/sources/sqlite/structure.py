"""The structure of a SQLite table, as far as capture must know: columns, identity, all unique keys.

REPLACE deletes whatever collides with the new row on any unique key, so all of them must be known: the
rowid, the primary key, unique constraints, and unique indexes with their collations and conditions.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property

from rollview.sources.source import COUNT, CSN, ForeignKey, Table
from rollview.sources.sqlite.connection import quote
from rollview.sources.sqlite.owner_triggers import (
    OURS,
    TOKEN,
    is_reentrant,
    obstacles,
    owner_triggers,
    tokens,
)
from rollview.sources.sqlite.types import spark_type_of

TRIGGER_VERSION = 2
"""Grows when triggers of before miss what those of today log; the first kept no number."""

_RESERVED = (COUNT, CSN)
_MOST_COLUMNS = 900
BUILT_IN = ("", "BINARY", "NOCASE", "RTRIM")
"""The collations that every connection has."""

_LITERAL = re.compile(r"[-+]?\s*[\w.]+|'(?:[^']|'')*'")


@dataclass(frozen=True)
class SQLiteColumn:
    """A column: `absent` is what NULL turns into when a row is written by REPLACE, as SQL; mostly empty."""

    name: str
    type: str
    absent: str = ""


_DESCRIBE = (
    'SELECT name, type, "notnull", dflt_value, pk, hidden FROM pragma_table_xinfo(?) WHERE hidden <> 1'
)


@dataclass(frozen=True)
class _Described:
    """A column as SQLite describes it; `place` is that in the primary key."""

    name: str
    type: str
    is_required: int
    default: str | None
    place: int
    hidden: int

    @property
    def absent(self) -> str:
        """The default that REPLACE puts in place of NULL, as SQL; mostly empty."""
        return self.default if self.is_required and self.default else ""

    @property
    def is_generated(self) -> bool:
        """Whether it is computed from others."""
        return self.hidden > 0


@dataclass(frozen=True)
class UniqueKey:
    """Columns, as SQL text with the collation that decides whether two values collide.

    `condition` is that of a partial index. `is_computed` says that a column is generated. Where the new row
    has NULL in one of the columns `when_null`, REPLACE puts in a default that BEFORE triggers do not see, and
    this key stands in for one with more columns.
    """

    columns: tuple[tuple[str, str], ...]
    condition: str = ""
    is_computed: bool = False
    when_null: tuple[str, ...] = ()


@dataclass(frozen=True)
class Structure:
    """A table. `identity` is its rowid, or its primary key where it has none; it comes first in `unique`.

    `moved_by_parents` says that a foreign key's action can update its rows, and `is_reentrant` that rows may
    be written while one is being written. `obstacles` are the reasons why it cannot be captured.
    """

    name: str
    columns: tuple[SQLiteColumn, ...]
    key: tuple[str, ...]
    unique: tuple[UniqueKey, ...]
    foreign_keys: tuple[ForeignKey, ...]
    moved_by_parents: bool
    obstacles: tuple[str, ...]
    is_reentrant: bool = False
    trigger_version: int = TRIGGER_VERSION

    @property
    def identity(self) -> tuple[tuple[str, str], ...]:
        """The columns that identify rows, as SQL text with collation."""
        return self.unique[0].columns

    @cached_property
    def types(self) -> dict[str, str]:
        """The Spark SQL types by column."""
        return {column.name: column.type for column in self.columns}

    def as_table(self, source: str) -> Table:
        return Table(
            source,
            self.name,
            tuple(self.types),
            self.key,
            tuple(ForeignKey(key.columns, f"{source}.{key.references}") for key in self.foreign_keys),
            tuple(self.types.values()),
        )


def to_json(structure: Structure) -> str:
    """The text that triggers are made from, to be stored with them."""
    return json.dumps(asdict(replace(structure, foreign_keys=(), obstacles=())))


def from_json(text: str) -> Structure:
    """Reads the text that triggers were made from."""
    fields = json.loads(text)
    return Structure(
        fields["name"],
        tuple(SQLiteColumn(**each) for each in fields["columns"]),
        tuple(fields["key"]),
        tuple(
            UniqueKey(
                tuple((name, collation) for name, collation in each["columns"]),
                each["condition"],
                each.get("is_computed", False),
                tuple(each.get("when_null", ())),
            )
            for each in fields["unique"]
        ),
        (),
        fields["moved_by_parents"],
        (),
        fields.get("is_reentrant", False),
        fields.get("trigger_version", 1),
    )


def table_names(connection: sqlite3.Connection) -> tuple[str, ...]:
    """The tables that views may use: no views, nothing of SQLite's or of ours, no parts of virtual tables."""
    rows = connection.execute("SELECT name, type FROM pragma_table_list WHERE schema = 'main' ORDER BY name")
    return tuple(
        name
        for name, kind in rows
        if kind in ("table", "virtual") and not name.lower().startswith(("sqlite_", OURS))
    )


def structure_of(connection: sqlite3.Connection, name: str, renewed: bool = False) -> Structure | None:
    """The table as it is now; None if there is none. `renewed`: our triggers are about to be made again."""
    row = connection.execute(
        "SELECT name, type, wr FROM pragma_table_list WHERE schema = 'main' AND name = ? COLLATE NOCASE",
        (name,),
    ).fetchone()
    if row is None or row[1] not in ("table", "virtual"):
        return None
    name, kind, without_rowid = row
    described = [_Described(*each) for each in connection.execute(_DESCRIBE, (name,))]
    columns = tuple(SQLiteColumn(each.name, spark_type_of(each.type), each.absent) for each in described)
    key = tuple(each.name for each in sorted(described, key=lambda each: each.place) if each.place)
    unique, refused = _unique_keys(connection, name, described, bool(without_rowid))
    if kind == "virtual":
        refused = ("it is a virtual table, which cannot have triggers",)
    parents, moved = _foreign_keys(connection, name)
    triggers = owner_triggers(connection, name if renewed else "")
    reentrant = is_reentrant(connection, name, triggers)
    refused += _name_obstacles(columns) + obstacles(name, triggers)
    if reentrant:
        refused += _collation_obstacles(unique)
    return Structure(name, columns, key, unique, parents, moved, refused, reentrant)


def _unique_keys(
    connection: sqlite3.Connection, table: str, described: list[_Described], without_rowid: bool
) -> tuple[tuple[UniqueKey, ...], tuple[str, ...]]:
    keys: list[UniqueKey] = []
    found: list[str] = []
    if not without_rowid:
        taken = {column.name.lower() for column in described}
        free = [alias for alias in ("rowid", "_rowid_", "oid") if alias not in taken]
        if not free:
            found.append("columns called rowid, _rowid_ and oid hide the row's identity")
        keys.append(UniqueKey(((free[0] if free else "rowid", ""),)))
    indexes = connection.execute(
        "SELECT i.name, i.origin, s.sql FROM pragma_index_list(?) AS i LEFT JOIN sqlite_schema AS s"
        " ON s.type = 'index' AND s.name = i.name WHERE i.\"unique\" ORDER BY i.origin <> 'pk', i.name",
        (table,),
    ).fetchall()
    computed = _computed(connection, table, described)
    alias = set() if without_rowid else _rowid_alias(described)
    wider: list[UniqueKey] = []
    for index, _, sql in indexes:
        parts = connection.execute(
            "SELECT name, coll FROM pragma_index_xinfo(?) WHERE key", (index,)
        ).fetchall()
        if any(column is None for column, _ in parts):
            found.append(f"its unique index {index} is on an expression, so REPLACE cannot be followed")
            continue
        if chosen := sorted(alias & {each for name, _ in parts for each in computed.get(name, ())}):
            found.append(
                f"its unique index {index} is on a column that is computed from {chosen[0]}, which SQLite"
                " chooses too late for REPLACE to be followed"
            )
        condition = _condition_of(sql or "")
        keys.append(_key(parts, condition, computed))
        wider += _wider(parts, condition, computed, described)
    return (*keys, *wider), tuple(found)


def _key(
    parts: Iterable[tuple[str, str]],
    condition: str,
    computed: Mapping[str, set[str]],
    when_null: Iterable[str] = (),
) -> UniqueKey:
    columns = tuple((quote(column), collation) for column, collation in parts)
    is_computed = any(column in computed for column, _ in parts)
    return UniqueKey(columns, condition, is_computed, tuple(quote(column) for column in when_null))


def _wider(
    parts: list[tuple[str, str]],
    condition: str,
    computed: Mapping[str, set[str]],
    described: Iterable[_Described],
) -> Iterator[UniqueKey]:
    """The key without the columns that REPLACE fills in, or computes, from an unforeseeable default."""
    defaults = {column.name: column.absent for column in described if column.absent}
    unsure: dict[str, set[str]] = {}
    for column, _ in parts:
        if column in computed:
            unsure[column] = computed[column] & defaults.keys()
        elif column in defaults and not is_literal(defaults[column]):
            unsure[column] = {column}
    if when_null := sorted({each for found in unsure.values() for each in found}):
        rest = [part for part in parts if not unsure.get(part[0])]
        yield _key(rest, condition, computed, when_null)


def _rowid_alias(described: Iterable[_Described]) -> set[str]:
    """The column that is the rowid under another name, if there is one."""
    key = [column for column in described if column.place]
    return {column.name for column in key if len(key) == 1 and column.type.upper() == "INTEGER"}


def is_literal(default: str) -> bool:
    """Whether a default is the same whenever a statement computes it."""
    return _LITERAL.fullmatch(default) is not None


def _computed(
    connection: sqlite3.Connection, table: str, described: Iterable[_Described]
) -> dict[str, set[str]]:
    """The generated columns, each with all columns from which it is computed."""
    generated = {column.name for column in described if column.is_generated}
    if not generated:
        return {}
    names = {column.name.upper(): column.name for column in described}
    (sql,) = connection.execute(
        "SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?", (table,)
    ).fetchone()
    texts = {words[0]: words for words in map(tokens, _definitions(sql)) if words}
    used = {
        name: {names[word] for word in texts.get(name.upper(), ["", *names])[1:] if word in names}
        for name in generated
    }
    for _ in generated:
        used = {name: found.union(*(used.get(each, ()) for each in found)) for name, found in used.items()}
    return used


def _definitions(sql: str) -> list[str]:
    """The parts between the commas of CREATE TABLE."""
    depth, start = 0, 0
    found = []
    for token in TOKEN.finditer(sql):
        depth += {"(": 1, ")": -1}.get(token[0], 0)
        if depth == 1 and token[0] == "(" and not start:
            start = token.end()
        elif start and ((depth == 1 and token[0] == ",") or (depth == 0 and token[0] == ")")):
            found.append(sql[start : token.start()])
            start = token.end()
    return found


def _condition_of(sql: str) -> str:
    """The condition of a partial index: what follows WHERE outside of all brackets."""
    depth = 0
    for token in TOKEN.finditer(sql):
        depth += {"(": 1, ")": -1}.get(token[0], 0)
        if depth == 0 and token[0].upper() == "WHERE":
            return sql[token.end() :].strip()
    return ""


def _foreign_keys(connection: sqlite3.Connection, name: str) -> tuple[tuple[ForeignKey, ...], bool]:
    rows = connection.execute(
        'SELECT id, "table", "from", "to", on_update, on_delete FROM pragma_foreign_key_list(?)'
        " ORDER BY id, seq",
        (name,),
    ).fetchall()
    found = []
    for number in dict.fromkeys(row[0] for row in rows):
        pairs = [row for row in rows if row[0] == number]
        parent = connection.execute(
            "SELECT name FROM pragma_table_list WHERE schema = 'main' AND name = ? COLLATE NOCASE",
            (pairs[0][1],),
        ).fetchone()
        if parent is None:
            continue
        described = connection.execute(
            "SELECT name FROM pragma_table_xinfo(?) WHERE pk ORDER BY pk", parent
        ).fetchall()
        key = [column.lower() for (column,) in described]
        # Without a column list the parent's key is meant, in its order.
        own = {(row[3] or key[i]).lower(): row[2] for i, row in enumerate(pairs) if row[3] or i < len(key)}
        if len(own) == len(pairs) and set(own) == set(key):
            found.append(ForeignKey(tuple(own[column] for column in key), parent[0]))
    moved = any(
        row[4] not in ("NO ACTION", "RESTRICT") or row[5] in ("SET NULL", "SET DEFAULT") for row in rows
    )
    return tuple(found), moved


def _name_obstacles(columns: tuple[SQLiteColumn, ...]) -> tuple[str, ...]:
    clashing = [
        column.name
        for column in columns
        if column.name.lower() in _RESERVED or column.name.lower().startswith(OURS)
    ]
    found = [f"its column {name} has a name that rollview reserves" for name in clashing]
    if len(columns) > _MOST_COLUMNS:
        found.append(f"it has {len(columns)} columns; {_MOST_COLUMNS} are possible")
    return tuple(found)


def _collation_obstacles(unique: Iterable[UniqueKey]) -> tuple[str, ...]:
    foreign = {collation for key in unique for _, collation in key.columns if collation not in BUILT_IN}
    return tuple(
        f"its rows can be written while one is replaced, and the collation {collation} is not SQLite's own"
        for collation in sorted(foreign)
    )
