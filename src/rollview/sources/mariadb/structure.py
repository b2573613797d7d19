"""The structure of a MariaDB table, as far as capture must know: columns, keys, and obstacles."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pymysql

from rollview.sources.mariadb.types import MariaDBColumn, spark_type_of
from rollview.sources.source import COUNT, CSN, ForeignKey, Table

# Tables as the server declares them: the text of SHOW CREATE TABLE, of many tables in one round trip.
#
# The text has all of a table's definition, and every role that may read the table may read it. The views of
# `information_schema` are not like that: to an account that may only read, `referential_constraints` is
# empty.

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
        """Whether it changes rows of its table, which the binary log then does not show."""
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


OURS = "_rollview"
"""How the name of everything begins that setup leaves in a database."""

_RESERVED = (COUNT, CSN)
_EXACT_KEYS = (
    "tinyint",
    "smallint",
    "int",
    "bigint",
    "decimal",
    "date",
    "timestamp",
    "timestamp_ntz",
    "binary",
)

_Keys = tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class Structure:
    """A table. `columns` are the mapped ones with their Spark SQL types; `unmapped` the others, with why.

    `key` is the first of the `keys` that identify rows, `key_name` its index. `hazards` are the
    reasons why its log is not complete, `obstacles` all reasons why it cannot be captured.
    """

    name: str
    columns: tuple[tuple[MariaDBColumn, str], ...]
    keys: tuple[tuple[str, tuple[str, ...]], ...]
    foreign_keys: tuple[ForeignKey, ...]
    unmapped: tuple[tuple[str, str], ...]
    hazards: tuple[str, ...]

    @property
    def key_name(self) -> str:
        """The name of the key's index; empty without one."""
        return self.keys[0][0] if self.keys else ""

    @property
    def key(self) -> tuple[str, ...]:
        return self.keys[0][1] if self.keys else ()

    @property
    def obstacles(self) -> tuple[str, ...]:
        """Why it cannot be captured."""
        names = [column.name for column, _ in self.columns] + [name for name, _ in self.unmapped]
        reserved = [name for name in names if name.lower() in _RESERVED or name.lower().startswith(OURS)]
        return (*self.hazards, *(f"its column {name} has a name that rollview reserves" for name in reserved))

    @cached_property
    def types(self) -> dict[str, str]:
        """The Spark SQL types by column."""
        return {column.name: kind for column, kind in self.columns}

    def as_table(self, source: str) -> Table:
        return Table(
            source,
            self.name,
            tuple(self.types),
            self.key,
            tuple(ForeignKey(each.columns, f"{source}.{each.references}") for each in self.foreign_keys),
            tuple(self.types.values()),
        )


def structures_of(cursor: Any, database: str, single_byte: frozenset[str]) -> dict[str, Structure]:
    """Every table of a database, without views and without what setup has left there."""
    cursor.execute(
        "SELECT t.table_name, t.engine, e.transactions FROM information_schema.tables AS t"
        " LEFT JOIN information_schema.engines AS e ON e.engine = t.engine"
        " WHERE t.table_schema = %s AND t.table_type = 'BASE TABLE' ORDER BY t.table_name",
        (database,),
    )
    engines = {
        name: (engine, transactional == "YES")
        for name, engine, transactional in cursor.fetchall()
        if not name.lower().startswith(OURS)
    }
    columns = _columns(cursor, database)
    unique = _unique_keys(cursor, database)
    declared = declarations(cursor, engines)
    keys = {name: _keys(columns[name], unique[name], single_byte) for name in engines}
    return {
        name: _structure(
            name, engine, columns[name], keys, foreign_keys_of(declared.get(name, "")), single_byte
        )
        for name, engine in engines.items()
    }


def _structure(
    name: str,
    engine: tuple[str, bool],
    columns: Sequence[MariaDBColumn],
    keys: Mapping[str, _Keys],
    parents: Sequence[DeclaredForeignKey],
    single_byte: frozenset[str],
) -> Structure:
    types = {column: spark_type_of(column, single_byte) for column in columns}
    mapped = tuple((column, kind) for column, kind in types.items() if kind is not None)
    unmapped = tuple((column.name, _why_unmapped(column)) for column, kind in types.items() if kind is None)
    hazards = []
    if not engine[1]:
        hazards.append(f"its engine {engine[0]} has no transactions")
    for each in parents:
        if each.writes_silently:
            hazards.append(
                f"its foreign key {each.name} ({each.actions}) changes rows without a trace in the binary log"
            )
    exact = {column.name for column, kind in mapped if kind.partition("(")[0] in _EXACT_KEYS}
    foreign_keys = []
    for each in parents:
        own = dict(zip(each.parent_columns, each.columns, strict=True))
        parent_key = () if each.database else _first(keys.get(each.parent, ()))
        # Text may refer to text that is equal to MariaDB and another one to Spark.
        if parent_key and set(own) == set(parent_key) and exact.issuperset(each.columns):
            foreign_keys.append(ForeignKey(tuple(own[column] for column in parent_key), each.parent))
    return Structure(name, mapped, keys[name], tuple(foreign_keys), unmapped, tuple(hazards))


def _why_unmapped(column: MariaDBColumn) -> str:
    if column.counter:
        return f"is computed from {column.counter} before AUTO_INCREMENT gives the number, and logged so"
    return f"is {column.declared}, which has no equivalent in Spark"


def _first(keys: _Keys) -> tuple[str, ...]:
    return keys[0][1] if keys else ()


def _columns(cursor: Any, database: str) -> dict[str, list[MariaDBColumn]]:
    """By table the columns in order."""
    cursor.execute(
        "SELECT table_name, column_name, column_type, character_set_name, is_nullable, generation_expression,"
        " extra FROM information_schema.columns WHERE table_schema = %s"
        " ORDER BY table_name, ordinal_position",
        (database,),
    )
    found: dict[str, list[MariaDBColumn]] = defaultdict(list)
    counters: dict[str, str] = {}
    for table, name, declared, charset, nullable, generated, extra in cursor.fetchall():
        column = MariaDBColumn(name, declared, charset or "", nullable == "YES", generated or "")
        found[table].append(column)
        if "auto_increment" in extra:
            counters[table] = name
    for table, counter in counters.items():
        found[table] = _with_counted_marked(found[table], counter)
    return found


def _with_counted_marked(columns: list[MariaDBColumn], counter: str) -> list[MariaDBColumn]:
    """Marks what is computed from a column with AUTO_INCREMENT, or from something that is.

    The server computes it before it gives the number, and logs what came of that; readers get another value.
    """
    wrong = {counter}
    while more := {
        column.name
        for column in columns
        if column.name not in wrong and any(quote(name) in column.generated for name in wrong)
    }:
        wrong |= more
    return [
        replace(column, counter=counter) if column.name in wrong - {counter} else column for column in columns
    ]


def _unique_keys(cursor: Any, database: str) -> dict[str, dict[str, tuple[str, ...]]]:
    cursor.execute(
        "SELECT table_name, index_name, column_name FROM information_schema.statistics"
        " WHERE table_schema = %s AND non_unique = 0"
        " ORDER BY table_name, index_name <> 'PRIMARY', index_name, seq_in_index",
        (database,),
    )
    found: dict[str, dict[str, tuple[str, ...]]] = defaultdict(dict)
    for table, index, column in cursor.fetchall():
        found[table][index] = (*found[table].get(index, ()), column)
    return found


def _keys(
    columns: Sequence[MariaDBColumn], unique: Mapping[str, tuple[str, ...]], single_byte: frozenset[str]
) -> _Keys:
    """The unique indexes of mapped columns that are never NULL, the primary key before all others."""
    usable = {
        column.name
        for column in columns
        if not column.nullable and spark_type_of(column, single_byte) is not None
    }
    return tuple((index, names) for index, names in unique.items() if usable.issuperset(names))
