"""Triggers that make view deltas: in the transaction of the writer, behind every statement that changes rows.

A trigger joins the rows of its statement with the other tables, as it sees them, and appends what comes out
to the delta table, together with a mark: how many rows were changed, and the snapshot. It waits for nobody.
Whatever goes wrong in it is passed over, so that no writer fails because of us; then there is no mark, and
the delta is computed from the log instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256

from rollview.sources.deltas import MARK, RELATION, SIGN, DeltaDefinition, column_at
from rollview.sources.postgres.address import Address
from rollview.sources.postgres.conditions import condition_sql
from rollview.sources.postgres.connections import quote, text_literal
from rollview.sources.postgres.keys import comparable
from rollview.sources.postgres.structure import PostgresColumn, Structure

_INTEGERS = ("int2", "int4", "int8")
_TEXTS = ("text", "varchar")
_FEW = 1000
_NAME = 40
_SIGN = "rollview_sign"
_EVENTS = {
    "INSERT": ("NEW TABLE AS new_rows", f"SELECT 1::int2 AS {_SIGN}, * FROM new_rows"),
    "DELETE": ("OLD TABLE AS old_rows", f"SELECT (-1)::int2 AS {_SIGN}, * FROM old_rows"),
    "UPDATE": (
        "OLD TABLE AS old_rows NEW TABLE AS new_rows",
        f"SELECT (-1)::int2 AS {_SIGN}, * FROM old_rows UNION ALL SELECT 1::int2, * FROM new_rows",
    ),
}


def delta_name(definition: DeltaDefinition) -> str:
    """What the delta table is called: after the view, and after all that it depends on."""
    plain = "".join(each if each.isascii() and each.isalnum() else "_" for each in definition.name.lower())
    return f"{plain[:_NAME]}_{sha256(repr(_identity(definition)).encode()).hexdigest()[:10]}"


def _identity(definition: DeltaDefinition) -> object:
    relations = [
        (each.table.qualified, each.columns, each.conditions, each.table.only(each.columns).types)
        for each in definition.relations
    ]
    return definition.name, relations, definition.equalities


@dataclass(frozen=True)
class DeltaPlan:
    """A delta table with its triggers; `structures` are the tables of its relations, in their order."""

    address: Address
    definition: DeltaDefinition
    structures: tuple[Structure, ...]

    @property
    def name(self) -> str:
        """The delta table, as SQL text."""
        return f"{quote(self.address.delta_schema)}.{quote(delta_name(self.definition))}"

    @property
    def obstacle(self) -> str:
        """Why it cannot be made; empty if it can."""
        for each in self.structures:
            if each.partitions or each.kind == "p":
                return f"table {each.name} is partitioned, and a trigger does not see what is done to a part"
        for position, each in enumerate(self.structures):
            if len(self._reached(position)) < len(self.structures):
                return (
                    f"from table {each.name} not all others are reached through equal columns of types that"
                    " PostgreSQL and Spark compare alike"
                )
        return ""

    def table_statements(self) -> Iterator[str]:
        """What creates the table, in the schema that is there."""
        yield self._table()
        yield f"ALTER TABLE {self.name} REPLICA IDENTITY FULL"

    def trigger_statements(self) -> Iterator[str]:
        """What creates the functions and the triggers, again if need be."""
        for place, table in self._changed().items():
            function = f"{quote(self.address.delta_schema)}.{quote(f'{delta_name(self.definition)}_{place}')}"
            yield f"DROP FUNCTION IF EXISTS {function}() CASCADE"
            yield self._function(function, place)
            yield f"REVOKE ALL ON FUNCTION {function}() FROM PUBLIC"
            for event, (transition, _) in _EVENTS.items():
                trigger = quote(f"rollview_{delta_name(self.definition)}_{event[0].lower()}")
                yield (
                    f"CREATE TRIGGER {trigger} AFTER {event} ON {table.qualified} REFERENCING {transition}"
                    f" FOR EACH STATEMENT EXECUTE FUNCTION {function}()"
                )

    def _changed(self) -> dict[int, Structure]:
        """Each table once, by the first place that it has."""
        found: dict[int, Structure] = {}
        for place, table in enumerate(self.structures):
            if table.id not in [each.id for each in found.values()]:
                found[place] = table
        return found

    def _table(self) -> str:
        columns = [f"0::int2 AS {SIGN}", f"0::int2 AS {RELATION}", f"''::text AS {MARK}"]
        columns += [f"{each} AS {column_at(number)}" for number, each in enumerate(self._outputs())]
        tables = [f"{each.qualified} AS r{place}" for place, each in enumerate(self.structures)]
        return (
            f"CREATE TABLE {self.name} AS SELECT {', '.join(columns)} FROM {', '.join(tables)} WITH NO DATA"
        )

    def _outputs(self) -> list[str]:
        return [f"r{place}.{quote(name)}" for place, name in self.definition.columns]

    def _function(self, name: str, place: int) -> str:
        branches: list[str] = []
        for event, (_, rows) in _EVENTS.items():
            insert = self._insert(place, rows)
            branches.append(
                f"{'IF' if not branches else 'ELSIF'} TG_OP = '{event}' THEN\n"
                f"        SELECT count(*) INTO changed FROM ({rows}) AS d;\n"
                "        IF changed = 0 THEN RETURN NULL; END IF;\n"
                # Few rows are joined by a plan that is kept; for many a plan of their own is worth making.
                f"        IF changed <= {_FEW} THEN\n            {insert};\n"
                f"        ELSE\n            EXECUTE {text_literal(self._insert(place, rows, '$1', '$2'))}"
                " USING changed, TG_RELID;\n        END IF;\n"
            )
        body = (
            "DECLARE\n    changed int8;\nBEGIN\n    "
            + "    ".join(branches)
            + "    END IF;\n    RETURN NULL;\nEXCEPTION WHEN OTHERS THEN\n    RETURN NULL;\nEND"
        )
        tag = "$rollview$"
        while tag in body:
            tag = f"{tag[:-1]}_$"
        return (
            f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER"
            f" SET search_path = pg_catalog, pg_temp AS {tag}\n{body}\n{tag}"
        )

    def _insert(self, place: int, rows: str, changed: str = "changed", table: str = "TG_RELID") -> str:
        """The statement that joins changed rows with all others, and adds the mark; all from one snapshot."""
        columns = ", ".join([SIGN, RELATION, MARK, *map(column_at, range(len(self.definition.columns)))])
        nothing = ", NULL" * len(self.definition.columns)
        parts = [
            f"SELECT 0::int2, {place}::int2, concat_ws(' ', {table}::int8, {changed}, {place},"
            " (extract(epoch FROM statement_timestamp()) * 1000000)::int8, pg_current_snapshot())"
            f"{nothing}"
        ]
        same = self.structures[place].id
        for position, table_there in enumerate(self.structures):
            if table_there.id == same:
                parts.append(self._joined(position))
        union = "\n            UNION ALL ".join(parts)
        return f"WITH d AS ({rows})\n            INSERT INTO {self.name} ({columns})\n            {union}"

    def _joined(self, position: int) -> str:
        """The rows that changed, at one place of the block, with all that they join."""
        signs, tables = [f"r{position}.{_SIGN}"], [f"d AS r{position}"]
        met = self._conditions(position)
        for place, equal in self._reached(position).items():
            if place == position:
                continue
            table = self.structures[place]
            source = f"ONLY {table.qualified}"
            if table.id == self.structures[position].id and place > position:
                # Places behind it see the table as it was before the statement.
                names = ", ".join(quote(column.name) for column in table.columns)
                source = (
                    f"(SELECT 1::int2 AS {_SIGN}, {names} FROM ONLY {table.qualified}"
                    f" UNION ALL SELECT (-{_SIGN})::int2, {names} FROM d)"
                )
                signs.append(f"r{place}.{_SIGN}")
            met += self._conditions(place)
            tables.append(f"JOIN {source} AS r{place} ON {' AND '.join(equal)}")
        where = f" WHERE {' AND '.join(met)}" if met else ""
        outputs = "".join(f", {each}" for each in self._outputs())
        counted = f"({' * '.join(signs)})::int2"
        return f"SELECT {counted}, {position}::int2, NULL{outputs} FROM {' '.join(tables)}{where}"

    def _conditions(self, place: int) -> list[str]:
        columns = {column.name: column for column in self.structures[place].columns}
        relation = self.definition.relations[place]
        found = [condition_sql(columns[each.column], each) for each in relation.conditions]
        return [f"r{place}.{text.removeprefix('t.')}" for text in found if text is not None]

    def _reached(self, position: int) -> dict[int, list[str]]:
        """The places of all relations that equal columns lead to, in an order in which they can be joined."""
        by_name = [{column.name: column for column in each.columns} for each in self.structures]
        reached: dict[int, list[str]] = {position: []}
        grown = True
        while grown:
            grown = False
            for place in range(len(self.structures)):
                if place in reached:
                    continue
                equal = list(self._equal(place, reached, by_name))
                if equal:
                    reached[place], grown = equal, True
        return reached

    def _equal(
        self, place: int, reached: Mapping[int, list[str]], by_name: list[dict[str, PostgresColumn]]
    ) -> Iterator[str]:
        """The equalities between a relation and those that are joined already."""
        for left, left_column, right, right_column in self.definition.equalities:
            ends = {left: left_column, right: right_column}
            others = [each for each in ends if each in reached and each != place]
            if place in ends and others:
                own, other = by_name[place][ends[place]], by_name[others[0]][ends[others[0]]]
                if is_joinable(own, other):
                    yield f"r{place}.{quote(own.name)} = r{others[0]}.{quote(other.name)}"


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
