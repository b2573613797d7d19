"""What a SQLite table is, as far as capture must know: columns, identity, and all its unique keys.

REPLACE deletes whatever collides with the new row on any unique key, so all of them must be known: the
rowid, the primary key, unique constraints, and unique indexes with their collations and conditions.
"""

from __future__ import annotations

import json
import re
import sqlite3
from dataclasses import asdict, dataclass, replace
from functools import cached_property

from rollview.sources.source import COUNT, CSN, ForeignKey, Table
from rollview.sources.sqlite.connection import quote
from rollview.sources.sqlite.types import spark_type_of

OURS = "_rollview"
"""How the name of everything begins that setup leaves in a database."""

_RESERVED = (COUNT, CSN)
_MOST_COLUMNS = 900
_TOKEN = re.compile(
    r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`(?:[^`]|``)*`|\[[^\]]*\]|--[^\n]*|/\*.*?\*/|\w+|.", re.DOTALL
)


@dataclass(frozen=True)
class SQLiteColumn:
    """A column: `absent` is what NULL turns into when a row is written by REPLACE, as SQL; mostly empty."""

    name: str
    type: str
    absent: str = ""


@dataclass(frozen=True)
class UniqueKey:
    """Columns, as SQL text with the collation that decides whether two values collide.

    `condition` is that of a partial index.
    """

    columns: tuple[tuple[str, str], ...]
    condition: str = ""


@dataclass(frozen=True)
class Structure:
    """A table. `identity` is its rowid, or its primary key where it has none; it comes first in `unique`.

    `moved_by_parents` says that a foreign key's action can update its rows. `obstacles` are the reasons
    why it cannot be captured.
    """

    name: str
    columns: tuple[SQLiteColumn, ...]
    key: tuple[str, ...]
    unique: tuple[UniqueKey, ...]
    foreign_keys: tuple[ForeignKey, ...]
    moved_by_parents: bool
    obstacles: tuple[str, ...]

    @property
    def identity(self) -> tuple[tuple[str, str], ...]:
        """The columns that tell rows apart, as SQL text with collation."""
        return self.unique[0].columns

    @cached_property
    def types(self) -> dict[str, str]:
        """The Spark SQL types by column."""
        return {column.name: column.type for column in self.columns}

    def as_table(self, source: str) -> Table:
        """The table as views know it."""
        return Table(
            source,
            self.name,
            tuple(self.types),
            self.key,
            tuple(ForeignKey(key.columns, f"{source}.{key.references}") for key in self.foreign_keys),
            tuple(self.types.values()),
        )


def to_json(structure: Structure) -> str:
    """What triggers are made from, to be kept beside them."""
    return json.dumps(asdict(replace(structure, foreign_keys=(), obstacles=())))


def from_json(text: str) -> Structure:
    """What triggers were made from."""
    fields = json.loads(text)
    return Structure(
        fields["name"],
        tuple(SQLiteColumn(**each) for each in fields["columns"]),
        tuple(fields["key"]),
        tuple(
            UniqueKey(tuple((name, collation) for name, collation in each["columns"]), each["condition"])
            for each in fields["unique"]
        ),
        (),
        fields["moved_by_parents"],
        (),
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
    described = connection.execute(
        'SELECT name, type, "notnull", dflt_value, pk FROM pragma_table_xinfo(?) WHERE hidden <> 1', (name,)
    ).fetchall()
    columns = tuple(
        SQLiteColumn(each[0], spark_type_of(each[1]), each[3] if each[2] and each[3] else "")
        for each in described
    )
    key = tuple(each[0] for each in sorted(described, key=lambda each: int(each[4])) if each[4])
    unique, obstacles = _unique_keys(connection, name, columns, bool(without_rowid))
    if kind == "virtual":
        obstacles = ("it is a virtual table, which cannot have triggers",)
    parents, moved = _foreign_keys(connection, name)
    obstacles += _name_obstacles(columns) + _trigger_obstacles(connection, name, renewed)
    return Structure(name, columns, key, unique, parents, moved, obstacles)


def _unique_keys(
    connection: sqlite3.Connection, name: str, columns: tuple[SQLiteColumn, ...], without_rowid: bool
) -> tuple[tuple[UniqueKey, ...], tuple[str, ...]]:
    keys: list[UniqueKey] = []
    obstacles: list[str] = []
    if not without_rowid:
        taken = {column.name.lower() for column in columns}
        free = [alias for alias in ("rowid", "_rowid_", "oid") if alias not in taken]
        if not free:
            obstacles.append("columns called rowid, _rowid_ and oid hide the row's identity")
        keys.append(UniqueKey(((free[0] if free else "rowid", ""),)))
    indexes = connection.execute(
        "SELECT i.name, i.origin, s.sql FROM pragma_index_list(?) AS i LEFT JOIN sqlite_schema AS s"
        " ON s.type = 'index' AND s.name = i.name WHERE i.\"unique\" ORDER BY i.origin <> 'pk', i.name",
        (name,),
    ).fetchall()
    for index, _, sql in indexes:
        parts = connection.execute(
            "SELECT name, coll FROM pragma_index_xinfo(?) WHERE key", (index,)
        ).fetchall()
        if any(column is None for column, _ in parts):
            obstacles.append(f"its unique index {index} is on an expression, so REPLACE cannot be followed")
            continue
        keys.append(
            UniqueKey(tuple((quote(column), coll) for column, coll in parts), _condition_of(sql or ""))
        )
    return tuple(keys), tuple(obstacles)


def _condition_of(sql: str) -> str:
    """The condition of a partial index: what follows WHERE outside of all brackets."""
    depth = 0
    for token in _TOKEN.finditer(sql):
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


def _trigger_obstacles(connection: sqlite3.Connection, name: str, renewed: bool) -> tuple[str, ...]:
    """Triggers of the owner that could make ours miss something.

    RAISE(IGNORE) and RAISE(FAIL) in an AFTER trigger keep the row and skip the triggers that follow. A
    trigger that writes its own table
    must not run between our noting which rows a REPLACE may delete and our logging of those that are gone.
    SQLite runs the youngest trigger first: so no BEFORE trigger may do so, and no AFTER trigger younger
    than ours. Triggers of ours that are renewed will be the youngest of all.
    """
    rows = connection.execute(
        "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = ? COLLATE NOCASE"
        " ORDER BY rowid",
        (name,),
    )
    found = []
    younger = False
    for trigger, sql in rows:
        if trigger.lower().startswith(OURS):
            younger = not renewed
            continue
        tokens = [token.strip('"`[]').upper() for token in _TOKEN.findall(sql) if not _is_blank(token)]
        body = tokens[tokens.index("BEGIN") :] if "BEGIN" in tokens else tokens
        after = "AFTER" in tokens[: len(tokens) - len(body)]
        for action in ("IGNORE", "FAIL"):
            if after and _follows(body, "RAISE", "(", action):
                found.append(
                    f"its trigger {trigger} raises {action} after a change, which keeps the row but skips"
                    " other triggers"
                )
        if _writes(body, name.upper()) and (younger or not after):
            found.append(f"its trigger {trigger} writes the table itself while a row is being replaced")
    return tuple(found)


def _writes(tokens: list[str], table: str) -> bool:
    policies = ("REPLACE", "IGNORE", "ABORT", "FAIL", "ROLLBACK")
    updates = (("UPDATE",), *(("UPDATE", "OR", policy) for policy in policies))
    return _follows(tokens, "INTO", table) or any(_follows(tokens, *update, table) for update in updates)


def _is_blank(token: str) -> bool:
    return not token.strip() or token.startswith(("--", "/*"))


def _follows(tokens: list[str], *wanted: str) -> bool:
    width = len(wanted)
    return any(tuple(tokens[i : i + width]) == wanted for i in range(len(tokens) - width + 1))
