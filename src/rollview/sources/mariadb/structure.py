"""What a MariaDB table is, as far as capture must know: columns, keys, and what stands in the way."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rollview.sources.mariadb.declarations import DeclaredForeignKey, declarations, foreign_keys_of
from rollview.sources.mariadb.types import MariaDBColumn, spark_type_of
from rollview.sources.source import COUNT, CSN, ForeignKey, Table

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
    """A table. `columns` are the mapped ones with their Spark SQL types; `unmapped` the others, declared.

    `key` is the first of the `keys` by which rows can be told apart, `key_name` its index. `hazards` are the
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
        """The columns of the key."""
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
        """The table as views know it."""
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
    unmapped = tuple((column.name, column.declared) for column, kind in types.items() if kind is None)
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


def _first(keys: _Keys) -> tuple[str, ...]:
    return keys[0][1] if keys else ()


def _columns(cursor: Any, database: str) -> dict[str, list[MariaDBColumn]]:
    """By table the columns in order."""
    cursor.execute(
        "SELECT table_name, column_name, column_type, character_set_name, is_nullable, generation_expression"
        " FROM information_schema.columns WHERE table_schema = %s ORDER BY table_name, ordinal_position",
        (database,),
    )
    found: dict[str, list[MariaDBColumn]] = defaultdict(list)
    for table, name, declared, charset, nullable, generated in cursor.fetchall():
        column = MariaDBColumn(name, declared, charset or "", nullable == "YES", generated or "")
        found[table].append(column)
    return found


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
