"""What the propagation of each view has cost since the view was loaded."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields

from sqlalchemy import Connection, delete, insert, select

from rollview.catalog import schema
from rollview.catalog.database import Database
from rollview.catalog.effects import Worked
from rollview.catalog.records import Work


@dataclass(frozen=True)
class Works:
    """The work of all views."""

    database: Database

    def of_view(self, name: str) -> Work:
        """What a view has cost so far."""
        with self.database.reading() as connection:
            return _read(connection, name)


def add_work(connection: Connection, effect: Worked) -> None:
    """Adds what a step has cost."""
    known, own = _read(connection, effect.view), schema.work.c.view_name == effect.view
    total = {name: getattr(known, name) + value for name, value in asdict(effect.work).items()}
    connection.execute(delete(schema.work).where(own))
    connection.execute(insert(schema.work).values(view_name=effect.view, **total))


def _read(connection: Connection, view: str) -> Work:
    columns = [schema.work.c[each.name] for each in fields(Work)]
    row = connection.execute(select(*columns).where(schema.work.c.view_name == view)).one_or_none()
    return Work() if row is None else Work(*row)
