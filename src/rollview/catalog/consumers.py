"""The consumers of view deltas, and how far each has come (beyer2000 §1.2: one delta, many uses)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import Connection, delete, insert, select, update

from rollview.catalog import schema
from rollview.catalog.database import Database
from rollview.catalog.records import Consumer

_own = schema.consumer.c


@dataclass(frozen=True)
class Consumers:
    """The consumers of all views."""

    database: Database
    clock: Callable[[], float]

    def of(self, view: str | None = None) -> list[Consumer]:
        """Those of a view, or all of them; the one that is furthest behind first."""
        with self.database.reading() as connection:
            return read_consumers(connection, view)

    def named(self, view: str, name: str) -> Consumer | None:
        """One of them; None if there is none of this name."""
        return next((each for each in self.of(view) if each.name == name), None)

    def place(self, view: str, name: str, generation: int, csn: int) -> None:
        """A consumer has all up to a csn; a new one begins there."""
        now = {"generation": generation, "csn": csn, "acknowledged_at": self.clock()}
        with self.database.writing() as connection:
            own = update(schema.consumer).where(_own.view_name == view, _own.name == name)
            if connection.execute(own.values(**now)).rowcount == 0:
                connection.execute(insert(schema.consumer).values(view_name=view, name=name, **now))

    def drop(self, view: str, name: str) -> bool:
        """Forgets a consumer; whether there was one."""
        gone = delete(schema.consumer).where(_own.view_name == view, _own.name == name)
        with self.database.writing() as connection:
            return connection.execute(gone).rowcount > 0


def read_consumers(connection: Connection, view: str | None = None) -> list[Consumer]:
    """Those of a view, or all of them; the one that is furthest behind first."""
    chosen = select(schema.consumer).order_by(_own.generation, _own.csn, _own.name)
    if view is not None:
        chosen = chosen.where(_own.view_name == view)
    return [
        Consumer(row.view_name, row.name, row.generation, row.csn, row.acknowledged_at)
        for row in connection.execute(chosen)
    ]
