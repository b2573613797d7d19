"""Statements of the binary log: which of them change captured tables without logging the rows.

Rows are logged as rows, so a statement in the log is a change of the schema, an end of a transaction, or data
changed under `binlog_format=STATEMENT`. The first may leave a captured table as it was (an index), the last
cannot be followed. In doubt a statement counts as a change: the table then stops with an error, which is
better than to go on with wrong rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from rollview.sources.mariadb.alterations import alteration_damage, key_damage, plain
from rollview.sources.mariadb.damage import Damage
from rollview.sources.mariadb.events import LoggedStatement
from rollview.sources.mariadb.registered import Registered

_TOKEN = re.compile(
    r"/\*(?!M?!).*?\*/|/\*M?!\d*|\*/|--[ \t][^\n]*|#[^\n]*|`(?:[^`]|``)*`|'(?:[^'\\]|\\.|'')*'"
    r'|"(?:[^"\\]|\\.|"")*"|[\w$]+|\S',
    re.DOTALL,
)
# A SELECT is logged only if it calls a function that writes.
_DATA = frozenset({"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "WITH", "DO", "SELECT"})
_CHANGING = frozenset({"ALTER", "DROP", "TRUNCATE", "RENAME", "CREATE"})
_SWAPPING = frozenset({"EXCHANGE", "CONVERT", "RENAME"})


class End(Enum):
    """How a statement ends a transaction."""

    COMMIT = "commit"
    ROLLBACK = "rollback"


@dataclass(frozen=True)
class Meaning:
    """What a statement is to capture: an end of its transaction, or damage by captured table."""

    end: End | None = None
    damage: Mapping[str, Damage] = field(default_factory=dict)


@dataclass(frozen=True)
class _Scope:
    """Names, all in lower case: where a statement runs, what is captured of which database."""

    current: str
    database: str
    captured: Mapping[str, str]

    def at(self, names: list[str], place: int) -> str:
        """The captured table that the name at a place means; empty if it means none."""
        qualified = place > 1 and names[place - 1] == "."
        owner = names[place - 2] if qualified else self.current
        return self.captured.get(names[place], "") if owner == self.database else ""

    def named(self, tokens: list[str]) -> list[str]:
        """The captured tables that a statement names."""
        names = _names(tokens)
        places = (place for place in range(len(names)) if names[place + 1 : place + 2] != ["."])
        return list(dict.fromkeys(found for place in places if (found := self.at(names, place))))

    def target(self, tokens: list[str]) -> str:
        """The captured table that stands behind the word TABLE."""
        names = _names(tokens)
        if "table" not in names:
            return ""
        place = names.index("table") + 1
        while names[place : place + 1] in (["if"], ["not"], ["exists"]):
            place += 1
        if names[place + 1 : place + 2] == ["."]:
            place += 2
        return self.at(names, place) if place < len(names) else ""


def tokens_of(statement: str) -> list[str]:
    """The statement's words and signs without comments; conditional comments count as what they contain."""
    return [
        token
        for token in _TOKEN.findall(statement)
        if not token.startswith(("/*", "--", "#")) and token != "*/"
    ]


def defines_tables(statement: str) -> bool:
    """Whether a statement makes tables, takes them away, or makes something else of them."""
    words = [token.upper() for token in tokens_of(statement)[:4]]
    if words[:2] == ["SET", "STATEMENT"]:
        return True
    return bool(words) and words[0] in _CHANGING and "TEMPORARY" not in words[1:]


def meaning_of(statement: LoggedStatement, database: str, tables: Mapping[str, Registered]) -> Meaning:
    """What a statement is to the capture of `tables` of a database."""
    scope = _Scope(statement.database.lower(), database.lower(), {name.lower(): name for name in tables})
    tokens = tokens_of(statement.text)
    if [token.upper() for token in tokens[:2]] == ["SET", "STATEMENT"]:
        words = [token.upper() for token in tokens]
        tokens = tokens[words.index("FOR") + 1 :] if "FOR" in words else tokens
    first = tokens[0].upper() if tokens else ""
    if first in ("COMMIT", "ROLLBACK") and len(tokens) == 1:
        return Meaning(End.COMMIT if first == "COMMIT" else End.ROLLBACK)
    if first in _CHANGING:
        return Meaning(damage=_schema_damage(tokens, scope, tables, statement.strict))
    if first in _DATA:
        return Meaning(damage=_data_damage(tokens, scope))
    return Meaning()


def _data_damage(tokens: list[str], scope: _Scope) -> dict[str, Damage]:
    """Rows written by a statement: triggers may do more than it says, so that it is enough to be near."""
    named = scope.named(tokens)
    if not named and scope.current != scope.database and scope.database not in _names(tokens):
        return {}
    return {
        table: Damage(
            "it was written with binlog_format=STATEMENT"
            if table in named
            else "triggers may have written it with binlog_format=STATEMENT"
        )
        for table in scope.captured.values()
    }


def _schema_damage(
    tokens: list[str], scope: _Scope, tables: Mapping[str, Registered], strict: bool
) -> dict[str, Damage]:
    words = [token.upper() for token in tokens]
    kind, named = words[0], scope.named(tokens)
    target = scope.target(tokens)
    if kind == "DROP" and words[1] in ("DATABASE", "SCHEMA"):
        return _all(tables, "its database was dropped") if scope.database in _names(tokens) else {}
    if not named or "TEMPORARY" in words[1:4]:
        return {}
    if kind == "TRUNCATE":
        # It is a transaction of its own.
        emptied = Damage("it was emptied without logging its rows", is_truncate=True, leaves_empty=True)
        return dict.fromkeys(named, emptied)
    if kind == "DROP" and words[1] == "INDEX":
        place = 4 if words[2:4] == ["IF", "EXISTS"] else 2
        return _found({name: key_damage(plain(tokens[place]), tables[name]) for name in named})
    if kind == "DROP" and words[1] in ("TABLE", "TABLES"):
        return _all(named, "it was dropped")
    if kind == "RENAME" and words[1] != "USER":
        return _all(named, "it was renamed, or another table got its name")
    if kind == "CREATE" and target and words[1:4] == ["OR", "REPLACE", "TABLE"]:
        return {target: Damage("it was replaced by another table")}
    if kind == "ALTER" and "TABLE" in words[:4]:
        if target:
            damage = alteration_damage(tokens, tables[target], strict)
            # With EXCHANGE PARTITION another captured table may lose its rows, too.
            others = [name for name in named if name != target] if "EXCHANGE" in words else []
            exchanged = Damage("its rows were exchanged for others", is_truncate=True)
            return _found({target: damage, **dict.fromkeys(others, exchanged)})
        # Another table may take the place of a captured one, or its partitions.
        return _all(named, "another table took its place") if _SWAPPING.intersection(words) else {}
    return {}


def _all(names: Iterable[str], reason: str) -> dict[str, Damage]:
    return dict.fromkeys(names, Damage(reason))


def _found(damages: Mapping[str, Damage | None]) -> dict[str, Damage]:
    return {name: damage for name, damage in damages.items() if damage is not None}


def _names(tokens: list[str]) -> list[str]:
    return [plain(token) for token in tokens]
