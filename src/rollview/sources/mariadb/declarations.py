"""Tables as the server declares them: the text of SHOW CREATE TABLE, of many tables in one round trip.

The text holds all that makes a table what it is, and whoever may read a table may read it. The views of
`information_schema` are not like that: to an account that may only read, `referential_constraints` is empty.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pymysql

_DENIED = 1142
_GONE_OR_DENIED = frozenset({_DENIED, 1146, 1356, 1932})
_COUNTER = re.compile(r"(\n\).*?) AUTO_INCREMENT=\d+", re.DOTALL)
_NAME = r"`((?:[^`]|``)+)`"
_FOREIGN_KEY = re.compile(
    rf"^  CONSTRAINT {_NAME} FOREIGN KEY \((.+?)\) REFERENCES (?:{_NAME}\.)?{_NAME} \((.+?)\)"
    r"((?: ON (?:DELETE|UPDATE) (?:RESTRICT|CASCADE|SET NULL|NO ACTION|SET DEFAULT))*),?$",
    re.MULTILINE,
)
_SILENT_ACTIONS = ("CASCADE", "SET NULL", "SET DEFAULT")


@dataclass(frozen=True)
class DeclaredForeignKey:
    """A foreign key; `database` is empty for the table's own. `actions` are as they are written, if any."""

    name: str
    columns: tuple[str, ...]
    database: str
    parent: str
    parent_columns: tuple[str, ...]
    actions: str

    @property
    def writes_silently(self) -> bool:
        """Whether it changes rows of its table, which the binary log then does not tell."""
        return any(action in self.actions for action in _SILENT_ACTIONS)


def quote(name: str) -> str:
    """An identifier as SQL text."""
    return "`" + name.replace("`", "``") + "`"


def declarations(cursor: Any, names: Iterable[str]) -> dict[str, str]:
    """The declarations of tables, without those that are gone or that we may not see."""
    wanted = list(names)
    if not wanted:
        return {}
    try:
        return _shown(cursor, wanted)
    except pymysql.err.MySQLError as error:
        if error.args[0] not in _GONE_OR_DENIED:
            raise
    # The first one that is missing has ended it.
    found: dict[str, str] = {}
    if len(wanted) > 1:
        for name in wanted:
            found |= declarations(cursor, [name])
    return found


def is_forbidden(cursor: Any, name: str) -> bool:
    """Whether we may not see a table: then nobody can say whether it is there."""
    try:
        _shown(cursor, [name])
    except pymysql.err.MySQLError as error:
        if error.args[0] not in _GONE_OR_DENIED:
            raise
        return bool(error.args[0] == _DENIED)
    return False


def _shown(cursor: Any, names: Sequence[str]) -> dict[str, str]:
    shows = " ".join(f"SHOW CREATE TABLE {quote(name)};" for name in names)
    cursor.execute(f"BEGIN NOT ATOMIC {shows} END")
    found = {}
    for name in names:
        ((_, text, *_),) = cursor.fetchall()
        # The counter moves with every insertion.
        found[name] = _COUNTER.sub(r"\1", text)
        cursor.nextset()
    return found


def foreign_keys_of(declaration: str) -> tuple[DeclaredForeignKey, ...]:
    """The foreign keys that a declaration holds."""
    return tuple(
        DeclaredForeignKey(
            _unquoted(name),
            _names(columns),
            _unquoted(database),
            _unquoted(parent),
            _names(referenced),
            actions.strip(),
        )
        for name, columns, database, parent, referenced, actions in _FOREIGN_KEY.findall(declaration)
    )


def _names(text: str) -> tuple[str, ...]:
    return tuple(map(_unquoted, re.findall(_NAME, text)))


def _unquoted(name: str) -> str:
    return name.replace("``", "`")
