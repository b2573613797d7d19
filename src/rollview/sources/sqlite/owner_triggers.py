"""Changes that follow from those of a table: by triggers of its owner, and by actions of foreign keys.

Capture notes, before a row is written, which other rows REPLACE may delete, and looks afterwards which of
them are gone. Changes of the owner's triggers and foreign keys to the same table in between decide how that
must be done, and whether it can be. A statement's text says which tables it writes. What it does to their
rows is not looked at, so a table may count as reached although it never is.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

OURS = "_rollview"
"""How the name of everything begins that setup leaves in a database."""

Edge = tuple[str, str]
"""A table, and one that may be written when it is; in capital letters."""

TOKEN = re.compile(
    r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`(?:[^`]|``)*`|\[[^\]]*\]|--[^\n]*|/\*.*?\*/"
    r"|[\w$\u0080-\U0010ffff]+|.",
    re.DOTALL,
)
_POLICIES = ("REPLACE", "IGNORE", "ABORT", "FAIL", "ROLLBACK")


@dataclass(frozen=True)
class OwnerTrigger:
    """A trigger of the owner. `younger` says that it was created after ours, and so runs before them."""

    name: str
    table: str
    is_after: bool
    younger: bool
    body: tuple[str, ...]

    @property
    def changed(self) -> frozenset[str]:
        """The tables that it inserts into or updates."""
        found: set[str] = set()
        for i, token in enumerate(self.body):
            rest = self.body[i + 1 : i + 4]
            if token == "UPDATE" and rest[:1] == ("OR",) and set(rest[1:2]) <= set(_POLICIES):
                found.update(rest[2:3])
            elif token in ("UPDATE", "INTO"):
                found.update(rest[:1])
        return frozenset(found)

    @property
    def emptied(self) -> frozenset[str]:
        """The tables that it deletes from."""
        return frozenset(
            table for verb, word, table in _triples(self.body) if (verb, word) == ("DELETE", "FROM")
        )

    @property
    def written(self) -> frozenset[str]:
        return self.changed | self.emptied

    def raises(self, action: str) -> bool:
        return ("RAISE", "(", action) in _triples(self.body)


def _triples(words: Sequence[str]) -> set[tuple[str, str, str]]:
    return set(zip(words, words[1:], words[2:], strict=False))


def owner_triggers(connection: sqlite3.Connection, renewed: str = "") -> tuple[OwnerTrigger, ...]:
    """All triggers of the owner. Ours on the table `renewed` are about to be the youngest of all."""
    rows = connection.execute(
        "SELECT name, tbl_name, sql FROM sqlite_schema WHERE type = 'trigger' ORDER BY rowid"
    )
    found = []
    seen: set[str] = set()
    for name, table, sql in rows:
        upper = table.upper()
        if name.lower().startswith(OURS):
            seen.add(upper)
            continue
        words = tokens(sql)
        begin = words.index("BEGIN") if "BEGIN" in words else 0
        younger = upper in seen and upper != renewed.upper()
        found.append(OwnerTrigger(name, upper, "AFTER" in words[:begin], younger, tuple(words[begin:])))
    return tuple(found)


def tokens(sql: str) -> list[str]:
    """The words and signs of a statement in capital letters, names without their quotes, no comments."""
    found = (
        token
        for token in TOKEN.findall(sql)
        if token.strip(" \t\n\f\r") and not token.startswith(("--", "/*"))
    )
    return [_unquoted(token).upper() for token in found]


def _unquoted(token: str) -> str:
    """A name without its quotes. A text may stand for a name as well."""
    if len(token) < 2 or token[0] not in "\"'`[":
        return token
    return token[1:-1].replace(2 * token[0], token[0])


def _actions(connection: sqlite3.Connection) -> list[Edge]:
    """Parent and child of every foreign key with an action."""
    rows = connection.execute(
        'SELECT f."table", s.name FROM sqlite_schema AS s, pragma_foreign_key_list(s.name) AS f'
        " WHERE s.type = 'table' AND NOT (f.on_update IN ('NO ACTION', 'RESTRICT')"
        " AND f.on_delete IN ('NO ACTION', 'RESTRICT'))"
    )
    return [(parent.upper(), child.upper()) for parent, child in rows]


def _reached(start: Iterable[str], edges: Iterable[Edge]) -> set[str]:
    """These tables, and all others that a write to them may bring about a write to."""
    written: dict[str, set[str]] = {}
    for table, other in edges:
        written.setdefault(table, set()).add(other)
    seen: set[str] = set()
    todo = set(start)
    while todo:
        seen |= todo
        todo = {other for table in todo for other in written.get(table, ())} - seen
    return seen


def _edges(triggers: Iterable[OwnerTrigger]) -> list[Edge]:
    return [(trigger.table, other) for trigger in triggers for other in trigger.written]


def obstacles(name: str, triggers: Sequence[OwnerTrigger]) -> tuple[str, ...]:
    """Triggers of the owner that make ours miss something.

    RAISE(IGNORE) and RAISE(FAIL) in an AFTER trigger keep the row and skip the triggers that follow. A
    trigger that writes its own table must not run between our noting which rows a REPLACE may delete and our
    logging of those that are gone. SQLite runs the youngest trigger first: so no BEFORE trigger may do so,
    and no AFTER trigger younger than ours, not through other triggers either.
    """
    found = []
    for trigger in triggers:
        if trigger.table != name.upper():
            continue
        for action in ("IGNORE", "FAIL"):
            if trigger.is_after and trigger.raises(action):
                found.append(
                    f"its trigger {trigger.name} raises {action} after a change, which keeps the row but"
                    " skips other triggers"
                )
        direct = name.upper() in trigger.changed
        through = trigger.is_after and name.upper() in _reached(
            trigger.written - {trigger.table}, _edges(triggers)
        )
        if (direct and not trigger.is_after) or (trigger.younger and (direct or through)):
            found.append(f"its trigger {trigger.name} writes the table itself while a row is being replaced")
    return tuple(found)


def is_reentrant(connection: sqlite3.Connection, name: str, triggers: Sequence[OwnerTrigger]) -> bool:
    """Whether the table may be written between our BEFORE and our AFTER triggers on one of its rows.

    Foreign keys' actions run there, and older BEFORE triggers of the owner. Or the statement may fail there,
    and keep what it has done (FAIL), so that our AFTER triggers do not run.
    """
    own = [trigger for trigger in triggers if trigger.table == name.upper() and not trigger.is_after]
    actions = _actions(connection)
    edges = [*_edges(triggers), *actions]
    children = {child for parent, child in actions if parent == name.upper()}
    if name.upper() in _reached(children.union(*(each.written for each in own)), edges):
        return True
    below = _reached(children, edges)
    return any(trigger.table in below and "FAIL" in trigger.body for trigger in triggers) or any(
        "FAIL" in tokens(sql)
        for table, sql in connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'table'")
        if table.upper() in below
    )
