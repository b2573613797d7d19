"""Where writers keep view deltas (beyer2000 §4), side by side on PostgreSQL: what each place costs whom.

    python benchmarks/delta_storage.py --seconds 10 --work 5

| place | what a writer does besides | what was committed is found by |
|---|---|---|
| none | nothing | – |
| own | appends to a delta table for each view, as rollview's triggers do | decoding the log |
| shared | appends to one delta table for all views, rows as JSON | decoding the log |
| records | as `own`, with a commit record in each delta table under the lock of §4.2 (§4.5) | Algorithm 2 |
| commits | as `own`, with one record in a commit table under the lock of §4.2 (§4.5) | Algorithm 2 |
| log | writes messages into the log | decoding the log |

Eight writers sell to customers of one state; three views count and sum up the sales. The lock of §4.2 is
taken before the clock is read and held until the end, shared among writers, and a refresh waits for them. So
a refresh runs all the time, too: every 0.2 s it finds what is new. The places take turns. `waiting` is the
number of writers that wait for a lock, sampled every 10 ms. It fails if a record is lost or found twice.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles

import psycopg

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from servers.postgres import PostgresServer

_Connection = psycopg.Connection[tuple[object, ...]]
VIEWS = 3
CUSTOMERS = 10_000
WRITERS = 8
PLACES = ("none", "own", "shared", "records", "commits", "log")
_LOCK = 20000402
_TABLES = f"""
    CREATE TABLE customer (cust_id INT PRIMARY KEY, state TEXT);
    CREATE TABLE sales (sale_id INT PRIMARY KEY, cust_id INT, amount INT);
    INSERT INTO customer SELECT n, 'WI' FROM generate_series(1, {CUSTOMERS}) n;
"""
_JOIN = "SELECT c.state, 1 AS n, d.amount FROM new_rows d JOIN customer c ON c.cust_id = d.cust_id"
_XID = "pg_current_xact_id()::text::int8"
_STORE = {
    "own": f"INSERT INTO delta_{{view}} (xid, state, n, amount) SELECT {_XID}, j.* FROM ({_JOIN}) j;",
    "shared": f"INSERT INTO delta SELECT {_XID}, {{view}}, to_jsonb(j) FROM ({_JOIN}) j;",
    "log": f"PERFORM pg_logical_emit_message(true, 'delta {{view}}', to_jsonb(j)::text) FROM ({_JOIN}) j;",
}
_STORE |= {"records": _STORE["own"], "commits": _STORE["own"]}
_OWN = "CREATE TABLE delta_{view} (xid INT8, state TEXT, n INT, amount INT, committed TIMESTAMPTZ);"
_COMMIT = "CREATE TABLE commits (xid INT8, committed TIMESTAMPTZ); CREATE INDEX ON commits (committed);"
_RECORD = {
    "commits": f"INSERT INTO commits VALUES ({_XID}, clock_timestamp());",
    "records": " ".join(
        f"INSERT INTO delta_{view} (xid, committed) VALUES ({_XID}, clock_timestamp());"
        for view in range(VIEWS)
    ),
}
"""What a deferred trigger does before the commit."""


def _set_up(connection: _Connection, place: str) -> None:
    """Tables, and the trigger that stores the delta of each view."""
    connection.execute(_TABLES.encode())
    if place == "none":
        return
    if place in ("own", "records", "commits"):
        for view in range(VIEWS):
            connection.execute(_OWN.format(view=view).encode())
            if place == "records":
                connection.execute(f"CREATE INDEX ON delta_{view} (committed)".encode())
            if place != "own":
                connection.execute(f"CREATE INDEX ON delta_{view} (xid)".encode())
    elif place == "shared":
        connection.execute("CREATE TABLE delta (xid INT8, view INT2, row JSONB)")
    if place == "commits":
        connection.execute(_COMMIT.encode())
    body = " ".join(_STORE[place].format(view=view) for view in range(VIEWS))
    _trigger(
        connection,
        "store",
        body,
        "AFTER INSERT ON sales REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT",
    )
    if place in _RECORD:
        # Shared among writers; a refresh waits for those who may have read the clock before it looks.
        body = f"PERFORM pg_advisory_xact_lock_shared({_LOCK}); {_RECORD[place]}"
        when = "AFTER INSERT ON sales DEFERRABLE INITIALLY DEFERRED FOR EACH ROW"
        _trigger(connection, "record", body, when, "CONSTRAINT ")
    if tables := _logged(place):
        connection.execute(f"CREATE PUBLICATION deltas FOR TABLE {tables}".encode())


def _trigger(connection: _Connection, name: str, body: str, when: str, kind: str = "") -> None:
    function = f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql"
    connection.execute(f"{function} AS $$BEGIN {body} RETURN NULL; END$$".encode())
    connection.execute(f"CREATE {kind}TRIGGER {name} {when} EXECUTE FUNCTION {name}()".encode())


def _logged(place: str) -> str:
    """The delta tables that are read from the log."""
    if place == "own":
        return ", ".join(f"delta_{view}" for view in range(VIEWS))
    return {"shared": "delta", "log": "customer"}.get(place, "")


@dataclass
class Measured:
    """Of one place: how long transactions and refreshes took, who waited, and how much was written."""

    taken: list[float] = field(default_factory=list)
    refreshes: list[float] = field(default_factory=list)
    found: int = 0
    waits: int = 0
    samples: int = 0
    log_bytes: int = 0
    table_bytes: int = 0


class Shop:
    """A database per place, all on one server."""

    def __init__(self, server: PostgresServer, work: float) -> None:
        self.work = work
        self.numbers = itertools.count(1)
        self.measured = {place: Measured() for place in PLACES}
        self.since: dict[str, str] = {}
        self.dsns: dict[str, str] = {}
        for place in PLACES:
            self.dsns[place] = server.create_database(f"delta_{place}")
            with psycopg.connect(self.dsns[place]) as connection:
                _set_up(connection, place)
            with psycopg.connect(self.dsns[place], autocommit=True) as connection:
                if _logged(place):
                    connection.execute(
                        f"SELECT pg_create_logical_replication_slot('s_{place}', 'pgoutput')".encode()
                    )
                now = connection.execute("SELECT clock_timestamp()::text").fetchone()
                assert now is not None
                self.since[place] = str(now[0])

    def run(self, place: str, seconds: float) -> None:
        """Lets writers, a refresh and a sampler work for a while."""
        measured, end = self.measured[place], time.monotonic() + seconds
        before = self._log_position(place)
        threads = [threading.Thread(target=self._write, args=(place, end)) for _ in range(WRITERS)]
        threads += [
            threading.Thread(target=self._repeat, args=(place, end, pause, work))
            for pause, work in ((0.2, self._refresh), (0.01, self._sample))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        measured.log_bytes += self._log_position(place) - before
        with psycopg.connect(self.dsns[place]) as connection:
            size = connection.execute(
                "SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::int8 FROM pg_class"
                " WHERE relkind = 'r' AND (relname LIKE 'delta%' OR relname = 'commits')"
            ).fetchone()
            assert size is not None
            measured.table_bytes = int(str(size[0]))
            self._refresh(place, connection)

    def _write(self, place: str, end: float) -> None:
        taken = self.measured[place].taken
        with psycopg.connect(self.dsns[place]) as connection:
            while time.monotonic() < end:
                number, began = next(self.numbers), time.monotonic()
                connection.execute("INSERT INTO sales VALUES (%s, %s, 1)", (number, 1 + number % CUSTOMERS))
                time.sleep(self.work / 1000)
                connection.commit()
                taken.append(time.monotonic() - began)

    def _repeat(
        self,
        place: str,
        end: float,
        pause: float,
        work: Callable[[str, _Connection], None],
    ) -> None:
        with psycopg.connect(self.dsns[place], autocommit=True) as connection:
            while time.monotonic() < end:
                work(place, connection)
                time.sleep(pause)

    def _sample(self, place: str, connection: _Connection) -> None:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event_type = 'Lock'"
        ).fetchone()
        assert row is not None
        self.measured[place].waits += int(str(row[0]))
        self.measured[place].samples += 1

    def _refresh(self, place: str, connection: _Connection) -> None:
        """Finds what was committed since the last time, and adds it up by group."""
        if place == "none":
            return
        began = time.monotonic()
        found = self._by_log(place, connection) if _logged(place) else self._by_records(place, connection)
        self.measured[place].refreshes.append(time.monotonic() - began)
        self.measured[place].found += found

    def _by_log(self, place: str, connection: _Connection) -> int:
        """Counts the inserted rows or the messages; the server has decoded and sent all of them."""
        rows = connection.execute(
            "SELECT get_byte(data, 0), data FROM pg_logical_slot_get_binary_changes(%s, NULL, NULL,"
            " 'proto_version', '1', 'publication_names', 'deltas', 'messages', 'true')",
            (f"s_{place}",),
        ).fetchall()
        return sum(kind in (ord("I"), ord("M")) for kind, _ in rows)

    def _by_records(self, place: str, connection: _Connection) -> int:
        """Algorithm 2: passes the lock, finds the transactions of the interval, retrieves their records."""
        now = connection.execute("SELECT clock_timestamp()::text").fetchone()
        assert now is not None
        upto, after, found = str(now[0]), self.since[place], 0
        with connection.transaction():
            connection.execute(f"SELECT pg_advisory_xact_lock({_LOCK})".encode())
        for view in range(VIEWS):
            table = "commits" if place == "commits" else f"delta_{view}"
            row = connection.execute(
                "SELECT coalesce(sum(n), 0) FROM"
                f" (SELECT state, sum(d.n) AS n, sum(d.amount) FROM delta_{view} d"
                f" WHERE d.state IS NOT NULL AND d.xid IN (SELECT c.xid FROM {table} c WHERE c.committed > %s"
                " AND c.committed <= %s) GROUP BY state) g".encode(),
                (after, upto),
            ).fetchone()
            assert row is not None
            found += int(str(row[0]))
        self.since[place] = upto
        return found

    def _log_position(self, place: str) -> int:
        with psycopg.connect(self.dsns[place]) as connection:
            row = connection.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()
        assert row is not None
        return int(str(row[0]))


def main() -> int:
    """Measures and prints a table; 1 if a place has lost or repeated a record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each place in each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", type=float, default=5.0, help="milliseconds between INSERT and COMMIT")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    options = parser.parse_args()
    server = PostgresServer(durable=True)
    server.start()
    try:
        shop = Shop(server, options.work)
        for _ in range(options.rounds):
            for place in PLACES:
                shop.run(place, options.seconds)
    finally:
        server.remove()
    print(f"{WRITERS} writers, {VIEWS} views, {options.work:g} ms of other work in each transaction")
    heads = ("place", "tx/s", "median ms", "p95 ms", "waiting", "log B/tx", "table B/tx", "find µs/tx")
    print(f"{heads[0]:<8}" + "".join(f"{each:>12}" for each in heads[1:]))
    figures = {}
    for place, each in shop.measured.items():
        number = len(each.taken)
        figures[place] = {
            "tx/s": number / (options.seconds * options.rounds),
            "median ms": 1e3 * median(each.taken),
            "p95 ms": 1e3 * quantiles(each.taken, n=20)[-1],
            "waiting": each.waits / max(each.samples, 1),
            "log B/tx": each.log_bytes / number,
            "table B/tx": each.table_bytes / number,
            "find µs/tx": 1e6 * sum(each.refreshes) / number,
        }
        print(
            f"{place:<8}"
            + "".join(f"{value:>12,.{0 if value >= 100 else 2}f}" for value in figures[place].values())
        )
    wrong = [
        place
        for place, each in shop.measured.items()
        if place != "none" and each.found != VIEWS * len(each.taken)
    ]
    if wrong:
        print(f"records were lost or repeated: {', '.join(wrong)}")
    if options.json:
        options.json.write_text(json.dumps({"work_ms": options.work, "places": figures}, indent=2))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
