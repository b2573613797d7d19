"""Triggers that make view deltas: in the transaction of the writer, behind every statement that changes rows.

A trigger joins the rows of its statement with the other tables, as it sees them, and appends what comes out
to the delta table, together with a mark: how many rows were changed, and the snapshot. It waits for nobody.
Whatever goes wrong in it is passed over, so that no writer fails because of us; then there is no mark, and
the delta is computed from the log instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256

from rollview.sources.deltas import MARK, RELATION, SIGN, DeltaDefinition, column_at
from rollview.sources.postgres.address import Address
from rollview.sources.postgres.connections import quote, text_literal
from rollview.sources.postgres.joined_rows import EVENTS, JoinedRows

_FEW = 1000
_NAME = 30
"""So that the longest name made of it, that of a trigger, is not cut by the server."""


def delta_name(definition: DeltaDefinition) -> str:
    """What the delta table is called: after the view, and after all that it depends on."""
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
        """What is joined."""
        return self.rows.definition

    @property
    def name(self) -> str:
        """The delta table, as SQL text."""
        return f"{quote(self.address.delta_schema)}.{quote(delta_name(self.definition))}"

    @property
    def is_captured(self) -> bool:
        """Whether anything is appended to it. What is changed of a single table is in the log anyway."""
        return len(self.rows.structures) > 1

    @property
    def triggers(self) -> set[str]:
        """The names of its triggers, each once, whatever tables they are on."""
        return {self._trigger(event) for event in EVENTS} if self.is_captured else set()

    def _trigger(self, event: str) -> str:
        return f"rollview_{delta_name(self.definition)}_{event[0].lower()}"

    def table_statements(self) -> Iterator[str]:
        """What creates the table, in the schema that is there."""
        yield self._table()
        yield f"ALTER TABLE {self.name} REPLICA IDENTITY FULL"

    def trigger_statements(self) -> Iterator[str]:
        """What creates the functions and the triggers, again if need be."""
        for place, table in self.rows.tables.items() if self.is_captured else ():
            function = f"{quote(self.address.delta_schema)}.{quote(f'{delta_name(self.definition)}_{place}')}"
            yield f"DROP FUNCTION IF EXISTS {function}() CASCADE"
            yield function_statement(function, self._body(place))
            yield f"REVOKE ALL ON FUNCTION {function}() FROM PUBLIC"
            for event, (transition, _) in EVENTS.items():
                yield (
                    f"CREATE TRIGGER {quote(self._trigger(event))} AFTER {event} ON {table.qualified}"
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
                f"        ELSE\n            EXECUTE {text_literal(self._insert(place, rows, '$1', '$2'))}"
                " USING changed, TG_RELID;\n        END IF;\n"
            )
        return (
            "DECLARE\n    changed int8;\nBEGIN\n    "
            + "    ".join(branches)
            + "    END IF;\n    RETURN NULL;\nEXCEPTION WHEN OTHERS THEN\n    RETURN NULL;\nEND"
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
        outputs = "".join(f", {each}" for each in self._outputs())
        for position, each in enumerate(self.rows.structures):
            if each.id == self.rows.structures[place].id:
                sign, joined = self.rows.of_changed(position)
                parts.append(f"SELECT ({sign})::int2, {position}::int2, NULL{outputs} FROM {joined}")
        union = "\n            UNION ALL ".join(parts)
        return f"WITH d AS ({rows})\n            INSERT INTO {self.name} ({columns})\n            {union}"


def function_statement(name: str, body: str) -> str:
    """What creates a trigger function that runs with our rights."""
    tag = "$rollview$"
    while tag in body:
        tag = f"{tag[:-1]}_$"
    return (
        f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER"
        f" SET search_path = pg_catalog, pg_temp AS {tag}\n{body}\n{tag}"
    )
