"""Global transactions whose parts have not all arrived, and those that a user decided not to wait for."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection, delete, insert, select

from rollview.catalog import schema
from rollview.catalog.database import Database
from rollview.catalog.records import Waiting
from rollview.errors import NotWaiting

_waiting, _released = schema.waiting.c, schema.released.c


@dataclass(frozen=True)
class GlobalTransactions:
    """Those that hold up a site because a part has not come, and those that nobody waits for."""

    database: Database
    clock: Callable[[], float]

    def waiting(self) -> list[Waiting]:
        """Those that wait, the oldest first."""
        with self.database.reading() as connection:
            return read_waiting(connection)

    def wait_for(self, found: Sequence[Waiting]) -> None:
        """Exactly these wait now."""
        with self.database.writing() as connection:
            _set_waiting(connection, found, self.clock())

    def release(self, global_id: str) -> Waiting:
        """Ends the wait for one: its parts count as transactions of their own."""
        with self.database.writing() as connection:
            return _release(connection, global_id, self.clock())

    def released(self) -> frozenset[str]:
        """Those that nobody waits for any more."""
        with self.database.reading() as connection:
            return frozenset(connection.scalars(select(_released.global_id)))


def read_waiting(connection: Connection) -> list[Waiting]:
    """Those that wait, the oldest first."""
    rows = connection.execute(select(schema.waiting).order_by(_waiting.since, _waiting.global_id))
    return [
        Waiting(row.global_id, tuple(json.loads(row.present)), tuple(json.loads(row.missing)), row.since)
        for row in rows
    ]


def _set_waiting(connection: Connection, found: Sequence[Waiting], now: float) -> None:
    """These wait, and no others; who waited before has done so since then."""
    since = {each.global_id: each.since for each in read_waiting(connection)}
    connection.execute(delete(schema.waiting))
    for each in found:
        kept = replace(each, since=since.get(each.global_id, now))
        connection.execute(
            insert(schema.waiting).values(
                global_id=kept.global_id,
                present=json.dumps(kept.present),
                missing=json.dumps(kept.missing),
                since=kept.since,
            )
        )


def _release(connection: Connection, global_id: str, now: float) -> Waiting:
    """From now on every part of it is a transaction of its own."""
    waiting = {each.global_id: each for each in read_waiting(connection)}
    if global_id not in waiting:
        names = ", ".join(waiting) or "none"
        raise NotWaiting(
            f"no global transaction {global_id} is waiting for a part",
            subject=global_id,
            hint=f"waiting: {names}; `rollview status` shows them",
        )
    connection.execute(insert(schema.released).values(global_id=global_id, released_at=now))
    connection.execute(delete(schema.waiting).where(_waiting.global_id == global_id))
    return waiting[global_id]
