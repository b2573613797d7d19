"""Kills of the server and of the process that captures: nothing is lost and nothing comes twice."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pymysql
import pytest
from mariadb_database import Database, History, Row, counted

from pages.what_if import what_if
from rollview.errors import SourceUnavailable
from servers.mariadb import MariaDBServer

pytestmark = pytest.mark.slow
_FOLDER = Path(__file__).parent


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Database]:
    """A server that may be killed. What was acknowledged must survive, so it writes through."""
    server = MariaDBServer({"sync-binlog": "1", "innodb-flush-log-at-trx-commit": "1"}).start()
    database = Database(server, "d")
    database.execute("CREATE TABLE t (id BIGINT AUTO_INCREMENT PRIMARY KEY, v INT)")
    database.setup()
    yield database
    database.source.close()
    server.close()


class Writer(threading.Thread):
    """Writes on and on, through restarts of the server, sometimes by XA."""

    def __init__(self, database: Database) -> None:
        super().__init__()
        self._database = database
        self.stopped = threading.Event()
        self.prepared: set[str] = set()
        # A crash during an XA COMMIT leaves MariaDB 10.11 itself in two minds, so no kill falls into one.
        self.deciding = threading.Lock()

    def run(self) -> None:
        chance, number = random.Random(5), 0
        while not self.stopped.is_set():
            try:
                with closing(self._database.connect(autocommit=False)) as connection:
                    while not self.stopped.is_set():
                        number += 1
                        xid = f"'x{number}'" if chance.random() < 0.3 else ""
                        self._write(connection, chance, xid)
            except (pymysql.err.Error, OSError):
                time.sleep(0.05)

    def _write(self, connection: pymysql.Connection, chance: random.Random, xid: str) -> None:
        connection.query(f"XA START {xid}" if xid else "BEGIN")
        for _ in range(chance.randint(1, 3)):
            connection.query(f"INSERT INTO t (v) VALUES ({chance.randint(0, 99)})")
        connection.query(
            f"UPDATE t SET v = v + 1 WHERE id % 7 = {chance.randint(0, 6)} ORDER BY id DESC LIMIT 3"
        )
        if chance.random() < 0.3:
            connection.query("DELETE FROM t ORDER BY id LIMIT 4")
        if xid:
            connection.query(f"XA END {xid}")
            connection.query(f"XA PREPARE {xid}")
            self.prepared.add(xid)
            with self.deciding:
                connection.query(f"XA COMMIT {xid}")
        else:
            connection.commit()


def decide_the_rest(database: Database, writer: Writer) -> None:
    """Decides what a crash left undecided, as a coordinator does: what was acknowledged may be committed."""
    for _, _, _, data in database.execute("XA RECOVER"):
        xid = f"'{data.decode() if isinstance(data, bytes) else data}'"
        database.execute(f"XA {'COMMIT' if xid in writer.prepared else 'ROLLBACK'} {xid}")


def test_oracle_kills_of_both_sides_lose_nothing_and_double_nothing(own: Database, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    ledger.write_text(json.dumps({"log_position": own.source.current_position("s"), "changes": []}) + "\n")
    chance = random.Random(11)
    writer = Writer(own)
    writer.start()
    try:
        for round_number in range(6):
            consumer = subprocess.Popen(
                [sys.executable, str(_FOLDER / "mariadb_consumer.py"), own.dsn, str(ledger)],
                env={"PYTHONPATH": ":".join(sys.path)},
            )
            time.sleep(1.2 + chance.random())
            if round_number % 2:
                with writer.deciding:
                    own.server.kill()
                own.server.start()
                time.sleep(0.7)
            consumer.kill()
            consumer.wait()
    finally:
        writer.stopped.set()
        writer.join()
    decide_the_rest(own, writer)
    lines = [json.loads(line) for line in ledger.read_text().splitlines() if line.endswith("}")]
    assert not [line["error"] for line in lines if "error" in line]
    history = History(own.source, lines[-1]["log_position"])
    history.capture()
    source_txids = [source_txid for line in lines for source_txid, _ in line["changes"]]
    source_txids += [each.source_txid for each in history.transactions]
    assert source_txids == sorted(set(source_txids)) and len(source_txids) > 50
    total: Counter[Row] = Counter()
    for line in lines:
        for _, changes in line["changes"]:
            for _, *row, count in changes:
                total[tuple(row)] += count
    for change in history.changes("t"):
        total.update(change)
    assert Counter({row: count for row, count in total.items() if count}) == own.read("t")


@what_if(
    "MariaDB",
    "the server restarts, the connection breaks, the log is rotated, `server_id` or the host changes",
    "`run` retries and continues; nothing is lost or duplicated",
    under="nothing stops",
)
def test_a_restart_of_the_server_is_a_pause(own: Database) -> None:
    history = History(own.source)
    own.execute("INSERT INTO t (v) VALUES (1)")
    history.capture()
    own.server.stop()
    with pytest.raises(SourceUnavailable, match="cannot be reached"):
        history.capture()
    assert own.source.describe()["server"].startswith("unavailable")
    own.server.start()
    own.execute("INSERT INTO t (v) VALUES (2)")
    (transaction,) = history.capture()
    assert [row[1] for row in counted(transaction.rows["s.t"])] == [2]


def test_a_prepared_transaction_outlives_the_server(own: Database) -> None:
    history = History(own.source)
    with closing(own.connect()) as writer:
        for statement in ("XA START 'x'", "INSERT INTO t (v) VALUES (7)", "XA END 'x'", "XA PREPARE 'x'"):
            writer.query(statement)
    history.capture()
    own.server.kill()
    own.server.start()
    history.capture()
    own.execute("XA COMMIT 'x'")
    (transaction,) = history.capture()
    assert [row[1] for row in counted(transaction.rows["s.t"])] == [7]


def test_connections_that_are_cut_are_reopened(own: Database) -> None:
    history = History(own.source)
    own.execute("INSERT INTO t (v) VALUES (1)")
    history.capture()
    mine = [
        number
        for number, command in own.execute("SELECT id, command FROM information_schema.processlist")
        if command in ("Sleep", "Binlog Dump")
    ]
    for number in mine:
        own.execute(f"KILL {number}")
    own.execute("INSERT INTO t (v) VALUES (2)")
    for _ in range(3):
        try:
            history.capture()
        except SourceUnavailable:
            continue
    assert [[row[1] for row in change] for change in history.changes("t")] == [[1], [2]]


def test_a_million_rows_in_one_transaction_need_little_memory(own: Database) -> None:
    """The process that captures grows by far less than the rows would take."""
    program = """
import resource, sys
from rollview.sources.mariadb import MariaDBSource
source = MariaDBSource("s", sys.argv[1])
list(source.capture("s", sys.argv[2], 10).transactions)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
(transaction,) = source.capture("s", sys.argv[3], 10).transactions
(rows,) = transaction.rows.values()
import pyarrow.parquet as pq
print(sum(pq.ParquetFile(file.path).metadata.num_rows for file in rows.files))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
source.close()
"""
    own.execute("CREATE TABLE wide (id BIGINT PRIMARY KEY, a VARCHAR(100), b VARCHAR(100), c DECIMAL(15,2))")
    own.setup()
    begin = own.source.current_position("s")
    own.execute("INSERT INTO wide SELECT seq, 'a', 'b', 1 FROM seq_1_to_150000", "DELETE FROM wide")
    middle = own.source.current_position("s")
    own.execute("INSERT INTO wide SELECT seq, REPEAT('a', 60), REPEAT('b', 60), seq FROM seq_1_to_1000000")
    run = subprocess.run(
        [sys.executable, "-c", program, own.dsn, begin, middle],
        capture_output=True, text=True, check=True, env={"PYTHONPATH": ":".join(sys.path)},
    )  # fmt: skip
    rows, kilobytes = map(int, run.stdout.split())
    assert rows == 1_000_000
    assert kilobytes < 300_000
