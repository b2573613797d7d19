"""For the tests of partitioned tables: one with partitions of all sorts, and what is captured of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from postgres_history import Bag, Database, History, add, bag, net, table_named

from rollview.sources.postgres import PostgresSource
from rollview.sources.source import Loss, ReadResult

EVENT = (
    "CREATE TABLE event (id int, month int, note text, PRIMARY KEY (id, month)) PARTITION BY RANGE (month)",
    "CREATE TABLE event_1 PARTITION OF event FOR VALUES FROM (1) TO (2)",
    "CREATE TABLE event_2 PARTITION OF event FOR VALUES FROM (2) TO (4) PARTITION BY LIST (month)",
    "CREATE TABLE event_2a PARTITION OF event_2 FOR VALUES IN (2)",
    # Its columns are in another order, and one of them is gone.
    "CREATE TABLE event_2b (note text, unused int, month int NOT NULL, id int NOT NULL)",
    "ALTER TABLE event_2b DROP COLUMN unused",
    "ALTER TABLE event_2 ATTACH PARTITION event_2b FOR VALUES IN (3)",
    "INSERT INTO event SELECT n, n % 3 + 1, 'first' FROM generate_series(1, 9) n",
)
ADD = "CREATE TABLE event_4 PARTITION OF event FOR VALUES FROM (4) TO (5)"
LIKE = "CREATE TABLE event_4 (LIKE event INCLUDING ALL)"
FILL = "INSERT INTO event_4 VALUES (40, 4, 'old'), (41, 4, 'old')"
ATTACH = "ALTER TABLE event ATTACH PARTITION event_4 FOR VALUES FROM (4) TO (5)"


class Ledger:
    """What the table held when it was set up, and what has been captured since."""

    def __init__(self, database: Database, source: PostgresSource) -> None:
        self.database, self.source = database, source
        self.history = History(source)
        self._table = table_named(source, "event")
        found = self._read()
        self._origin: Bag = bag(found.rows[0])
        add(self._origin, self.history.changes("event", self.history.seen(found.read_point)), -1)
        self.lost = dict(self.history.lost)

    def _read(self) -> ReadResult:
        return self.source.read({self._table: self._table.columns}, Path("unused"))

    def capture(self) -> dict[str, Loss]:
        """Takes what is new; the losses of it."""
        self.history.lost.clear()
        lost: dict[str, Loss] = {}
        for each in self.history.capture():
            lost |= each.lost
        return lost | self.history.lost

    def check(self) -> None:
        """All changes are there, and a reading shows the same."""
        assert self.capture() == {}
        total: Bag = Counter(self._origin)
        for each in self.history.transactions:
            add(total, bag(each.rows["s.event"]) if "s.event" in each.rows else {})
        there = Counter(self.database.rows("SELECT id, month, note FROM event"))
        assert net(total) == there
        assert bag(self._read().rows[0]) == there

    def check_reading(self) -> None:
        """A reading shows what it has seen of the changes, while writers write."""
        found = self._read()
        total: Bag = Counter(self._origin)
        add(total, self.history.changes("event", self.history.seen(found.read_point)))
        assert bag(found.rows[0]) == net(total)


def ready(database: Database) -> Ledger:
    """The table, captured."""
    database.execute(*EVENT)
    source, _ = database.ready("event")
    return Ledger(database, source)


def write(database: Database, *months: int) -> None:
    """Rows that come, change, go, and move from the first of these months to the last."""
    for month in months:
        database.execute(
            f"INSERT INTO event SELECT coalesce(max(id), 0) + 1, {month}, 'new' FROM event",
            f"UPDATE event SET note = note || '!' WHERE month = {month}",
            f"DELETE FROM event WHERE month = {month}"
            f" AND id = (SELECT min(id) FROM event WHERE month = {month})",
        )
    first, *_, last = months
    database.execute(f"UPDATE event SET month = {last} WHERE month = {first} AND id % 2 = 0")


def identities(database: Database) -> dict[str, str]:
    """The replica identities of all partitions that hold rows."""
    found = "SELECT relname::text, relreplident::text FROM pg_class WHERE relkind = 'r' AND relispartition"
    return dict(database.rows(found))
