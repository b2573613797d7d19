"""Relations: base tables as sources declare them, their occurrences in a view, the edges between those."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property


def column_of(alias: str, name: str) -> str:
    """The name that a column of a relation has inside a block.

    None begins with a dot or a bracket: Arrow would take such a name for a path.
    """
    return f"~{alias}.{name}" if alias.startswith((".", "[", "~")) else f"{alias}.{name}"


@dataclass(frozen=True)
class ForeignKey:
    """A declared referential integrity constraint: these columns refer to the key of another table."""

    columns: tuple[str, ...]
    references: str


@dataclass(frozen=True)
class Table:
    """A base table at a source, with what is declared about it.

    `types` are the columns' Spark SQL types, where they are known. A view that another view reads is a
    table without a source. `own_log` says that the table commits and answers on its own (a Delta table, a
    folder of dumps, a view), so that its source is no more than a folder of such tables.
    """

    source: str
    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    types: tuple[str, ...] = ()
    own_log: bool = False

    @cached_property
    def qualified(self) -> str:
        """`source.table`, the name that views use; a view's name has no source."""
        return f"{self.source}.{self.name}" if self.source else self.name

    @cached_property
    def site(self) -> str:
        """The unit that commits changes in one order and answers sub-queries as one: mostly the source."""
        return self.qualified if self.own_log else self.source

    def only(self, columns: Collection[str]) -> Table:
        """The table with some of its columns, and what is declared about those alone."""
        kept = [place for place, name in enumerate(self.columns) if name in columns]
        return replace(
            self,
            columns=tuple(self.columns[place] for place in kept),
            types=tuple(self.types[place] for place in kept) if self.types else (),
            key=self.key if set(self.key) <= set(columns) else (),
            foreign_keys=tuple(each for each in self.foreign_keys if set(each.columns) <= set(columns)),
        )


@dataclass(frozen=True)
class Relation:
    """One occurrence of a table in a view; a self-join has two of one table."""

    alias: str
    table: Table

    def column(self, name: str) -> str:
        """The name of a column inside the block."""
        return column_of(self.alias, name)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """All columns, by the names they have inside the block."""
        return tuple(self.column(name) for name in self.table.columns)

    @cached_property
    def key(self) -> tuple[str, ...]:
        """The declared key, by the names inside the block; empty if none is declared."""
        return tuple(self.column(name) for name in self.table.key)


@dataclass(frozen=True)
class Edge:
    """An equality between columns of two relations, given by position; `left` < `right`."""

    left: int
    left_column: str
    right: int
    right_column: str
