"""Sub-queries: rows of some relations that match shipped keys, or rows found for a relation before.

Keys go to a temporary table, and `IN` looks them up through the source's own indexes. A key is shipped only
where equal values in Spark are stored as equal values in SQLite; otherwise the whole relation is the answer,
as more rows than asked for are harmless. The comparison follows the column's collation, which finds equal
texts always and others, perhaps, too. A semi-join gives no row twice.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from rollview.algebra.expression import Call, Column, Expression, Literal
from rollview.algebra.join_graph import JoinStep
from rollview.algebra.relation import Relation
from rollview.algorithms.effects import Question
from rollview.errors import NotSetUp
from rollview.rows import spark_type
from rollview.sources.source import columns_to_read
from rollview.sources.sqlite.change_log import rows_of
from rollview.sources.sqlite.connection import quote
from rollview.sources.sqlite.install import CapturedTable

_INTEGERS = {"tinyint", "smallint", "int", "bigint"}
_STORED_ALIKE = {"string", "double", "binary", "boolean", "date"}
_COMPARISONS = {"=", "<", "<=", ">", ">="}
Key = tuple[Any, ...]


def look_up(
    connection: sqlite3.Connection,
    source: str,
    tables: Mapping[str, CapturedTable],
    question: Question[pa.Table],
) -> tuple[pa.Table, ...]:
    """The rows for every reach of the question, read in the connection's transaction."""
    block = question.block
    shipped = iter(question.keys)
    stored: dict[int, tuple[Sequence[str], list[Key]]] = {}
    answers = []
    for join_step in question.sub_query.join_steps:
        relation = block.relations[join_step.relation]
        table = captured(tables, relation.table.name, source)
        keys = next(shipped) if join_step.shipped else None
        filters = [_pushed(relation, table, condition) for condition in block.local[join_step.relation]]
        wanted = [text for text in filters if text]
        parameters: list[Any] = [value for text in wanted for value in text[1]]
        conditions = [text for text, _ in wanted]
        if join_step.parent is not None:
            if keys is not None:
                pairs, values = _shipped_keys(relation, table, join_step, keys)
            else:
                parent = block.relations[join_step.parent]
                parent_table = captured(tables, parent.table.name, source)
                pairs, values = _found_keys(
                    relation, table, join_step, parent, parent_table, stored[join_step.parent]
                )
            if pairs:
                conditions.append(_semi_join(connection, f"keys_of_{join_step.relation}", pairs, values))
        columns = columns_to_read(block, join_step.relation)
        rows = _select(connection, table, columns, conditions, parameters)
        stored[join_step.relation] = (columns, rows)
        answers.append(rows_of(source, table, columns, rows))
    return tuple(answers)


def captured(tables: Mapping[str, CapturedTable], name: str, source: str) -> CapturedTable:
    """A captured table; only of those it is known what a reading saw."""
    if name not in tables:
        raise NotSetUp(
            f"table {source}.{name} is not captured", subject=f"{source}.{name}", hint="run `rollview setup`"
        )
    return tables[name]


def _shipped_keys(
    relation: Relation, table: CapturedTable, join_step: JoinStep, keys: pa.Table
) -> tuple[list[str], Iterable[Key]]:
    """The columns that can be looked up, and the values to look for."""
    own_names = _own_names(relation)
    pairs = [(parent, own_names[own]) for parent, own in join_step.on]
    usable = [
        (parent, own)
        for parent, own in pairs
        if _comparable(spark_type(keys.schema.field(parent).type), table.types[own])
    ]
    columns = [_stored_values(keys.column(parent), table.types[own]) for parent, own in usable]
    return [own for _, own in usable], zip(*columns, strict=True)


def _found_keys(
    relation: Relation,
    table: CapturedTable,
    join_step: JoinStep,
    parent: Relation,
    parent_table: CapturedTable,
    found: tuple[Sequence[str], list[Key]],
) -> tuple[list[str], Iterable[Key]]:
    """The same for a parent whose rows were just found: values as SQLite stores them."""
    own_names, parent_names = _own_names(relation), _own_names(parent)
    columns, rows = found
    usable = [
        (columns.index(parent_names[theirs]), own_names[own])
        for theirs, own in join_step.on
        if _comparable(parent_table.types[parent_names[theirs]], table.types[own_names[own]])
    ]
    places = [place for place, _ in usable]
    return [own for _, own in usable], {tuple(row[place] for place in places) for row in rows}


def _own_names(relation: Relation) -> dict[str, str]:
    return dict(zip(relation.columns, relation.table.columns, strict=True))


def _comparable(theirs: str, own: str) -> bool:
    """Whether values equal in Spark are stored as equal values: one date has one text, but not one time."""
    if own == "bigint":
        return theirs in _INTEGERS
    return theirs == own and own in _STORED_ALIKE


def _stored_values(column: pa.ChunkedArray, kind: str) -> list[Any]:
    values: list[Any] = column.to_pylist()
    if kind == "date":
        return [None if value is None else value.isoformat() for value in values]
    return values


def _semi_join(
    connection: sqlite3.Connection, name: str, columns: Sequence[str], values: Iterable[Key]
) -> str:
    """Fills a temporary table with keys; the condition that looks them up. NULL matches nothing."""
    places = [f"k{i}" for i in range(len(columns))]
    connection.execute(f"CREATE TEMP TABLE {name}({', '.join(places)})")
    connection.executemany(
        f"INSERT INTO temp.{name} VALUES ({', '.join('?' for _ in places)})",
        (value for value in values if None not in value),
    )
    left = ", ".join(quote(column) for column in columns)
    return f"({left}) IN (SELECT {', '.join(places)} FROM temp.{name})"


def _pushed(relation: Relation, table: CapturedTable, condition: Expression) -> tuple[str, list[Any]] | None:
    """A simple comparison with a number or a text as SQL; None if it is left to the caller."""
    match condition:
        case Call(function=operator, arguments=(Column() as column, Literal() as literal)):
            name = _own_names(relation).get(column.name)
        case _:
            return None
    if name is None or operator not in _COMPARISONS:
        return None
    whole_number = type(literal.value) is int and abs(literal.value) < 1 << 63
    # Texts are ordered by their encoding, which need not be UTF-8 at the source.
    text = type(literal.value) is str and operator == "="
    kind = table.types[name]
    if (kind == "bigint" and whole_number) or (kind == "string" and text):
        return f"{quote(name)} {operator} ?", [literal.value]
    return None


def _select(
    connection: sqlite3.Connection,
    table: CapturedTable,
    columns: Sequence[str],
    conditions: Sequence[str],
    parameters: Sequence[Any],
) -> list[Key]:
    # A relation of which no column is needed still has a number of rows.
    names = ", ".join(quote(column) for column in columns) or "1"
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    query = f"SELECT {names} FROM main.{quote(table.name)}{where}"
    rows: list[Key] = connection.execute(query, parameters).fetchall()
    return rows if columns else [()] * len(rows)
