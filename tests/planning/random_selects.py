"""Random queries that are known in pieces, so that views can have more or less of what they need."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from rollview.algebra.relation import Table

WHOLE, TEXT = "bigint", "string"


@dataclass(frozen=True)
class World:
    """Tables with columns of two types, and which columns of two tables are worth joining."""

    tables: dict[str, Table]
    joins: tuple[tuple[str, str, str, str], ...]

    def columns(self, table: str) -> Iterator[tuple[str, str]]:
        """The columns of a table with their types."""
        return zip(self.tables[table].columns, self.tables[table].types, strict=True)


class Select:
    """A query that is known in pieces, so that a view can be made of some of them."""

    def __init__(self, chance: Random, world: World) -> None:
        self.chance, self.world = chance, world
        self.relations: dict[str, str] = {}
        self.conditions: list[str] = []
        self._add(chance.choice(sorted(world.tables)))
        for _ in range(chance.choice([0, 1, 1, 2])):
            self._join()
        self.is_outer = chance.random() < 0.2
        for _ in range(chance.choice([0, 1, 1, 2])):
            self.conditions.append(self._condition())

    def _add(self, table: str) -> str:
        alias = f"{self.chance.choice('abc')}{len(self.relations)}"
        self.relations[alias] = table
        return alias

    def _join(self) -> None:
        left, one, right, other = self.chance.choice(self.world.joins)
        known = [(alias, one, right, other) for alias, table in self.relations.items() if table == left]
        known += [(alias, other, left, one) for alias, table in self.relations.items() if table == right]
        if known:
            alias, own, table, theirs = self.chance.choice(known)
            self.conditions.append(f"{alias}.{own} = {self._add(table)}.{theirs}")

    def columns(self, kind: str = "") -> list[str]:
        """All columns, or those of a type."""
        return [
            f"{alias}.{column}"
            for alias, table in self.relations.items()
            for column, each in self.world.columns(table)
            if kind in ("", each)
        ]

    def _condition(self) -> str:
        texts, number = self.columns(TEXT), self.chance.randint(0, 3)
        one, other = (self.chance.choice(self.columns(WHOLE)) for _ in range(2))
        choices = [
            f"{one} {self.chance.choice(['>', '>=', '<', '<>', '='])} {number}",
            f"{one} IN ({number}, {self.chance.randint(0, 3)})",
            f"{one} IS NOT NULL",
            f"{one} {self.chance.choice(['<', '=', '<='])} {other}",
            f"({one} > {number} OR {other} IS NULL)",
            f"{self.chance.choice(texts)} = 'a'" if texts else f"{one} BETWEEN 1 AND {number}",
        ]
        return self.chance.choice(choices)

    def weaker(self) -> Select:
        """Some of its relations, and conditions that may be weaker: a view that may contain it."""
        found = Select.__new__(Select)
        found.chance, found.world = self.chance, self.world
        number = self.chance.randint(1, len(self.relations))
        kept = dict(self.chance.sample(sorted(self.relations.items()), number))
        found.is_outer = self.chance.random() < (0.8 if self.is_outer else 0.1)
        if found.is_outer:
            kept = dict(self.relations)
        names = {alias: f"v{place}" for place, alias in enumerate(kept)}
        found.relations = {names[alias]: table for alias, table in kept.items()}
        found.conditions = []
        for condition in self.conditions:
            gone = [alias for alias in self.relations if alias not in kept and f"{alias}." in condition]
            if gone or self.chance.random() < 0.3:
                continue
            text = condition
            for alias, name in names.items():
                text = text.replace(f"{alias}.", f"{name}.")
            if self.chance.random() < 0.4:
                text = text.replace(" > ", " >= ").replace("= 'a'", "IS NOT NULL")
            found.conditions.append(text)
        if self.chance.random() < 0.15:
            found.conditions.append(found._condition())
        return found

    def rows_sql(self, share: float) -> str:
        """Rows with a share of all columns."""
        columns = self.columns()
        chosen = [each for each in columns if self.chance.random() < share] or columns[:1]
        if self.chance.random() < 0.2:
            chosen.append(f"{self.chance.choice(self.columns(WHOLE))} + 1")
        distinct = "DISTINCT " if self.chance.random() < 0.1 else ""
        return f"SELECT {distinct}{self._named(chosen)} {self._rest()}"

    def groups_sql(self, share: float) -> str:
        """Groups by a share of all columns."""
        keys = [each for each in self.columns() if self.chance.random() < share]
        numbers = self.columns(WHOLE)
        chosen = self.chance.choices(numbers, k=2)
        functions = ["count(*)", f"sum({chosen[0]})", f"count({chosen[1]})", f"avg({chosen[0]})"]
        functions += [f"min({chosen[1]})", f"sum({chosen[0]} + {chosen[1]})"]
        some = self.chance.sample(functions[: self.chance.choice([4, 4, 6])], 2)
        by = f" GROUP BY {', '.join(keys)}" if keys else ""
        having = " HAVING count(*) > 1" if by and self.chance.random() < 0.1 else ""
        return f"SELECT {self._named([*keys, *some])} {self._rest()}{by}{having}"

    def sql(self, share: float, grouped: float) -> str:
        """One or the other."""
        return self.groups_sql(share) if self.chance.random() < grouped else self.rows_sql(share)

    def _named(self, expressions: list[str]) -> str:
        return ", ".join(f"{each} AS c{place}" for place, each in enumerate(expressions))

    def _rest(self) -> str:
        items = [f"{table} {alias}" for alias, table in self.relations.items()]
        on = [each for each in self.conditions if self._joins(each)][:1] if len(items) == 2 else []
        if self.is_outer and on:
            source, rest = f"{items[0]} LEFT JOIN {items[1]} ON {on[0]}", self.conditions[:]
            rest.remove(on[0])
        else:
            source, rest = ", ".join(items), self.conditions
        return f"FROM {source}" + (f" WHERE {' AND '.join(rest)}" if rest else "")

    def _joins(self, condition: str) -> bool:
        """Whether a condition is an equality of all relations."""
        return " = " in condition and all(f"{alias}." in condition for alias in self.relations)
