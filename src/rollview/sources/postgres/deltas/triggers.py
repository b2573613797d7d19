"""Triggers that make view deltas: in the transaction of the writer, behind every statement that changes rows.

A trigger joins the rows of its statement with the other tables, as it sees them, and appends what comes out
to the delta table, together with a mark: how many rows were changed, and the snapshot. It waits for nobody.
Errors in it are ignored, so that no writer fails because of us; then there is no mark, and
the delta is computed from the log instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256

from rollview.sources.deltas import MARK, RELATION, SIGN, DeltaDefinition, column_at
from rollview.sources.postgres.address import Address
from rollview.sources.postgres.connections import quote, text_literal
from rollview.sources.postgres.partitions import PARTITIONED
from rollview.sources.postgres.read.keys import comparable, condition_sql
from rollview.sources.postgres.structure import PostgresColumn, Structure

# Changed rows of one table joined with the other tables of a block, as SQL for triggers.

ROW_SIGN = "rollview_sign"
EVENTS = {
    "INSERT": ("NEW TABLE AS new_rows", f"SELECT 1::int2 AS {ROW_SIGN}, * FROM new_rows"),
    "DELETE": ("OLD TABLE AS old_rows", f"SELECT (-1)::int2 AS {ROW_SIGN}, * FROM old_rows"),
    "UPDATE": (
        "OLD TABLE AS old_rows NEW TABLE AS new_rows",
        f"SELECT (-1)::int2 AS {ROW_SIGN}, * FROM old_rows UNION ALL SELECT 1::int2, * FROM new_rows",
    ),
}
"""For each event of a trigger the tables that it gets, and the rows that were changed."""

_INTEGERS = ("int2", "int4", "int8")
_TEXTS = ("text", "varchar")


@dataclass(frozen=True)
class Reached:
    """A relation that is reached from another one: the pairs of its own columns and the other's."""

    place: int
    parent: int
    on: tuple[tuple[PostgresColumn, PostgresColumn], ...]

    @property
    def condition(self) -> str:
        """The equalities, as SQL text."""
        pairs = (
            f"r{self.place}.{quote(own.name)} = r{self.parent}.{quote(other.name)}" for own, other in self.on
        )
        return " AND ".join(pairs)


@dataclass(frozen=True)
class JoinedRows:
    """The tables of a block, in the order of its relations; a relation is called `r` with its place."""

    definition: DeltaDefinition
    structures: tuple[Structure, ...]

    @property
    def obstacle(self) -> str:
        """Why changes cannot be followed through the block; empty if they can."""
        for position, each in enumerate(self.structures):
            if len({step.place for step in self.reached(position)}) < len(self.structures) - 1:
                return (
                    f"from table {each.name} not all others are reached through equal columns of types that"
                    " PostgreSQL and Spark compare alike"
                )
        return ""

    @property
    def tables(self) -> dict[int, Structure]:
        """Each table once, by the first place that it has."""
        found: dict[int, Structure] = {}
        for place, table in enumerate(self.structures):
            if table.id not in [each.id for each in found.values()]:
                found[place] = table
        return found

    def column(self, place: int, name: str) -> PostgresColumn:
        return next(column for column in self.structures[place].columns if column.name == name)

    def places_of(self, place: int) -> list[int]:
        """All places of the table that is at one of them."""
        return [each for each, table in enumerate(self.structures) if table.id == self.structures[place].id]

    def of_changed(self, position: int, saved: str = "", rows: str = "d") -> tuple[str, str]:
        """How often a row counts, and the rest of a query behind FROM, for `rows` changed at one place.

        The others are as they are now; less what is in a table `saved`, if one is named.
        """
        signs, tables = [f"r{position}.{ROW_SIGN}"], [f"{rows} AS r{position}"]
        met = self.conditions(position)
        joined: set[int] = {position}
        for step in self.reached(position):
            place, table = step.place, self.structures[step.place]
            if place in joined:
                met.append(step.condition)
                continue
            joined.add(place)
            source, names = rows_of(table), ", ".join(map(quote, self.definition.relations[place].columns))
            parts = [f"SELECT 1::int2 AS {ROW_SIGN}, {names} FROM {source}"]
            if table.id == self.structures[position].id and place > position:
                # Places behind it see the table as it was before the statement.
                parts.append(f"SELECT (-{ROW_SIGN})::int2, {names} FROM d")
            if saved:
                kept = ", ".join(self.saved_columns(place))
                parts.append(f"SELECT (-{ROW_SIGN})::int2, {kept} FROM {saved} WHERE place = {place}")
            if len(parts) > 1:
                source = f"({' UNION ALL '.join(parts)})"
                signs.append(f"r{place}.{ROW_SIGN}")
            met += self.conditions(place)
            tables.append(f"JOIN {source} AS r{place} ON {step.condition}")
        where = f" WHERE {' AND '.join(met)}" if met else ""
        return " * ".join(signs), " ".join(tables) + where

    def saved_columns(self, place: int) -> list[str]:
        """What the columns of a relation are called where its rows are kept."""
        columns = self.definition.relations[place].columns
        return [column_at(self.definition.columns.index((place, name))) for name in columns]

    def conditions(self, place: int) -> list[str]:
        """The conditions on one relation."""
        relation = self.definition.relations[place]
        found = [condition_sql(self.column(place, each.column), each) for each in relation.conditions]
        return [f"r{place}.{text.removeprefix('t.')}" for text in found if text is not None]

    def reached(self, position: int) -> list[Reached]:
        """The steps by which equal columns lead to all relations that they lead to; the first are joins."""
        reached, steps = [position], list[Reached]()
        grown = True
        while grown:
            grown = False
            for place in range(len(self.structures)):
                if place not in reached:
                    found = [each for parent in reached for each in self._step(place, parent)]
                    if found:
                        steps += found
                        reached.append(place)
                        grown = True
        return steps

    def _step(self, place: int, parent: int) -> Iterator[Reached]:
        """The equalities between two relations, as far as the server can test them."""
        pairs = []
        for left, left_column, right, right_column in self.definition.equalities:
            ends = {left: left_column, right: right_column}
            if set(ends) == {place, parent}:
                own, other = self.column(place, ends[place]), self.column(parent, ends[parent])
                if is_joinable(own, other):
                    pairs.append((own, other))
        if pairs:
            yield Reached(place, parent, tuple(pairs))


def rows_of(table: Structure) -> str:
    """All rows of a table, for FROM: those of its partitions, and none of tables that inherit from it."""
    return table.qualified if table.kind == PARTITIONED else f"ONLY {table.qualified}"


def written(table: Structure) -> list[str]:
    """What statements can name to change rows of a table: itself, and all its partitions, as SQL text.

    A trigger is fired for what the statement names alone.
    """
    return [table.qualified, *(f"{quote(each.schema)}.{quote(each.name)}" for each in table.partitions)]


def is_joinable(one: PostgresColumn, other: PostgresColumn) -> bool:
    """Whether the server finds all pairs of rows in which two columns are equal to Spark."""
    if one.kind in _INTEGERS and other.kind in _INTEGERS:
        return True
    numbers = (*_INTEGERS, "numeric")
    if one.kind in numbers and other.kind in numbers:
        return comparable(one.type, other.type) and comparable(other.type, one.type)
    if one.kind in _TEXTS and other.kind in _TEXTS:
        return one.type == other.type == "string"
    return one.type_id == other.type_id and comparable(one.type, other.type)


_FEW = 1000
_NAME = 30
"""So that the longest name made of it, that of a trigger, is not cut by the server."""


def delta_name(definition: DeltaDefinition) -> str:
    """The name of the delta table: from the view, and from all that it depends on."""
    plain = "".join(each if each.isascii() and each.isalnum() else "_" for each in definition.name.lower())
    return f"{plain[:_NAME]}_{sha256(repr(_identity(definition)).encode()).hexdigest()[:10]}"


def _identity(definition: DeltaDefinition) -> object:
    relations = [
        (each.table.qualified, each.columns, each.conditions, each.table.only(each.columns).types)
        for each in definition.relations
    ]
    return definition.name, relations, definition.equalities, definition.applied


@dataclass(frozen=True)
class DeltaPlan:
    """A delta table with its triggers."""

    address: Address
    rows: JoinedRows

    @property
    def definition(self) -> DeltaDefinition:
        return self.rows.definition

    @property
    def name(self) -> str:
        """The delta table, as SQL text."""
        return f"{quote(self.address.delta_schema)}.{quote(delta_name(self.definition))}"

    @property
    def is_captured(self) -> bool:
        """Whether anything is appended to it."""
        return self.definition.is_captured

    @property
    def triggers(self) -> set[str]:
        """The names of its triggers, each once, whatever tables they are on."""
        return {self._trigger(event) for event in EVENTS} if self.is_captured else set()

    def _trigger(self, event: str) -> str:
        return f"rollview_{delta_name(self.definition)}_{event[0].lower()}"

    def table_statements(self) -> Iterator[str]:
        """The statements that create the table, in the existing schema."""
        yield self._table()
        yield f"ALTER TABLE {self.name} REPLICA IDENTITY FULL"

    def trigger_statements(self) -> Iterator[str]:
        """The statements that create or replace the functions and the triggers."""
        for place, table in self.rows.tables.items() if self.is_captured else ():
            function = f"{quote(self.address.delta_schema)}.{quote(f'{delta_name(self.definition)}_{place}')}"
            yield f"DROP FUNCTION IF EXISTS {function}() CASCADE"
            yield function_statement(function, self._body(place))
            yield f"REVOKE ALL ON FUNCTION {function}() FROM PUBLIC"
            for event, (transition, _) in EVENTS.items():
                for name in written(table):
                    yield (
                        f"CREATE TRIGGER {quote(self._trigger(event))} AFTER {event} ON {name}"
                        f" REFERENCING {transition} FOR EACH STATEMENT EXECUTE FUNCTION {function}()"
                    )

    def _table(self) -> str:
        columns = [f"0::int2 AS {SIGN}", f"0::int2 AS {RELATION}", f"''::text AS {MARK}"]
        columns += [f"{each} AS {column_at(number)}" for number, each in enumerate(self._outputs())]
        tables = [f"{each.qualified} AS r{place}" for place, each in enumerate(self.rows.structures)]
        query = f"SELECT {', '.join(columns)} FROM {', '.join(tables)}"
        return f"CREATE TABLE {self.name} AS {query} WITH NO DATA"

    def _outputs(self) -> list[str]:
        return [f"r{place}.{quote(name)}" for place, name in self.definition.columns]

    def _body(self, place: int) -> str:
        branches: list[str] = []
        for event, (_, rows) in EVENTS.items():
            insert = self._insert(place, rows)
            branches.append(
                f"{'IF' if not branches else 'ELSIF'} TG_OP = '{event}' THEN\n"
                f"        SELECT count(*) INTO changed FROM ({rows}) AS d;\n"
                "        IF changed = 0 THEN RETURN NULL; END IF;\n"
                # Few rows are joined by a plan that is kept; for many a plan of their own is worth making.
                f"        IF changed <= {_FEW} THEN\n            {insert};\n"
                f"        ELSE\n            EXECUTE {text_literal(self._insert(place, rows, '$1'))}"
                " USING changed;\n        END IF;\n"
            )
        return (
            "DECLARE\n    changed int8;\nBEGIN\n    "
            + "    ".join(branches)
            + "    END IF;\n    RETURN NULL;\nEXCEPTION WHEN OTHERS THEN\n    RETURN NULL;\nEND"
        )

    def _insert(self, place: int, rows: str, changed: str = "changed") -> str:
        """The statement that joins changed rows with all others, and adds the mark; all from one snapshot."""
        columns = ", ".join([SIGN, RELATION, MARK, *map(column_at, range(len(self.definition.columns)))])
        nothing = ", NULL" * len(self.definition.columns)
        parts = [
            f"SELECT 0::int2, {place}::int2,"
            f" concat_ws(' ', {self.rows.structures[place].id}, {changed}, {place},"
            " (extract(epoch FROM statement_timestamp()) * 1000000)::int8, pg_current_snapshot())"
            f"{nothing}"
        ]
        outputs = "".join(f", {each}" for each in self._outputs())
        for position, each in enumerate(self.rows.structures):
            if each.id == self.rows.structures[place].id:
                sign, joined = self.rows.of_changed(position)
                parts.append(f"SELECT ({sign})::int2, {position}::int2, NULL{outputs} FROM {joined}")
        union = "\n            UNION ALL ".join(parts)
        return f"WITH d AS ({rows})\n            INSERT INTO {self.name} ({columns})\n            {union}"


def function_statement(name: str, body: str) -> str:
    """What creates a trigger function that runs with our rights."""
    return (
        f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER"
        f" SET search_path = pg_catalog, pg_temp AS {quoted(body)}"
    )


def quoted(body: str) -> str:
    """The body of a function as SQL text."""
    tag = "$rollview$"
    while tag in body:
        tag = f"{tag[:-1]}_$"
    return f"{tag}\n{body}\n{tag}"
