"""Statements of the binary log: which of them change captured tables without logging the rows.

Rows are logged as rows, so a statement in the log is a change of the schema, an end of a transaction, or data
changed under `binlog_format=STATEMENT`. The first may leave a captured table as it was (an index), the last
cannot be followed. In doubt a statement counts as a change: the table then stops with an error, which is
better than to continue with wrong rows.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import product

from rollview.ascii_text import upper_letters
from rollview.sources.mariadb.binlog.alterations import alteration_damage, exact, folded, key_damage, plain
from rollview.sources.mariadb.binlog.damage import Damage
from rollview.sources.mariadb.binlog.events import LoggedStatement
from rollview.sources.mariadb.registered import Registered

_ESCAPED, _PLAIN = r"'(?:[^'\\]|\\.|'')*'", r"'(?:[^']|'')*'"


def _tokens_when(escapes: bool, ansi_quotes: bool) -> re.Pattern[str]:
    """Where a token ends depends on the session: its quotes, and what a backslash is in them."""
    text = _ESCAPED if escapes else _PLAIN
    name = (_PLAIN if ansi_quotes else text).replace("'", '"')
    return re.compile(
        r"/\*(?!M?!).*?\*/|/\*M?![0-9]*|\*/|--[ \t][^\n]*|#[^\n]*|`(?:[^`]|``)*`|"
        rf"{text}|{name}|[\w$\u0080-\U0010ffff]+|[^ \t\n\v\f\r]",
        re.DOTALL,
    )


_TOKENS = {modes: _tokens_when(*modes) for modes in product((True, False), repeat=2)}
# A SELECT is logged only if it calls a function that writes.
_DATA = frozenset({"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "WITH", "DO", "SELECT"})
_CHANGING = frozenset({"ALTER", "DROP", "TRUNCATE", "RENAME", "CREATE"})
# Words that name a table only in quotes, or behind the name of a database.
_RESERVED = frozenset(
    {
        *("ADD", "ALTER", "AS", "BY", "CHANGE", "CHECK", "COLUMN", "CONSTRAINT", "CONVERT", "CREATE"),
        *("DEFAULT", "DELETE", "DROP", "EXISTS", "FOR", "FOREIGN", "FROM", "IF", "IGNORE", "IN", "INDEX"),
        *("INSERT", "INTO", "IS", "JOIN", "KEY", "KEYS", "LIKE", "LIMIT", "NOT", "NULL", "ON", "OPTIMIZE"),
        *("OR", "ORDER", "PARTITION", "PRIMARY", "REFERENCES", "RENAME", "REPLACE", "SELECT", "SET", "TABLE"),
        *("TO", "TRIGGER", "UNIQUE", "UPDATE", "USING", "VALUES", "WHERE", "WITH"),
    }
)
_SWAPPING = frozenset({"EXCHANGE", "CONVERT", "RENAME"})


class End(Enum):
    """How a statement ends a transaction."""

    COMMIT = "commit"
    ROLLBACK = "rollback"


@dataclass(frozen=True)
class Meaning:
    """The effect of a statement on capture: an end of its transaction, or damage by captured table."""

    end: End | None = None
    damage: Mapping[str, Damage] = field(default_factory=dict)


@dataclass(frozen=True)
class _Scope:
    """Where a statement runs, what is captured of which database, and whether case matters in these names."""

    current: str
    database: str
    captured: Collection[str]
    any_case: bool

    def at(self, tokens: list[str], place: int) -> str:
        """The captured table that the name at a place means; empty if it means none.

        A name that is written so means the table of that name; where case does not matter, it may also mean
        one that differs in case.
        """
        qualified = place > 1 and tokens[place - 1] == "."
        owner = exact(tokens[place - 2]) if qualified else self.current
        is_word = not qualified and upper_letters(tokens[place]) in _RESERVED
        if is_word or not self.is_same(owner, self.database):
            return ""
        if (name := exact(tokens[place])) in self.captured:
            return name
        return next((each for each in self.captured if self.is_same(each, name)), "")

    def names_database(self, tokens: list[str]) -> bool:
        return any(self.is_same(exact(token), self.database) for token in tokens)

    def is_same(self, name: str, other: str) -> bool:
        return name == other or (self.any_case and folded(name) == folded(other))

    def named(self, tokens: list[str]) -> list[str]:
        """The captured tables that a statement names."""
        places = (place for place in range(len(tokens)) if tokens[place + 1 : place + 2] != ["."])
        return list(dict.fromkeys(found for place in places if (found := self.at(tokens, place))))

    def target(self, tokens: list[str]) -> str:
        """The captured table after the word TABLE."""
        words = [upper_letters(token) for token in tokens]
        if "TABLE" not in words:
            return ""
        place = words.index("TABLE") + 1
        while words[place : place + 1] in (["IF"], ["NOT"], ["EXISTS"]):
            place += 1
        if tokens[place + 1 : place + 2] == ["."]:
            place += 2
        return self.at(tokens, place) if place < len(tokens) else ""


def tokens_of(statement: LoggedStatement) -> list[str]:
    """The statement's words and signs without comments; conditional comments count as what they contain."""
    return [
        token
        for token in _TOKENS[statement.escapes, statement.ansi_quotes].findall(statement.text)
        if not token.startswith(("/*", "--", "#")) and token != "*/"
    ]


def defines_tables(statement: str) -> bool:
    """Whether a statement makes tables, takes them away, or makes something else of them."""
    words = [upper_letters(token) for token in tokens_of(LoggedStatement(statement))[:4]]
    if words[:2] == ["SET", "STATEMENT"]:
        return True
    return bool(words) and words[0] in _CHANGING and "TEMPORARY" not in words[1:]


def meaning_of(
    statement: LoggedStatement, database: str, tables: Mapping[str, Registered], any_case: bool = True
) -> Meaning:
    """The effect of a statement on the capture of `tables` of a database.

    `any_case`: the server compares names of tables in any case; otherwise letter by letter.
    """
    scope = _Scope(statement.database, database, tables.keys(), any_case)
    tokens = tokens_of(statement)
    if [upper_letters(token) for token in tokens[:2]] == ["SET", "STATEMENT"]:
        words = [upper_letters(token) for token in tokens]
        tokens = tokens[words.index("FOR") + 1 :] if "FOR" in words else tokens
    first = upper_letters(tokens[0]) if tokens else ""
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
    if not named and not scope.is_same(scope.current, scope.database) and not scope.names_database(tokens):
        return {}
    return {
        table: Damage(
            "it was written with binlog_format=STATEMENT"
            if table in named
            else "triggers may have written it with binlog_format=STATEMENT"
        )
        for table in scope.captured
    }


def _schema_damage(
    tokens: list[str], scope: _Scope, tables: Mapping[str, Registered], strict: bool
) -> dict[str, Damage]:
    words = [upper_letters(token) for token in tokens]
    kind, named = words[0], scope.named(tokens)
    target = scope.target(tokens)
    if kind == "DROP" and words[1] in ("DATABASE", "SCHEMA"):
        dropped = scope.names_database(tokens[2:])
        return _all(tables, "its database was dropped") if dropped else {}
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
