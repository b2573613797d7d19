"""Either side is killed, or restarted, or cut off: nothing is lost and nothing comes twice."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import psycopg
import pytest
from postgres_consumer import kept
from postgres_history import Database, History, bag, read

from pages.what_if import what_if
from rollview.errors import SourceUnavailable
from rollview.sources.postgres import PostgresSource
from servers.postgres import PostgresServer

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
ROUNDS = 5
# A transaction that is left prepared when the server dies keeps its locks: others must not wait for ever.
_PATIENCE = "-c lock_timeout=500ms"


@pytest.fixture
def durable() -> Iterator[Database]:
    server = PostgresServer(durable=True)
    server.start()
    opened = Database(server, "crash")
    opened.execute("CREATE TABLE item (id serial PRIMARY KEY, size int)")
    yield opened
    opened.close()
    server.remove()


def run(script: str, *arguments: str) -> subprocess.Popen[bytes]:
    path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, str(HERE / script), *arguments],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
    )


class Writer(threading.Thread):
    """Writes small transactions, some of them prepared first, through restarts of the server."""

    def __init__(self, dsn: str, number: int) -> None:
        super().__init__(daemon=True)
        self.dsn, self.number, self.stopped = dsn, number, False

    def run(self) -> None:
        chance, count = random.Random(self.number), 0
        while not self.stopped:
            try:
                with psycopg.connect(self.dsn, autocommit=True, options=_PATIENCE) as connection:
                    while not self.stopped:
                        count += 1
                        self.write(connection, chance, f"{self.number}-{count}")
            except psycopg.Error:
                time.sleep(0.05)

    def write(
        self, connection: psycopg.Connection[tuple[object, ...]], chance: random.Random, name: str
    ) -> None:
        connection.execute("BEGIN")
        connection.execute("INSERT INTO item (size) SELECT %s FROM generate_series(1, 3)", (self.number,))
        connection.execute("UPDATE item SET size = size + 10 WHERE id = (SELECT max(id) - 9 FROM item)")
        connection.execute("DELETE FROM item WHERE id < (SELECT max(id) - 200 FROM item)")
        if chance.random() < 0.2:
            connection.execute(f"PREPARE TRANSACTION '{name}'")
            connection.execute(f"{chance.choice(['COMMIT', 'ROLLBACK'])} PREPARED '{name}'")
        else:
            connection.execute(chance.choice(["COMMIT", "COMMIT", "ROLLBACK"]))


def test_nothing_is_lost_or_doubled_when_both_sides_are_killed(durable: Database, tmp_path: Path) -> None:
    source, history = durable.ready()
    source.close()
    path = tmp_path / "kept"
    path.write_text(json.dumps({"after": "", "upto": history.log_position, "changes": []}) + "\n")
    writers = [Writer(durable.dsn, number) for number in range(4)]
    for writer in writers:
        writer.start()
    for number in range(ROUNDS):
        consumer = run("postgres_consumer.py", durable.dsn, str(path))
        time.sleep(1.5 + 0.3 * number)
        if number in (1, 3):
            durable.server.kill()
            durable.server.start()
            time.sleep(1.0)
        consumer.kill()
        consumer.communicate()
    for writer in writers:
        writer.stopped = True
    for writer in writers:
        writer.join(30)
    assert not any(writer.is_alive() for writer in writers)
    end_prepared(durable)
    batches = kept(path)
    assert all(one["upto"] == other["after"] for one, other in pairwise(batches))
    last = PostgresSource("s", durable.dsn, {})
    rest = History(last, batches[-1]["upto"])
    rest.capture()
    found = bag(read(last, "item").rows[0])
    last.close()
    source_txids = [source_txid for batch in batches for source_txid, _ in batch["changes"]] + [
        each.source_txid for each in rest.transactions
    ]
    assert len(source_txids) > 100 and len(set(source_txids)) == len(source_txids)
    state: Counter[tuple[object, ...]] = Counter()
    for batch in batches:
        for _, changes in batch["changes"]:
            for *row, count in changes:
                state[tuple(row)] += count
    for each in rest.transactions:
        for row, count in bag(each.rows["s.item"]).items():
            state[row] += count
    assert {row: count for row, count in state.items() if count} == found


def end_prepared(durable: Database) -> None:
    """What the writers left behind when the server died."""
    with psycopg.connect(durable.dsn, autocommit=True) as connection:
        for (gid,) in connection.execute("SELECT gid FROM pg_prepared_xacts").fetchall():
            connection.execute(f"COMMIT PREPARED '{gid}'")


@what_if(
    "PostgreSQL",
    "the server restarts, the connection breaks",
    "`run` retries; nothing is lost or duplicated",
)
def test_a_restart_of_the_server_is_survived_by_the_same_process(durable: Database) -> None:
    source, history = durable.ready()
    durable.execute("INSERT INTO item VALUES (1, 1)")
    assert len(history.capture(acknowledge=True)) == 1
    for number, end in enumerate((durable.server.stop, durable.server.kill), 2):
        began = time.monotonic()
        end()
        assert time.monotonic() - began < 30, "the server waited for its reader"
        with pytest.raises(SourceUnavailable):
            source.capture("s", history.log_position, 10)
        with pytest.raises(SourceUnavailable):
            source.tables()
        assert source.describe()["server"].startswith("unavailable: ")
        durable.server.start()
        with psycopg.connect(durable.dsn) as connection:
            connection.execute("INSERT INTO item VALUES (%s, 0)", (number,))
        assert [list(bag(each.rows["s.item"])) for each in history.capture(acknowledge=True)] == [
            [(number, 0)]
        ]
        assert sum(bag(read(source, "item").rows[0]).values()) == number


def test_a_connection_that_is_lost_in_the_middle_of_a_batch(durable: Database) -> None:
    source, history = durable.ready()
    cut = threading.Event()

    def cut_off() -> None:
        with psycopg.connect(durable.dsn, autocommit=True) as connection:
            while not cut.wait(0.05):
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'walsender'"
                )

    for _ in range(20):
        durable.execute("INSERT INTO item (size) SELECT 1 FROM generate_series(1, 2000)")
    thread = threading.Thread(target=cut_off)
    thread.start()
    deadline = time.monotonic() + 20
    while len(history.transactions) < 20 and time.monotonic() < deadline:
        try:
            batch = source.capture("s", history.log_position, 1000)
            history.keep(batch.transactions, batch.log_position)
        except SourceUnavailable:
            pass
    cut.set()
    thread.join()
    history.capture()
    assert len(history.transactions) == 20
    assert sum(sum(bag(each.rows["s.item"]).values()) for each in history.transactions) == 40_000


def test_an_idle_stream_is_let_go_so_that_the_server_can_stop(durable: Database) -> None:
    from rollview.sources.postgres.log.log_reader import LogReader

    source, history = durable.ready()
    source._log = LogReader(source._address, source._connections, hold_seconds=2.0)
    history.capture()
    active = "SELECT active FROM pg_replication_slots"
    assert durable.rows(active) == [(True,)]
    deadline = time.monotonic() + 60
    while durable.rows(active) == [(True,)] and time.monotonic() < deadline:
        time.sleep(0.05)
    assert durable.rows(active) == [(False,)]
    durable.execute("INSERT INTO item VALUES (1, 1)")
    assert len(history.capture()) == 1


@what_if(
    "PostgreSQL",
    "rollview is stopped",
    "the server keeps its log for the slot: `status` shows how much. If rollview stays stopped "
    "for long, drop the slot",
)
def test_what_is_not_forgotten_is_kept_and_what_is_forgotten_is_let_go(durable: Database) -> None:
    source, history = durable.ready()
    confirmed = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots"
    before = durable.rows(confirmed)
    for number in range(5):
        durable.execute(f"INSERT INTO item VALUES ({number}, 0)")
        history.capture()
    assert durable.rows(confirmed) == before
    source.acknowledge("s", history.log_position)
    deadline = time.monotonic() + 60
    while durable.rows(confirmed) == before and time.monotonic() < deadline:
        time.sleep(0.02)
    assert durable.rows(confirmed) == [(history.log_position.partition(" ")[0],)]


def test_a_million_rows_in_one_transaction_take_bounded_memory(durable: Database) -> None:
    source, history = durable.ready()
    source.close()
    durable.execute("INSERT INTO item SELECT i, i % 1000 FROM generate_series(1, 1000000) AS i")
    process = run("large_transaction.py", durable.dsn, history.log_position)
    output, _ = process.communicate(timeout=300)
    rows, before, after = map(int, output.split())
    assert rows == 1_000_000
    assert after - before < 250, f"{before} MB, then {after} MB"
