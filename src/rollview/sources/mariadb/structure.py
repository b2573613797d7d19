"""What a MariaDB table is, as far as capture must know: columns, keys, and what stands in the way."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rollview.sources.mariadb.types import MariaDBColumn, spark_type_of
from rollview.sources.source import COUNT, CSN, ForeignKey, Table

OURS = "_rollview"
"""How the name of everything begins that setup leaves in a database."""

_RESERVED = (COUNT, CSN)
_SILENT_ACTIONS = ("CASCADE", "SET NULL", "SET DEFAULT")
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


@dataclass(frozen=True)
class Structure:
    """A table. `columns` are the mapped ones with their Spark SQL types; `unmapped` the others, declared.

    `key_name` is the index that makes `key` unique. `obstacles` are the reasons why it cannot be captured.
    """

    name: str
    columns: tuple[tuple[MariaDBColumn, str], ...]
    key: tuple[str, ...]
    key_name: str
    foreign_keys: tuple[ForeignKey, ...]
    unmapped: tuple[tuple[str, str], ...]
    obstacles: tuple[str, ...]

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


@dataclass(frozen=True)
class _ForeignKey:
    name: str
    columns: tuple[str, ...]
    parent: str
    parent_columns: tuple[str, ...]
    actions: tuple[str, str]


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
    parents = _foreign_keys(cursor, database)
    keys = {name: _key(columns[name], unique[name], single_byte) for name in engines}
    return {
        name: _structure(name, engine, columns[name], keys, parents[name], single_byte)
        for name, engine in engines.items()
    }


def _structure(
    name: str,
    engine: tuple[str, bool],
    columns: Mapping[MariaDBColumn, bool],
    keys: Mapping[str, tuple[str, tuple[str, ...]]],
    parents: list[_ForeignKey],
    single_byte: frozenset[str],
) -> Structure:
    types = {column: spark_type_of(column, single_byte) for column in columns}
    mapped = tuple((column, kind) for column, kind in types.items() if kind is not None)
    unmapped = tuple((column.name, column.declared) for column, kind in types.items() if kind is None)
    key_name, key = keys[name]
    obstacles = []
    if not engine[1]:
        obstacles.append(f"its engine {engine[0]} has no transactions")
    for each in parents:
        if any(action in _SILENT_ACTIONS for action in each.actions):
            deletion, update = each.actions
            obstacles.append(
                f"its foreign key {each.name} (ON DELETE {deletion}, ON UPDATE {update}) changes rows without"
                " a trace in the binary log"
            )
    for column in columns:
        if column.name.lower() in _RESERVED or column.name.lower().startswith(OURS):
            obstacles.append(f"its column {column.name} has a name that rollview reserves")
    exact = {column.name for column, kind in mapped if kind.partition("(")[0] in _EXACT_KEYS}
    foreign_keys = []
    for each in parents:
        own = dict(zip(each.parent_columns, each.columns, strict=True))
        parent_key = keys.get(each.parent, ("", ()))[1]
        # Text may refer to text that is equal to MariaDB and another one to Spark.
        if parent_key and set(own) == set(parent_key) and exact.issuperset(each.columns):
            foreign_keys.append(ForeignKey(tuple(own[column] for column in parent_key), each.parent))
    return Structure(name, mapped, key, key_name, tuple(foreign_keys), unmapped, tuple(obstacles))


def _columns(cursor: Any, database: str) -> dict[str, dict[MariaDBColumn, bool]]:
    """By table the columns in order, each with whether it may be NULL."""
    cursor.execute(
        "SELECT table_name, column_name, column_type, character_set_name, is_nullable"
        " FROM information_schema.columns WHERE table_schema = %s ORDER BY table_name, ordinal_position",
        (database,),
    )
    found: dict[str, dict[MariaDBColumn, bool]] = defaultdict(dict)
    for table, name, declared, charset, nullable in cursor.fetchall():
        found[table][MariaDBColumn(name, declared, charset or "")] = nullable == "YES"
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


def _key(
    columns: Mapping[MariaDBColumn, bool], unique: Mapping[str, tuple[str, ...]], single_byte: frozenset[str]
) -> tuple[str, tuple[str, ...]]:
    """The first unique index of mapped columns that are never NULL, the primary key before all others."""
    usable = {
        column.name
        for column, nullable in columns.items()
        if not nullable and spark_type_of(column, single_byte) is not None
    }
    for index, names in unique.items():
        if usable.issuperset(names):
            return index, names
    return "", ()


def _foreign_keys(cursor: Any, database: str) -> dict[str, list[_ForeignKey]]:
    cursor.execute(
        "SELECT k.table_name, k.constraint_name, k.column_name, k.referenced_table_name,"
        " k.referenced_column_name, k.referenced_table_schema, r.delete_rule, r.update_rule"
        " FROM information_schema.key_column_usage AS k"
        " JOIN information_schema.referential_constraints AS r"
        " ON r.constraint_schema = k.constraint_schema AND r.constraint_name = k.constraint_name"
        " AND r.table_name = k.table_name"
        " WHERE k.table_schema = %s AND k.referenced_table_name IS NOT NULL"
        " ORDER BY k.table_name, k.constraint_name, k.ordinal_position",
        (database,),
    )
    rows = cursor.fetchall()
    found: dict[str, list[_ForeignKey]] = defaultdict(list)
    for table, constraint in dict.fromkeys((row[0], row[1]) for row in rows):
        pairs = [row for row in rows if row[:2] == (table, constraint)]
        parent = pairs[0][3] if pairs[0][5] == database else ""
        columns, referenced = tuple(row[2] for row in pairs), tuple(row[4] for row in pairs)
        found[table].append(_ForeignKey(constraint, columns, parent, referenced, pairs[0][6:8]))
    return found
