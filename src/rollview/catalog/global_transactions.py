"""Global transactions whose parts have not all arrived, and those that nobody waits for any more.

A user has said so (`release`), or the time that the project gives a part is over (`give_up`). Either way it
is written down before it has an effect, so that a process that dies finds the same when it comes back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
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

    def give_up(self, global_ids: Iterable[str]) -> list[Waiting]:
        """Ends the wait for those of these that still wait, in the same way; returns them."""
        with self.database.writing() as connection:
            waiting = {each.global_id for each in read_waiting(connection)}
            return [
                _release(connection, global_id, self.clock())
                for global_id in global_ids
                if global_id in waiting
            ]

    def last_released(self, since: float, most: int = 10) -> list[tuple[str, float]]:
        """The newest of those that nobody waits for, and since when."""
        newest = select(schema.released).where(_released.released_at >= since)
        with self.database.reading() as connection:
            rows = connection.execute(newest.order_by(_released.released_at.desc()).limit(most))
            return [(row.global_id, row.released_at) for row in rows]

    def released(self) -> frozenset[str]:
        """Those that nobody waits for any more."""
        with self.database.reading() as connection:
            return frozenset(connection.scalars(select(_released.global_id)))


def overdue(
    waiting: Iterable[Waiting], since: float, read_upto: Mapping[str, float], failing: Mapping[str, float]
) -> list[str]:
    """The global transactions that have waited since before a moment, each of whose missing sites had time.

    A site had time if it was read up to a commit after the wait began (`read_upto`), or to its end, and the
    part was not among it; or if it has failed since before the same moment (`failing`). One that was not read
    because nobody ran, or because there is so much of it, may still have the part.
    """

    def had_time(site: str, each: Waiting) -> bool:
        return failing[site] <= since if site in failing else read_upto.get(site, -1.0) >= each.since

    return [
        each.global_id
        for each in waiting
        if each.since <= since and all(had_time(site, each) for site in each.missing)
    ]


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
    # One that came to wait again, because its id was used twice, may have been released before.
    connection.execute(delete(schema.released).where(_released.global_id == global_id))
    connection.execute(insert(schema.released).values(global_id=global_id, released_at=now))
    connection.execute(delete(schema.waiting).where(_waiting.global_id == global_id))
    return waiting[global_id]
