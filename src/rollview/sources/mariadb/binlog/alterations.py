"""ALTER TABLE of a captured table: whether its rows, as far as they are captured, stay what they are.

Columns are found by their names in the log, so others may come and go. Each clause must be known to be
harmless; in doubt the table counts as damaged, because to continue with wrong rows is worse.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass

from rollview.ascii_text import upper_letters, whole_number
from rollview.sources.mariadb.binlog.damage import Damage, combined
from rollview.sources.mariadb.registered import Registered
from rollview.sources.mariadb.types import MariaDBColumn

# Whether a column that was redeclared still holds all its values, each as it was.
#
# Only what is known to keep them counts. A wider column may get values that do not fit the registered type;
# that is noticed when one of them comes. What could be widened and narrowed again without an error
# (fractions of seconds, digits behind the point) must stay as it is.


_DECLARED = re.compile(r"(\w+)\s*(?:\((.*)\))?\s*(.*)", re.DOTALL)
_LABEL = re.compile(r"'(?:[^'\\]|\\.|'')*'", re.DOTALL)
_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_ALIASES = {
    "integer": "int",
    "bool": "tinyint",
    "boolean": "tinyint",
    "numeric": "decimal",
    "dec": "decimal",
    "fixed": "decimal",
}
_LONG_BYTES = {"tiny": 255, "": 65_535, "medium": 16_777_215, "long": 4_294_967_295}
_LONG_TEXTS = {f"{size}text": limit for size, limit in _LONG_BYTES.items()}
_LONG_BINARIES = {f"{size}blob": limit for size, limit in _LONG_BYTES.items()}
_BYTES_PER_CHARACTER = 4
EVERY_CHARACTER = "utf8mb4"


@dataclass(frozen=True)
class _Type:
    name: str
    arguments: str
    unsigned: bool

    @property
    def size(self) -> int:
        return whole_number(self.arguments) or 1


def _type_of(declared: str) -> _Type:
    found = _DECLARED.fullmatch(declared.strip())
    if found is None:
        return _Type(declared, "", False)
    name, rest = found[1].lower(), found[3].lower()
    return _Type(_ALIASES.get(name, name), found[2] or "", "unsigned" in rest or "zerofill" in rest)


def keeps_values(declared: str, redeclared: str) -> bool:
    """Whether every value of a type is, unchanged, one of another type."""
    old, new = _type_of(declared), _type_of(redeclared)
    if old.name in _BITS and new.name in _BITS:
        return _range(new)[0] <= _range(old)[0] and _range(old)[1] <= _range(new)[1]
    if old.name == "decimal" and new.name == "decimal":
        (digits, scale), (new_digits, new_scale) = _digits(old), _digits(new)
        return scale == new_scale and digits <= new_digits and old.unsigned >= new.unsigned
    if old.name in ("enum", "set") and new.name == old.name:
        labels = _LABEL.findall(old.arguments)
        return _LABEL.findall(new.arguments)[: len(labels)] == labels
    if old.name in ("char", "varchar", *_LONG_TEXTS):
        return _holds_text(old, new)
    if old.name in ("binary", "varbinary", *_LONG_BINARIES):
        return _holds_bytes(old, new)
    return old == new


def keeps_characters(column: MariaDBColumn, charset: str) -> bool:
    """Whether every text of a column is, unchanged, one of another character set."""
    return charset in (column.charset, EVERY_CHARACTER)


def _range(kind: _Type) -> tuple[int, int]:
    bits = _BITS[kind.name]
    return (0, (1 << bits) - 1) if kind.unsigned else (-(1 << bits - 1), (1 << bits - 1) - 1)


def _digits(kind: _Type) -> tuple[int, int]:
    precision, _, scale = (kind.arguments or "10").partition(",")
    return int(precision), int(scale or 0)


def _holds_text(old: _Type, new: _Type) -> bool:
    if old.name in _LONG_TEXTS:
        return _LONG_TEXTS.get(new.name, 0) >= _LONG_TEXTS[old.name]
    if new.name in _LONG_TEXTS:
        return _LONG_TEXTS[new.name] >= old.size * _BYTES_PER_CHARACTER
    # CHAR forgets blanks at the end, which a VARCHAR keeps.
    return new.name in ("varchar", old.name) and new.size >= old.size


def _holds_bytes(old: _Type, new: _Type) -> bool:
    if old.name in _LONG_BINARIES:
        return _LONG_BINARIES.get(new.name, 0) >= _LONG_BINARIES[old.name]
    if new.name in _LONG_BINARIES:
        return _LONG_BINARIES[new.name] >= old.size
    # BINARY fills up with zeros.
    return new.size >= old.size if new.name == "varbinary" else new == old


UNKNOWN = Damage("it was altered in a way whose effect on its rows is not in the binary log")
_ADDED = frozenset(
    {
        "INDEX",
        "KEY",
        "UNIQUE",
        "FULLTEXT",
        "SPATIAL",
        "PRIMARY",
        "CHECK",
        "CONSTRAINT",
        "FOREIGN",
        "PARTITION",
    }
)
_ROWS_STAY = frozenset(
    {"REORGANIZE", "COALESCE", "REBUILD", "OPTIMIZE", "ANALYZE", "CHECK", "REMOVE", "ORDER"}
)
_OPTIONS = frozenset(
    {
        *("ALGORITHM", "AUTO_INCREMENT", "AVG_ROW_LENGTH", "CHARACTER", "CHARSET", "CHECKSUM", "COLLATE"),
        *("COMMENT", "DEFAULT", "DELAY_KEY_WRITE", "DISABLE", "ENABLE", "ENCRYPTED", "ENCRYPTION_KEY_ID"),
        *("ENGINE", "FORCE", "KEY_BLOCK_SIZE", "LOCK", "MAX_ROWS", "MIN_ROWS", "PACK_KEYS", "PAGE_CHECKSUM"),
        *("PAGE_COMPRESSED", "PAGE_COMPRESSION_LEVEL", "ROW_FORMAT", "STATS_AUTO_RECALC"),
        *("STATS_PERSISTENT", "STATS_SAMPLE_PAGES", "TABLE_CHECKSUM", "TRANSACTIONAL"),
    }
)
_PARTITION_ACTS = {
    "DROP PARTITION": "dropped",
    "TRUNCATE PARTITION": "emptied",
    "EXCHANGE PARTITION": "exchanged",
    "CONVERT PARTITION": "made a table",
    "CONVERT TABLE": "made of a table",
}
_QUOTED = re.compile("`((?:[^`]|``)+)`")
_CONDITIONS = frozenset({"IF", "NOT", "EXISTS"})
_SILENT = ("CASCADE", "SET NULL", "SET DEFAULT")


def exact(token: str) -> str:
    """A name as it is written, without quotes."""
    return token[1:-1].replace(token[0] * 2, token[0]) if token[0] in '`"' else token


def folded(name: str) -> str:
    """A name in lower case as the server compares names: letter by letter."""
    return "".join(letter.lower()[:1] for letter in name)


def plain(token: str) -> str:
    """A name without quotes and in lower case."""
    return folded(exact(token))


def alteration_damage(tokens: Sequence[str], table: Registered, strict: bool) -> Damage | None:
    """The damage that an ALTER TABLE does to a table without showing in its log.

    `strict` says whether the session treated values that do not fit as errors.
    """
    words = [upper_letters(token) for token in tokens]
    if "IGNORE" in words[:3]:
        return Damage("it was altered with IGNORE, which deletes and changes rows without logging them")
    clauses = _clauses(tokens[words.index("TABLE") + 1 :])
    return combined(_Clause(each, table, strict).damage() for each in clauses)


def _clauses(tokens: Sequence[str]) -> list[list[str]]:
    """The clauses after the table's name, which may be `database.table` and follow IF EXISTS."""
    if [upper_letters(token) for token in tokens[:2]] == ["IF", "EXISTS"]:
        tokens = tokens[2:]
    tokens = tokens[3:] if tokens[1:2] == ["."] else tokens[1:]
    if [upper_letters(token) for token in tokens[:1]] == ["NOWAIT"]:
        tokens = tokens[1:]
    elif [upper_letters(token) for token in tokens[:1]] == ["WAIT"]:
        tokens = tokens[2:]
    clauses: list[list[str]] = [[]]
    depth = 0
    for token in tokens:
        depth += {"(": 1, ")": -1}.get(token, 0)
        if token == "," and depth == 0:
            clauses.append([])
        elif token != ";":
            clauses[-1].append(token)
    return [clause for clause in clauses if clause]


class _Clause:
    """One clause and the table that it alters."""

    def __init__(self, tokens: Sequence[str], table: Registered, strict: bool) -> None:
        self._tokens = list(tokens)
        self._words = [upper_letters(token) for token in tokens]
        self._table = table
        self._strict = strict
        self._columns = {folded(name): column for name, column in table.declared.items()}

    def damage(self) -> Damage | None:
        head = self._words[0]
        text = " ".join(self._words)
        if "REFERENCES" in self._words and any(action in text for action in _SILENT):
            return Damage("it has a new foreign key, which changes rows without logging them")
        if "VERSIONING" in self._words or "PERIOD" in self._words[1:2]:
            return UNKNOWN
        if head in _OPTIONS:
            return self._engine()
        if head == "PARTITION":
            return None if self._words[1:2] == ["BY"] else UNKNOWN
        if head in _ROWS_STAY:
            return None
        if reason := self._moved_rows():
            return Damage(f"{reason}, and its rows are not in the binary log", is_truncate=True)
        known: dict[str, Callable[[], Damage | None]] = {
            "ADD": self._added,
            "DROP": self._dropped,
            "MODIFY": self._modified,
            "CHANGE": self._changed,
            "RENAME": self._renamed,
            "ALTER": lambda: None,
            "CONVERT": self._converted,
        }
        return known[head]() if head in known else UNKNOWN

    def _moved_rows(self) -> str:
        """The change of a partition with its rows, where the table is otherwise as it was; else empty."""
        done = _PARTITION_ACTS.get(" ".join(self._words[:2]), "")
        return f"a partition of it was {done}" if done else ""

    def _engine(self) -> Damage | None:
        """Options may follow each other without a comma."""
        if "ENGINE" not in self._words:
            return None
        rest = [word for word in self._words[self._words.index("ENGINE") + 1 :] if word != "="]
        engine = plain(rest[0]) if rest else ""
        return None if engine == "innodb" else Damage(f"its engine was changed to {engine}")

    def _operands(self, optional: str = "COLUMN") -> list[str]:
        """The tokens behind the verb, without a word that may be left out and without conditions."""
        place = 1 + (self._words[1:2] == [optional])
        while self._words[place : place + 1] and self._words[place] in _CONDITIONS:
            place += 1
        return self._tokens[place:]

    def _added(self) -> Damage | None:
        word = self._words[1] if len(self._words) > 1 else ""
        if word == "PRIMARY" and not self._strict:
            named = {plain(token) for token in self._tokens}
            if any(column.nullable for name, column in self._columns.items() if name in named):
                return Damage("a column of it may not be NULL any more, and the session was not strict")
        if word in _ADDED or self._operands():
            return None
        return UNKNOWN

    def _dropped(self) -> Damage | None:
        word = self._words[1] if len(self._words) > 1 else ""
        if word == "PRIMARY":
            return self._key_gone("PRIMARY")
        if word in ("INDEX", "KEY", "CONSTRAINT"):
            return self._key_gone(plain(self._operands(word)[0]))
        if word == "FOREIGN":
            return None
        return self._column_gone(plain(self._operands()[0]), "dropped")

    def _column_gone(self, name: str, act: str) -> Damage | None:
        """A column may come back in the same statement with other values, and what is computed from it."""
        column, computed = self._columns.get(name), self._computed_from({name})
        if column is not None:
            concerned = dict.fromkeys((column.name, *computed))
            return Damage(f"its column {column.name} was {act}", tuple(concerned))
        return Damage(f"a column that others are computed from was {act}", computed) if computed else None

    def _computed_from(self, names: Set[str]) -> tuple[str, ...]:
        """The generated columns that depend on columns, or may do so through one that is not captured."""
        changed, generated = set(names), {n: c for n, c in self._columns.items() if c.generated}
        reads = {
            name: {folded(each.replace("``", "`")) for each in _QUOTED.findall(column.generated)}
            for name, column in generated.items()
        }
        changed |= {name for name, used in reads.items() if names and used - self._columns.keys()}
        while more := {name for name, used in reads.items() if name not in changed and used & changed}:
            changed |= more
        return tuple(column.name for name, column in generated.items() if name in changed)

    def _key_gone(self, name: str) -> Damage | None:
        return key_damage(name, self._table)

    def _modified(self) -> Damage | None:
        name, *definition = self._operands()
        return self._redefined(plain(name), definition)

    def _changed(self) -> Damage | None:
        name, new, *definition = self._operands()
        column = self._columns.get(plain(name))
        if column is not None and exact(new) != column.name:
            return self._column_gone(plain(name), f"renamed to {exact(new)}")
        return self._redefined(plain(name), definition)

    def _redefined(self, name: str, definition: list[str]) -> Damage | None:
        column = self._columns.get(name)
        if generated := [each.name for each in self._columns.values() if each.generated]:
            changed = [column.name] if column is not None else []
            concerned = tuple(dict.fromkeys([*changed, *generated]))
            return Damage("a column was changed, and generated columns with it", concerned)
        if column is None:
            return None
        words = [upper_letters(token) for token in definition]
        declared = _declared(definition)
        fits = (
            keeps_values(column.declared, declared)
            and keeps_characters(column, _charset(words) or column.charset)
            and not {"AS", "GENERATED", "COMPRESSED"} & set(words)
        )
        if not fits:
            return self._column_gone(name, f"changed from {column.declared} to {declared}")
        return None if self._strict else self._column_gone(name, "changed by a session that was not strict")

    def _renamed(self) -> Damage | None:
        word = self._words[1] if len(self._words) > 1 else ""
        if word in ("INDEX", "KEY"):
            return None
        if word == "COLUMN":
            return self._column_gone(plain(self._operands()[0]), "renamed")
        return Damage("it was renamed")

    def _converted(self) -> Damage | None:
        charset = _charset(self._words)
        if self._words[1:2] != ["TO"] or not charset:
            return UNKNOWN
        texts = [column for column in self._columns.values() if column.charset]
        concerned = [column.name for column in texts if not keeps_characters(column, charset)]
        # A function of a text may count its bytes.
        concerned += self._computed_from(
            {folded(column.name) for column in texts if column.charset != charset}
        )
        converted = f"it was converted to the character set {charset}"
        return Damage(converted, tuple(dict.fromkeys(concerned))) if concerned else None


def key_damage(name: str, table: Registered) -> Damage | None:
    """The damage of a table by dropping one of its indexes."""
    gone = table.key_name and folded(name) == folded(table.key_name)
    return Damage(f"its key {table.key_name}, which identifies rows, was dropped") if gone else None


def _declared(definition: Sequence[str]) -> str:
    """The type at the beginning of a definition, as the server writes it."""
    if not definition:
        return ""
    text, rest = definition[0], list(definition[1:])
    if rest[:1] == ["("]:
        end = rest.index(")") + 1
        text += "".join(rest[:end])
        rest = rest[end:]
    signs = [word for word in rest[:2] if upper_letters(word) in ("UNSIGNED", "ZEROFILL")]
    return " ".join([text, *signs]).lower() if "'" not in text else text


def _charset(words: Sequence[str]) -> str:
    """The character set that a clause names, or that of the collation."""
    for place, word in enumerate(words):
        rest = [each for each in words[place + 1 : place + 4] if each != "="]
        if word == "CHARACTER" and rest[:1] == ["SET"] and len(rest) > 1:
            return plain(rest[1]).strip("'")
        if word == "CHARSET" and rest:
            return plain(rest[0]).strip("'")
        if word == "COLLATE" and rest:
            return plain(rest[0]).strip("'").partition("_")[0]
    return ""
