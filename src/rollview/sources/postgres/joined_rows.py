"""Changed rows of one table joined with the other tables of a block, as SQL for triggers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rollview.sources.deltas import DeltaDefinition, column_at
from rollview.sources.postgres.conditions import condition_sql
from rollview.sources.postgres.connections import quote
from rollview.sources.postgres.keys import comparable
from rollview.sources.postgres.structure import PostgresColumn, Structure

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
        for each in self.structures:
            if each.partitions or each.kind == "p":
                return f"table {each.name} is partitioned, and a trigger does not see what is done to a part"
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
        """A column of a relation."""
        return next(column for column in self.structures[place].columns if column.name == name)

    def of_changed(self, position: int, saved: str = "") -> tuple[str, str]:
        """How often a row counts, and the rest of a query behind FROM, for rows `d` changed at one place.

        The others are as they are now; less what is in a table `saved`, if one is named.
        """
        signs, tables = [f"r{position}.{ROW_SIGN}"], [f"d AS r{position}"]
        met = self.conditions(position)
        joined: set[int] = {position}
        for step in self.reached(position):
            place, table = step.place, self.structures[step.place]
            if place in joined:
                met.append(step.condition)
                continue
            joined.add(place)
            source = f"ONLY {table.qualified}"
            names = ", ".join(map(quote, self.definition.relations[place].columns))
            now = f"SELECT 1::int2 AS {ROW_SIGN}, {names} FROM {source}"
            if table.id == self.structures[position].id and place > position:
                # Places behind it see the table as it was before the statement.
                source = f"({now} UNION ALL SELECT (-{ROW_SIGN})::int2, {names} FROM d)"
                signs.append(f"r{place}.{ROW_SIGN}")
            elif saved:
                columns = self.definition.relations[place].columns
                numbers = [self.definition.columns.index((place, name)) for name in columns]
                kept = ", ".join(map(column_at, numbers))
                source = (
                    f"({now} UNION ALL SELECT (-{ROW_SIGN})::int2, {kept} FROM {saved} WHERE place = {place})"
                )
                signs.append(f"r{place}.{ROW_SIGN}")
            met += self.conditions(place)
            tables.append(f"JOIN {source} AS r{place} ON {step.condition}")
        where = f" WHERE {' AND '.join(met)}" if met else ""
        return " * ".join(signs), " ".join(tables) + where

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
