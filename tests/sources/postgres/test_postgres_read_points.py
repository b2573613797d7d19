"""What a reading saw, under many writers: every answer equals the captured history as far as it was seen."""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from postgres_history import Bag, Database, History, add, bag, net, read

from rollview.algebra.history import Seen
from rollview.sources.postgres.position import log_position_of
from servers.postgres import PostgresServer, binaries

pytestmark = pytest.mark.slow

SECONDS = float(os.environ.get("ROLLVIEW_SIGHT_SECONDS", "6"))
WRITERS = 8


def bank(database: Database) -> None:
    """Accounts that transfer money, and notes that come and go."""
    database.execute(
        "CREATE TABLE account (id int PRIMARY KEY, balance numeric(12,2) NOT NULL)",
        "CREATE TABLE note (id bigserial PRIMARY KEY, account int, text text)",
        "INSERT INTO account SELECT i, 100 FROM generate_series(1, 60) AS i",
    )


def writers(database: Database, seconds: float) -> subprocess.Popen[bytes]:
    """Native clients, so that commits really meet. What fails is tried again."""
    command = [str(binaries() / "pgbench"), "-n", "-c", str(WRITERS), "-j", "2", "-T", str(int(seconds)),
               "--max-tries", "20", "-f", str(Path(__file__).parent / "bank.sql"), database.dsn]  # fmt: skip
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


@pytest.fixture
def durable() -> Iterator[Database]:
    """A server that waits for its disk, and a little for other commits: what is logged is not visible yet."""
    server = PostgresServer({"commit_delay": "1000", "commit_siblings": "2"}, durable=True)
    server.start()
    opened = Database(server, "bank")
    yield opened
    opened.close()
    server.remove()


def test_oracle_every_reading_equals_the_replay_of_what_it_saw(durable: Database, tmp_path: Path) -> None:
    bank(durable)
    source, _ = durable.ready()
    accounts, notes = sorted(source.tables(), key=lambda table: table.name)
    running = writers(durable, SECONDS)
    time.sleep(0.3)
    history = History(source)
    chance = random.Random(7)
    readings: list[tuple[Bag, Bag, str]] = []
    origins: list[tuple[int, str]] = []
    while running.poll() is None:
        origin = ""
        if chance.random() < 0.1:
            origin = source.current_position("s")
        found = source.read({accounts: accounts.columns, notes: notes.columns}, tmp_path)
        if origin:
            origins.append((log_position_of(origin).position, found.read_point))
        readings.append((bag(found.rows[0]), bag(found.rows[1]), found.read_point))
        if chance.random() < 0.3:
            taken = source.capture("s", history.log_position, chance.choice([1, 50, 100_000]))
            history.keep(taken.transactions, taken.log_position)
            source.acknowledge("s", taken.log_position)
    assert running.returncode == 0
    history.capture(acknowledge=True)
    first = history.seen(readings[0][2])
    bases = []
    for place, name in enumerate(("account", "note")):
        base = Counter(readings[0][place])
        add(base, history.changes(name, first), -1)
        bases.append(net(base))
    ordered = sorted(
        (history.seen(read_point).upto, number) for number, (_, _, read_point) in enumerate(readings)
    )
    assert len(ordered) > 20 and len(history.transactions) > 500
    with_holes = 0
    for place, name in enumerate(("account", "note")):
        state, upto = Counter(bases[place]), 0
        for next_upto, number in ordered:
            for version in range(upto + 1, next_upto + 1):
                add(state, changes_of(history, name, version))
            upto = next_upto
            seen = history.seen(readings[number][2])
            shown = Counter(state)
            for hole in seen.holes:
                add(shown, changes_of(history, name, hole), -1)
            with_holes += bool(seen.holes)
            assert net(shown) == readings[number][place], f"reading {number} saw something else than {seen}"
    assert all(sum(row[1] * n for row, n in reading[0].items()) == 6000 for reading in readings)
    assert with_holes, "the writers never met: this run shows nothing"
    for position, read_point in origins:
        seen = history.seen(read_point)
        unseen = [history.transactions[hole - 1].log_position for hole in seen.holes]
        assert all(log_position_of(log_position).position > position for log_position in unseen), (
            "lost by an origin"
        )


def changes_of(history: History, name: str, version: int) -> Bag:
    rows = history.transactions[version - 1].rows.get(f"s.{name}")
    return Counter() if rows is None else bag(rows)


def test_a_read_point_is_translated_only_when_all_of_it_is_captured(database: Database) -> None:
    bank(database)
    source, history = database.ready()
    database.execute("UPDATE account SET balance = balance + 1 WHERE id = 1")
    read_point = read(source, "account").read_point
    assert source.seen("s", read_point, history) is None
    history.capture()
    assert source.seen("s", read_point, history) == Seen(1)


def test_a_commit_that_a_snapshot_missed_is_a_hole(database: Database) -> None:
    """Transaction ids and commits in opposite order, and one that is open while others come and go."""
    bank(database)
    source, history = database.ready()
    early, late = database.connect(), database.connect()
    early.execute("BEGIN")
    early.execute("UPDATE account SET balance = 1 WHERE id = 1")
    late.execute("UPDATE account SET balance = 2 WHERE id = 2")
    before = read(source, "account").read_point
    early.execute("COMMIT")
    after = read(source, "account").read_point
    late.execute("UPDATE account SET balance = 3 WHERE id = 3")
    assert history.seen(before) == Seen(1)
    assert history.seen(after) == Seen(2)
    history.capture()
    assert len(history.transactions) == 3
    assert history.transactions[0].source_txid > history.transactions[1].source_txid
    assert history.seen(before) == Seen(1)


def test_ids_beyond_32_bits_are_distinguished(database: Database) -> None:
    """The log has 32 bits of a transaction's id; the rest comes from the present."""
    from rollview.sources.postgres.address import address_of
    from rollview.sources.postgres.connections import Connections
    from rollview.sources.postgres.log.log_reader import LogReader

    address = address_of("s", database.dsn, {})
    reader = LogReader(address, Connections(address))
    for present in (5, 1 << 31, (1 << 32) + 5, (7 << 32) - 3, 7 << 32):
        reader._next_xid = present
        for distance in (0, 1, 4, 1000, (1 << 31) - 1):
            if present - distance > 0:
                assert reader._widened((present - distance) % (1 << 32)) == present - distance
        # Ids that were given since the present was looked up.
        assert reader._widened((present + 9) % (1 << 32)) == present + 9
