"""The structure of tables, as far as capture must know: columns, keys, and obstacles."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from rollview.sources.postgres.address import Address
from rollview.sources.postgres.connections import Connection, quote
from rollview.sources.postgres.partitions import (
    FOREIGN,
    IDENTITY,
    PARTITIONED,
    TABLE,
    TREE,
    Partition,
    Stored,
    partitions_of,
)
from rollview.sources.postgres.types import ARRAY, spark_type_of
from rollview.sources.source import COUNT, CSN, ForeignKey, Table

# The schemas of a database, and what views call their tables.
#
# A table of the source's first schema is `source.table` in views, any other `source.schema.table`. All else
# in rollview knows a table by one name, so inside it is `schema.table`. A dot may as well be a part of a
# name: two tables that come out alike are refused, rather than one taken for the other.


def schema_names(connection: Connection, address: Address) -> list[str]:
    """The schemas whose tables are captured: those that were named, or all that are not the server's own."""
    if address.schemas:
        return [*address.schemas, address.delta_schema]
    rows = connection.execute(
        "SELECT nspname::text FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'"
    )
    return [name for (name,) in rows if name != address.global_schema]


def table_name(address: Address, schema: str, relation: str) -> str:
    """The name of a table in views, after the name of the source."""
    return relation if schema == address.schema else f"{schema}.{relation}"


_RESERVED = (COUNT, CSN)
GENERATED_SINCE = 180000
"""From this version on the log has generated columns that are stored; before, it never has any."""

_COARSE = ("citext", "bpchar")


@dataclass(frozen=True)
class PostgresColumn:
    """A column that has an equal in Spark. `type_id`, `modifier` and `number` distinguish it from any later
    one.

    `exact` says that two values are equal at the server if and only if they are equal in Spark. `version` is
    the transaction that wrote its row in the catalog last; `labels` are those of the values of an enum type.
    """

    name: str
    type: str
    kind: str
    type_id: int
    modifier: int
    number: int
    exact: bool
    version: str
    labels: tuple[tuple[int, str], ...]


class UniqueKey(NamedTuple):
    """Columns, by their numbers, of which no two rows have the same values, and none is NULL.

    `constraint` is the id of the constraint that says so; 0 if it is but an index. An index may be replaced
    by an equal one, without a moment in which there is none; a constraint is not.
    """

    constraint: int
    columns: tuple[int, ...]


@dataclass(frozen=True)
class Structure:
    """A table as it is now. Views call it `name`; at the server it is `relation`, in a schema.

    `identity` is its replica identity, as the words of ALTER TABLE.
    `unmapped` are columns without an equal, with their types. `obstacles` are the reasons why the table
    cannot be captured; `is_ours` says whether we may alter it, `readable` whether we may read it. `file` and
    `toast` say where its rows are stored; those of a partitioned table are stored in its `partitions`.
    """

    id: int
    schema: str
    relation: str
    name: str
    columns: tuple[PostgresColumn, ...]
    unmapped: tuple[tuple[str, str], ...]
    unique: UniqueKey | None
    foreign_keys: tuple[ForeignKey, ...]
    identity: str
    is_ours: bool
    readable: bool
    obstacles: tuple[str, ...]
    file: int
    toast: int
    kind: str
    partitions: tuple[Partition, ...]

    @cached_property
    def qualified(self) -> str:
        """The name as SQL text."""
        return f"{quote(self.schema)}.{quote(self.relation)}"

    @cached_property
    def key(self) -> tuple[str, ...]:
        """The columns that identify its rows, by name; empty if there are none."""
        names = {column.number: column.name for column in self.columns}
        return () if self.unique is None else tuple(names[number] for number in self.unique.columns)

    @property
    def stored(self) -> tuple[Stored, ...]:
        """Where its rows are: itself, or its partitions."""
        return self.partitions if self.kind == PARTITIONED else (self,)

    def as_table(self, source: str) -> Table:
        return Table(
            source,
            self.name,
            tuple(column.name for column in self.columns),
            self.key,
            tuple(ForeignKey(key.columns, f"{source}.{key.references}") for key in self.foreign_keys),
            tuple(column.type for column in self.columns),
        )


_TABLES = f"""
    SELECT c.oid, c.relname, c.relkind, c.relpersistence, row_security_active(c.oid),
           pg_has_role(c.relowner, 'USAGE'), has_table_privilege(c.oid, 'SELECT'),
           EXISTS (SELECT FROM pg_inherits h WHERE h.inhparent = c.oid),
           EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attgenerated = 'v'),
           {IDENTITY.format(c="c")},
           c.relfilenode, c.reltoastrelid, CASE WHEN c.relkind = 'p' THEN {TREE} END, n.nspname
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = ANY(%s) AND c.relkind IN ('r', 'p', 'f') AND NOT c.relispartition
    ORDER BY n.nspname, c.relname
"""
# A domain counts as the type that it is over, also by way of other domains; the last of them has a modifier.
_COLUMNS = """
    WITH RECURSIVE over AS (
        SELECT d.oid AS domain, d.typbasetype AS type, d.typtypmod AS modifier
        FROM pg_type d WHERE d.typtype = 'd'
        UNION ALL
        SELECT over.domain, d.typbasetype, d.typtypmod
        FROM over JOIN pg_type d ON d.oid = over.type WHERE d.typtype = 'd')
    SELECT a.attrelid, a.attname, a.attnum, a.atttypid, a.atttypmod, a.attnotnull, a.attgenerated,
           CASE WHEN 'e' IN (t.typtype, b.typtype) THEN 'enum' ELSE coalesce(b.typname, t.typname) END,
           CASE WHEN m.typtype = 'e' THEN 'enum' ELSE m.typname END,
           CASE WHEN t.typtype = 'd' THEN b.modifier ELSE a.atttypmod END,
           coalesce(l.collisdeterministic, true), format_type(a.atttypid, a.atttypmod), a.xmin::text,
           (SELECT jsonb_agg(jsonb_build_array(e.oid::int8, e.xmin::text) ORDER BY e.oid)
            FROM pg_enum e WHERE e.enumtypid IN (t.oid, b.oid, m.oid))
    FROM pg_attribute a
    JOIN pg_class c ON c.oid = a.attrelid
    JOIN pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_type t ON t.oid = a.atttypid
    LEFT JOIN (SELECT over.domain, over.modifier, y.oid, y.typname, y.typtype, y.typelem
               FROM over JOIN pg_type y ON y.oid = over.type AND y.typtype <> 'd') b ON b.domain = t.oid
    LEFT JOIN pg_type m ON t.typcategory = 'A' AND m.oid = coalesce(b.typelem, t.typelem)
    LEFT JOIN pg_collation l ON l.oid = a.attcollation
    WHERE n.nspname = ANY(%s) AND c.relkind IN ('r', 'p', 'f') AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY a.attrelid, a.attnum
"""
_UNIQUE = """
    SELECT i.indrelid, i.indkey::int2[], i.indnkeyatts,
           coalesce((SELECT k.oid FROM pg_constraint k WHERE k.conindid = i.indexrelid
                     AND k.conrelid = i.indrelid AND k.contype IN ('p', 'u')), 0)::int8
    FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = ANY(%s) AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
    ORDER BY i.indrelid, NOT i.indisprimary, i.indnkeyatts, i.indexrelid
"""
# One whose triggers are switched off is not enforced, whatever was checked when it was made. Each partition
# has triggers of its own, so nothing is known of those of partitioned tables.
_FOREIGN = """
    SELECT f.conrelid, f.conkey, f.confrelid, f.confkey
    FROM pg_constraint f JOIN pg_class c ON c.oid = f.conrelid JOIN pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_class d ON d.oid = f.confrelid
    WHERE n.nspname = ANY(%s) AND f.contype = 'f' AND f.convalidated AND c.relkind = 'r' AND d.relkind = 'r'
      AND NOT EXISTS (SELECT FROM pg_trigger g WHERE g.tgconstraint = f.oid AND g.tgenabled NOT IN ('O', 'A'))
    ORDER BY f.conname
"""


def structures(connection: Connection, address: Address) -> dict[str, Structure]:
    """All tables by name, those that cannot be captured included."""
    schemas = schema_names(connection, address)
    columns, unmapped, required = _columns(connection, schemas)
    keys = _keys(connection, schemas, columns, required)
    rows = connection.execute(_TABLES, (schemas,)).fetchall()
    names = {row[0]: table_name(address, row[-1], row[1]) for row in rows}
    foreign = _foreign_keys(connection, schemas, columns, keys, names)
    found: dict[str, Structure] = {}
    for row in rows:
        oid, relation, kind, persistence, secured, is_ours, readable, has_children, has_virtual, *others = row
        identity, file, toast, below, schema = others
        own, partitions, name = columns[oid], partitions_of(below), names[oid]
        obstacles = ["it is a foreign table"] if kind == FOREIGN else []
        if name in found:
            obstacles.append(f"{found[name].qualified} has the same name in views")
        if persistence != "p":
            obstacles.append("it is unlogged, so its changes are not in the log")
        if has_children and kind == TABLE:
            obstacles.append("other tables inherit from it, whose rows are rows of it that are not captured")
        obstacles += [reason for each in partitions if (reason := partition_obstacle(each))]
        if has_virtual:
            obstacles.append("it has a virtual generated column, so the server would refuse its own updates")
        if secured:
            obstacles.append("row security hides some of its rows from us")
        obstacles += [
            f"its column {c.name} has a name that rollview reserves"
            for c in own
            if c.name.lower() in _RESERVED
        ]
        found[name] = Structure(
            oid,
            schema,
            relation,
            name,
            tuple(own),
            tuple(unmapped[oid]),
            keys.get(oid),
            foreign.get(oid, ()),
            identity or "DEFAULT",
            is_ours,
            readable,
            tuple(obstacles),
            file,
            toast,
            kind,
            partitions,
        )
    return found


def partition_obstacle(partition: Partition) -> str:
    """Why a table with this partition cannot be captured; mostly empty."""
    if partition.kind not in (TABLE, PARTITIONED):
        return f"its partition {partition.shown} is a foreign table, whose changes are not in the log"
    if partition.persistence != "p" and partition.kind == TABLE:
        return f"its partition {partition.shown} is unlogged, so changes of it are not in the log"
    return ""


_Columns = dict[int, list[PostgresColumn]]


def _columns(
    connection: Connection, schemas: list[str]
) -> tuple[_Columns, dict[int, list[tuple[str, str]]], set[tuple[int, str]]]:
    """By table: the columns that have an equal, the others, and which of the former are never NULL."""
    mapped: _Columns = defaultdict(list)
    unmapped: dict[int, list[tuple[str, str]]] = defaultdict(list)
    required = set()
    is_generated_logged = connection.info.server_version >= GENERATED_SINCE
    for row in connection.execute(_COLUMNS, (schemas,)):
        table, name, number, type_id, modifier, not_null, generated, kind, element, *others = row
        base_modifier, is_exact, shown, version, labels = others
        if element is not None and spark_type_of(element, -1) is not None:
            kind = ARRAY
        spark = spark_type_of(kind, base_modifier)
        if spark is None or (generated and not is_generated_logged):
            unmapped[table].append((name, f"{shown}, generated" if generated else shown))
            continue
        exact = is_exact and kind not in _COARSE
        labelled = tuple((label, written) for label, written in labels or ())
        mapped[table].append(
            PostgresColumn(name, spark, kind, type_id, modifier, number, exact, version, labelled)
        )
        if not_null:
            required.add((table, name))
    return mapped, unmapped, required


def _keys(
    connection: Connection, schemas: list[str], columns: _Columns, required: set[tuple[int, str]]
) -> dict[int, UniqueKey]:
    """By table: its primary key, else the shortest unique key of columns that are never NULL."""
    found: dict[int, UniqueKey] = {}
    for table, numbers, width, constraint in connection.execute(_UNIQUE, (schemas,)):
        names = {column.number: column.name for column in columns[table]}
        key = tuple(numbers[:width])
        if table not in found and all((table, names.get(number, "")) in required for number in key):
            found[table] = UniqueKey(constraint, key)
    return found


def _foreign_keys(
    connection: Connection,
    schemas: list[str],
    columns: _Columns,
    keys: dict[int, UniqueKey],
    names: dict[int, str],
) -> dict[int, tuple[ForeignKey, ...]]:
    """By table: the constraints that refer to another table's key, of columns that Spark compares alike."""
    found: dict[int, list[ForeignKey]] = defaultdict(list)
    for table, own_numbers, parent, parent_numbers in connection.execute(_FOREIGN, (schemas,)):
        own = {column.number: column for column in columns[table]}
        theirs = {column.number: column for column in columns[parent]}
        pairs = [(own.get(a), theirs.get(b)) for a, b in zip(own_numbers, parent_numbers, strict=True)]
        by_parent = {b.name: a.name for a, b in pairs if a and b and a.exact and b.exact and a.type == b.type}
        by_number = {column.number: column.name for column in columns[parent]}
        key = tuple(by_number[number] for number in keys[parent].columns) if parent in keys else ()
        if key and len(by_parent) == len(pairs) and set(by_parent) == set(key) and parent in names:
            found[table].append(ForeignKey(tuple(by_parent[name] for name in key), names[parent]))
    return {table: tuple(each) for table, each in found.items()}


# Whether a column that was given another type still holds all its values, each as it was.
#
# Only what the server does without rewriting the table is of interest: whatever rewrites it may have a
# USING clause, of which nothing is known. So integers that become wider are no case of this. A wider column
# may get values that do not fit the registered type; that is noticed when one of them comes.


_TEXT, _VARCHAR, _NUMERIC = 25, 1043, 1700
_TIMES = (1083, 1114, 1184)
_HEADER = 4
_SCALE_BITS = 0x7FF


def keeps_values(column: PostgresColumn, type_id: int, modifier: int) -> bool:
    """Whether every value of a column is, unchanged, one of a type with its modifier (−1: none)."""
    was, had = column.type_id, column.modifier
    if (was, had) == (type_id, modifier):
        return True
    if was in (_TEXT, _VARCHAR) and type_id in (_TEXT, _VARCHAR):
        return modifier < 0 or 0 <= had <= modifier
    if was != type_id or had < 0:
        return False
    if was == _NUMERIC:
        return modifier < 0 or (_scale(had) == _scale(modifier) and had <= modifier)
    return was in _TIMES and (modifier < 0 or had <= modifier)


def _scale(modifier: int) -> int:
    """The digits behind the point, packed below those of the precision."""
    return modifier - _HEADER & _SCALE_BITS
