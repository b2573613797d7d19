"""Statements of the binary log: which of them change captured tables without logging the rows.

Rows are logged as rows, so a statement in the log is a change of the schema, an end of a transaction, or data
changed under `binlog_format=STATEMENT`. The first may leave a captured table as it was (an index), the last
cannot be followed. In doubt a statement counts as a change: capture then stops with an error, which is better
than to go on with wrong rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from rollview.sources.mariadb.registered import Registered

_TOKEN = re.compile(
    r"/\*(?!M?!).*?\*/|/\*M?!\d*|\*/|--[ \t][^\n]*|#[^\n]*|`(?:[^`]|``)*`|'(?:[^'\\]|\\.|'')*'"
    r'|"(?:[^"\\]|\\.|"")*"|[\w$]+|\S',
    re.DOTALL,
)
_DATA = frozenset({"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "WITH", "DO"})
_CHANGING = frozenset({"ALTER", "DROP", "TRUNCATE", "RENAME", "CREATE"})
_SWAPPING = frozenset({"EXCHANGE", "CONVERT", "RENAME"})
_HARMLESS_CLAUSES = (
    ("ADD", "INDEX"),
    ("ADD", "KEY"),
    ("ADD", "UNIQUE"),
    ("ADD", "FULLTEXT"),
    ("ADD", "SPATIAL"),
    ("DROP", "INDEX"),
    ("DROP", "KEY"),
    ("RENAME", "INDEX"),
    ("RENAME", "KEY"),
    ("COMMENT",),
    ("AUTO_INCREMENT",),
    ("FORCE",),
    ("ALGORITHM",),
    ("LOCK",),
    ("ENABLE", "KEYS"),
    ("DISABLE", "KEYS"),
    ("ENGINE", "INNODB"),
    ("ENGINE", "=", "INNODB"),
    ("STATS_PERSISTENT",),
    ("STATS_AUTO_RECALC",),
)


class Meaning(Enum):
    """What a statement is to capture."""

    NOTHING = "nothing"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    CHANGED = "changed"
    EMPTIED = "emptied"
    UNLOGGED = "unlogged"


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

    def named(self, tokens: list[str]) -> str:
        """The first captured table that a statement names."""
        names = _names(tokens)
        return next((found for place in range(len(names)) if (found := self.at(names, place))), "")

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


def meaning_of(
    statement: str, current: str, database: str, tables: Mapping[str, Registered]
) -> tuple[Meaning, str]:
    """What a statement, run in the database `current`, is to the capture of `tables`; and the table meant."""
    scope = _Scope(current.lower(), database.lower(), {name.lower(): name for name in tables})
    tokens = tokens_of(statement)
    if [token.upper() for token in tokens[:2]] == ["SET", "STATEMENT"]:
        words = [token.upper() for token in tokens]
        tokens = tokens[words.index("FOR") + 1 :] if "FOR" in words else tokens
    first = tokens[0].upper() if tokens else ""
    if first in ("COMMIT", "ROLLBACK") and len(tokens) == 1:
        return (Meaning.COMMIT if first == "COMMIT" else Meaning.ROLLBACK), ""
    if first in _CHANGING:
        return _schema_change(tokens, scope, tables)
    if first in _DATA:
        # Triggers may do more than the statement says, so that it is enough to be near.
        named = scope.named(tokens)
        if named or scope.current == scope.database or scope.database in _names(tokens):
            return Meaning.UNLOGGED, named
    return Meaning.NOTHING, ""


def _schema_change(tokens: list[str], scope: _Scope, tables: Mapping[str, Registered]) -> tuple[Meaning, str]:
    words = [token.upper() for token in tokens]
    kind, named = words[0], scope.named(tokens)
    target = scope.target(tokens)
    if kind == "DROP" and words[1] in ("DATABASE", "SCHEMA"):
        return (Meaning.CHANGED, "") if scope.database in _names(tokens) else (Meaning.NOTHING, "")
    if not named or "TEMPORARY" in words[1:4]:
        return Meaning.NOTHING, ""
    if kind == "TRUNCATE":
        return Meaning.EMPTIED, named
    if kind == "DROP" and words[1] == "INDEX":
        return _unless_key_stays(tables[named])
    if (kind == "DROP" and words[1] in ("TABLE", "TABLES")) or (kind == "RENAME" and words[1] != "USER"):
        return Meaning.CHANGED, named
    if kind == "CREATE" and target and words[1:4] == ["OR", "REPLACE", "TABLE"]:
        return Meaning.CHANGED, target
    if kind == "ALTER" and "TABLE" in words[:4]:
        if target:
            return _alteration(words, tables[target])
        # Another table may take the place of a captured one, or its partitions.
        return (Meaning.CHANGED, named) if _SWAPPING.intersection(words) else (Meaning.NOTHING, "")
    return Meaning.NOTHING, ""


def _alteration(words: list[str], table: Registered) -> tuple[Meaning, str]:
    """An ALTER of a captured table: harmless only if each of its clauses is known to be so."""
    if "IGNORE" in words[:3]:
        return Meaning.CHANGED, table.name
    clauses = _clauses(words[words.index("TABLE") + 1 :])
    if not all(any(clause[: len(known)] == list(known) for known in _HARMLESS_CLAUSES) for clause in clauses):
        return Meaning.CHANGED, table.name
    if any(clause[0] == "DROP" for clause in clauses):
        return _unless_key_stays(table)
    return Meaning.NOTHING, ""


def _unless_key_stays(table: Registered) -> tuple[Meaning, str]:
    """An index goes: no matter, as long as rows are told apart by the primary key, or by none."""
    stays = table.key_name in ("", "PRIMARY")
    return (Meaning.NOTHING, "") if stays else (Meaning.CHANGED, table.name)


def _clauses(words: list[str]) -> list[list[str]]:
    """The clauses after the table's name, which may be `database.table` and follow IF EXISTS."""
    if words[:2] == ["IF", "EXISTS"]:
        words = words[2:]
    words = words[3:] if words[1:2] == ["."] else words[1:]
    clauses: list[list[str]] = [[]]
    depth = 0
    for word in words:
        depth += {"(": 1, ")": -1}.get(word, 0)
        if word == "," and depth == 0:
            clauses.append([])
        elif word != ";":
            clauses[-1].append(word)
    return clauses


def _names(tokens: list[str]) -> list[str]:
    return [
        token[1:-1].replace(token[0] * 2, token[0]).lower() if token[0] in '`"' else token.lower()
        for token in tokens
    ]
