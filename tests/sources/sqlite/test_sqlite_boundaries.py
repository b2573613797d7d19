"""Where transactions end, with writers in other processes that know nothing of rollview."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
import sqlite_writer
from sqlite_history import FakeMarks, bag, contents, database, drain, ready, replay, writer
from sqlite_processes import TABLES, check_against, ids, running, start, writers

from pages.what_if import what_if
from rollview.errors import ReadPointLost
from rollview.sources.source import CapturedTransaction
from rollview.sources.sqlite import SQLiteSource
from rollview.sources.sqlite import watch as watching
from rollview.sources.sqlite.captured import state_of
from rollview.sources.sqlite.wal import WalReader
from rollview.sources.sqlite.watch import CommitWatch


@pytest.mark.slow
@pytest.mark.parametrize("cache_pages", ["-2000", "3"], ids=["cache", "spilling"])
def test_every_transaction_of_concurrent_writers_stands_alone(tmp_path: Path, cache_pages: str) -> None:
    path = tmp_path / "a.db"
    with closing(database(path, *sqlite_writer.TABLES)) as connection:
        source, log_position = ready(path)
        captured: list[CapturedTransaction] = []
        with writers(path, 3, 2, cache_pages) as processes:
            while running(processes):
                batch = source.capture("s", log_position, 200)
                captured += batch.transactions
                log_position = batch.log_position
                source.acknowledge("s", log_position)
                time.sleep(random.random() / 5)
        found, log_position = drain(source, log_position, 200)
        captured += found
        assert len(captured) > 50
        check_against(connection, captured)
        assert {each.merged for each in captured} == {1}
        source.close()


def test_what_we_write_does_not_start_the_wal_over(tmp_path: Path) -> None:
    """Where commits were is in the WAL alone, until a process that comes later has captured them."""
    path = tmp_path / "a.db"
    with closing(database(path, "CREATE TABLE t(x TEXT)", "CREATE TABLE u(x TEXT)")) as connection:
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        source, log_position = ready(path, "u")
        source.close()
        for number in range(300):
            connection.execute("BEGIN")
            connection.execute("INSERT INTO t VALUES (?)", ("x" * 9000,))
            connection.execute("INSERT INTO t VALUES (?)", (str(number),))
            connection.execute("COMMIT")
        later = SQLiteSource("s", path)
        later.setup(later.tables())
        connection.execute("INSERT INTO t VALUES ('a writer that starts the WAL over if it may')")
        found, _ = drain(later, log_position, 1000)
        assert len(found) == 301
        later.close()


@pytest.mark.slow
def test_the_wal_is_started_over_now_and_then_and_no_commit_is_overlooked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With small limits, both ways of letting the WAL start over are taken many times."""
    monkeypatch.setattr(CommitWatch.__init__, "__defaults__", (60.0, 10.0, 60, 180))
    path = tmp_path / "a.db"
    with closing(database(path, *sqlite_writer.TABLES)) as connection:
        source, log_position = ready(path)
        captured: list[CapturedTransaction] = []
        salts: list[int] = []
        with writers(path, 2, 60) as processes:
            while running(processes) and len(set(salts)) < 4:
                batch = source.capture("s", log_position, 1000)
                captured += batch.transactions
                log_position = batch.log_position
                # SQLite locks nothing in the WAL itself, so a test may open and close it.
                with Path(f"{path}-wal").open("rb") as wal:
                    salts.append(int.from_bytes(wal.read(32)[16:20], "big"))
        found, log_position = drain(source, log_position, 1000)
        check_against(connection, captured + found)
        assert {each.merged for each in captured + found} == {1}
        assert len(set(salts)) == 4, "the WAL was not started over three times"
        source.close()


@pytest.mark.parametrize("limits", [(50, 10_000), (50, 50)], ids=["in passing", "holding writers up"])
def test_the_wal_does_not_grow_while_it_is_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int]
) -> None:
    monkeypatch.setattr(CommitWatch.__init__, "__defaults__", (60.0, 10.0, *limits))
    path = tmp_path / "a.db"
    with closing(database(path, "CREATE TABLE t(a INTEGER)")) as connection:
        source, log_position = ready(path)
        for _ in range(10):
            for number in range(40):
                connection.execute("INSERT INTO t VALUES (?)", (number,))
            batch = source.capture("s", log_position, 1000)
            assert len(batch.transactions) == 40
            log_position = batch.log_position
        # 400 transactions of four pages and more would take 6 MB without ever starting over.
        assert Path(f"{path}-wal").stat().st_size < 2 << 20
        source.close()


@pytest.mark.slow
def test_a_killed_writer_leaves_nothing_of_its_unfinished_transaction(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(database(path, *sqlite_writer.TABLES)) as connection:
        source, log_position = ready(path)
        captured: list[CapturedTransaction] = []
        chance = random.Random(5)
        for number in range(8):
            process = start(path, f"k{number}", 20, "3")
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(chance.random() / 3)
            os.kill(process.pid, signal.SIGKILL)
            process.communicate()
            if number % 2:
                found, log_position = drain(source, log_position, 500)
                captured += found
        found, log_position = drain(source, log_position, 500)
        check_against(connection, captured + found)
        source.close()


@pytest.mark.parametrize("mode", ["PASSIVE", "FULL", "RESTART", "TRUNCATE"])
def test_checkpoints_between_polls_cost_no_boundary_while_watched(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "a.db"
    with closing(database(path, "CREATE TABLE t(a INTEGER)")) as connection:
        source, log_position = ready(path)
        connection.execute("PRAGMA busy_timeout = 0")
        total = 0
        for _ in range(5):
            for _ in range(3):
                connection.execute("INSERT INTO t VALUES (1), (2)")
                connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
            found, log_position = drain(source, log_position)
            assert [each.merged for each in found] == [1] * len(found)
            total += len(found)
        assert total == 15
        source.close()


@what_if(
    "all sources",
    "SQLite restarts its WAL while no process captures",
    "several transactions may become one csn. The views are correct at each csn (strong), but not every "
    "state in between is known (not complete). Such csn are marked, and counted in `status` and events",
)
@pytest.mark.parametrize("mode", ["RESTART", "TRUNCATE"])
def test_what_nobody_watched_becomes_one_true_composite(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "a.db"
    with closing(database(path, "CREATE TABLE t(a INTEGER)")) as connection:
        source, log_position = ready(path)
        source.close()
        connection.executemany("INSERT INTO t VALUES (?)", [(i,) for i in range(5)])
        connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
        connection.execute("INSERT INTO t VALUES (10)")
        connection.execute("INSERT INTO t VALUES (11)")
        found, log_position = drain(source, log_position)
        assert [sum(bag(each.rows["s.t"]).values()) for each in found] == [6, 1]
        assert [each.merged for each in found] == [0, 1]
        connection.execute("INSERT INTO t VALUES (12), (13)")
        found, log_position = drain(source, log_position)
        assert [each.merged for each in found] == [1]
        source.close()


def test_a_restarted_process_finds_the_boundaries_that_the_wal_still_has(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(database(path, "CREATE TABLE t(a INTEGER)")) as connection:
        source, log_position = ready(path)
        source.close()
        for number in range(5):
            connection.execute("INSERT INTO t VALUES (?), (0)", (number,))
        again = SQLiteSource("s", path)
        found, _ = drain(again, log_position)
        assert [each.merged for each in found] == [1] * 5
        again.close()


def test_a_single_record_is_of_a_single_transaction(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(database(path, "CREATE TABLE t(a INTEGER)", wal=False)) as connection:
        source, log_position = ready(path)
        connection.execute("INSERT INTO t VALUES (1)")
        found, log_position = drain(source, log_position)
        assert [each.merged for each in found] == [1]
        # Nothing distinguishes one transaction of two records from two.
        connection.execute("INSERT INTO t VALUES (1), (2)")
        found, log_position = drain(source, log_position)
        assert [each.merged for each in found] == [0]
        source.close()


def times_started_over(path: Path) -> int:
    """The checkpoint sequence number in the header of the WAL."""
    return int.from_bytes(Path(f"{path}-wal").read_bytes()[12:16], "big")


def test_a_watch_that_nobody_uses_for_a_while_overlooks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while a view is loaded for minutes: the WAL starts over, and yet no transactions are merged."""
    monkeypatch.setattr(CommitWatch.__init__, "__defaults__", (60.0, 0.02, 50, 10_000))
    path = tmp_path / "a.db"
    with closing(database(path, "CREATE TABLE t(a INTEGER)")) as connection:
        source, log_position = ready(path)
        first, batches = times_started_over(path), 0
        # How soon depends on when the watch gets its turn, so on what else the machine does.
        while batches < 40 or (times_started_over(path) < first + 3 and batches < 900):
            for _ in range(10):
                connection.execute("INSERT INTO t VALUES (?), (0)", (batches,))
            batches += 1
            time.sleep(0.03)
        assert times_started_over(path) >= first + 3
        found, _ = drain(source, log_position, 10_000)
        assert [each.merged for each in found] == [1] * (10 * batches)
        source.close()


@pytest.mark.parametrize("limits", [(50, 10_000), (50, 50)], ids=["in passing", "holding writers up"])
def test_a_process_that_lets_the_wal_start_over_and_dies_takes_no_boundary_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int]
) -> None:
    """What it had seen and nobody had captured is found by the next one, though the WAL is another."""
    monkeypatch.setattr(CommitWatch.__init__, "__defaults__", (60.0, 10.0, *limits))
    path = tmp_path / "a.db"
    with closing(database(path, "CREATE TABLE t(a INTEGER)")) as connection:
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        source, log_position = ready(path)
        for number in range(40):
            connection.execute("INSERT INTO t VALUES (?), (0)", (number,))
        assert len(source.capture("s", log_position, 1000).transactions) == 40
        # This is the writer that starts the WAL over.
        connection.execute("INSERT INTO t VALUES (40), (0)")
        assert WalReader(path).commits(*_place_of_counter(path)) == [_counter(connection)]
        source.close()
        later = SQLiteSource("s", path)
        found, log_position = drain(later, log_position, 1000)
        assert [sum(bag(each.rows["s.t"]).values()) for each in found] == [2] * 41
        # Only of the last one nobody knows whether another one ended before the WAL was started over.
        assert [each.merged for each in found] == [1] * 40 + [0]
        later.acknowledge("s", log_position)
        kept = "SELECT count(*) FROM _rollview_cuts WHERE typeof(origin) <> 'text' AND version < ?"
        assert connection.execute(kept, (_counter(connection),)).fetchone() == (0,)
        later.close()


def _counter(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT version FROM _rollview_version").fetchone()[0])


def _place_of_counter(path: Path) -> tuple[int, int]:
    with closing(writer(path)) as connection:
        state = state_of(connection, "s")
    return state.root_page, state.generation


def test_a_vacuum_moves_the_counter_but_loses_no_boundary_seen_before(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(database(path, "CREATE TABLE t(a INTEGER)", "CREATE TABLE big(b BLOB)")) as connection:
        connection.execute("INSERT INTO big VALUES (zeroblob(100000))")
        source, log_position = ready(path, "big")
        connection.execute("INSERT INTO t VALUES (1)")
        found, log_position = drain(source, log_position)
        assert len(found) == 1
        connection.execute("DROP TABLE big")
        connection.execute("VACUUM")
        connection.execute("INSERT INTO t VALUES (2)")
        connection.execute("INSERT INTO t VALUES (3), (4)")
        found, log_position = drain(source, log_position)
        assert [each.merged for each in found] == [1, 1]
        # What was committed between the last look and a VACUUM may be several transactions.
        connection.execute("CREATE TABLE big(b BLOB)")
        connection.execute("INSERT INTO t VALUES (5), (6)")
        connection.execute("INSERT INTO big VALUES (zeroblob(100000))")
        connection.execute("DROP TABLE big")
        connection.execute("INSERT INTO t VALUES (7)")
        connection.execute("VACUUM")
        connection.execute("INSERT INTO t VALUES (8), (9)")
        found, log_position = drain(source, log_position)
        assert sum(sum(bag(each.rows["s.t"]).values()) for each in found) == 5
        assert [each.merged for each in found] in ([0, 1], [1, 1, 1])
        source.close()


@pytest.mark.slow
def test_rollback_mode_gives_composites_that_are_true_states(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(database(path, *sqlite_writer.TABLES, wal=False)) as connection:
        source, log_position = ready(path)
        assert source.describe()["capture"] == "one composite transaction per poll"
        start_state = contents(connection, TABLES)
        captured: list[CapturedTransaction] = []
        with writers(path, 2, 2) as processes:
            while running(processes):
                batch = source.capture("s", log_position, 1)
                assert len(batch.transactions) <= 1
                log_position = batch.log_position
                captured += batch.transactions
                time.sleep(0.05)
        found, log_position = drain(source, log_position)
        states = replay(start_state, captured + found)
        assert states[-1] == contents(connection, TABLES)
        # A true state holds each transaction wholly or not at all: item and mark were written together.
        assert any(len(ids(each)) > 1 for each in captured)
        assert all(each.merged == 0 for each in captured if len(ids(each)) > 1)
        source.close()


@pytest.mark.slow
@pytest.mark.parametrize("wal", [True, False], ids=["wal", "rollback"])
@pytest.mark.parametrize(
    "shared",
    [pytest.param(True, marks=pytest.mark.soak), False],
    ids=["one process", "another source object"],
)
def test_oracle_what_a_reading_saw_is_what_replay_says(tmp_path: Path, wal: bool, shared: bool) -> None:
    """Readings in one thread, capture in another, writers in other processes."""
    path = tmp_path / "a.db"
    with closing(database(path, *sqlite_writer.TABLES, wal=wal)) as connection:
        source, log_position = ready(path)
        reader = source if shared else SQLiteSource("s", path)
        tables = {table: table.columns for table in source.tables()}
        states = [contents(connection, TABLES)]
        readings: list[tuple[str, list[object]]] = []
        failures: list[BaseException] = []
        done = threading.Event()

        def read() -> None:
            try:
                while not done.is_set():
                    found = reader.read(tables, tmp_path / "scratch")
                    readings.append((found.read_point, [bag(rows) for rows in found.rows]))
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=read)
        thread.start()
        captured: list[CapturedTransaction] = []
        for _ in range(20):
            with writers(path, 2, 2) as processes:
                while running(processes):
                    batch = source.capture("s", log_position, 300)
                    log_position = batch.log_position
                    captured += batch.transactions
            if len(readings) > 3 or failures:
                break
        done.set()
        thread.join()
        assert not failures
        found, log_position = drain(source, log_position, 300)
        captured += found
        states += replay(states[0], captured)
        source_txids = FakeMarks([each.source_txid for each in captured], log_position)
        assert len(readings) > 3
        for read_point, rows in readings:
            seen = source.seen("s", read_point, source_txids)
            assert seen is not None
            assert rows == [states[seen.upto][table.name] for table in tables]
        source.close()
        reader.close()


def test_a_read_point_waits_for_capture_and_a_lost_one_is_said(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(database(path, "CREATE TABLE t(a INTEGER)")) as connection:
        source, log_position = ready(path)
        origin = source.read({}, tmp_path).read_point
        assert json.loads(origin) == int(log_position.partition("@")[0])
        assert source.seen("s", origin, FakeMarks([], log_position)) is not None
        connection.execute("INSERT INTO t VALUES (1), (2)")
        read_point = source.read({}, tmp_path).read_point
        assert source.seen("s", read_point, FakeMarks([], log_position)) is None
        connection.execute("INSERT INTO t VALUES (3), (4), (5), (6), (7)")
        passed_over = FakeMarks([json.loads(read_point) + 5], str(json.loads(read_point) + 5))
        with pytest.raises(ReadPointLost):
            source.seen("s", read_point, passed_over)
        source.close()


@pytest.mark.parametrize("wal", [True, False], ids=["wal", "rollback"])
def test_what_an_unwatched_reading_saw_is_never_stepped_over(tmp_path: Path, wal: bool) -> None:
    path = tmp_path / "a.db"
    with closing(database(path, "CREATE TABLE t(a INTEGER)", wal=wal)) as connection:
        source, log_position = ready(path)
        source.close()
        reader = SQLiteSource("s", path)
        seen = [reader.read({}, tmp_path).read_point]
        for number in range(3):
            connection.execute("INSERT INTO t VALUES (?)", (number,))
            connection.execute("INSERT INTO t VALUES (?)", (number,))
            seen.append(reader.read({}, tmp_path).read_point)
        connection.execute("INSERT INTO t VALUES (9)")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        found, log_position = drain(source, log_position)
        assert [sum(bag(each.rows["s.t"]).values()) for each in found] == [2, 2, 2, 1]
        source_txids = FakeMarks([each.source_txid for each in found], log_position)
        source.acknowledge("s", log_position)
        seen = [source.seen("s", read_point, source_txids) for read_point in seen]
        assert [each and each.upto for each in seen] == [0, 1, 2, 3]
        source.close()


def test_a_snapshot_that_nobody_follows_up_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert watching.HOLD_SECONDS <= 600
    monkeypatch.setattr(CommitWatch.__init__, "__defaults__", (0.2, 0.1, 4000, 32000))
    path = tmp_path / "a.db"
    with closing(database(path, "CREATE TABLE t(a INTEGER)")):
        source, _ = ready(path)
        with closing(writer(path)) as other:
            other.execute("INSERT INTO t VALUES (1)")
            time.sleep(0.6)
            assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() == (0, 0, 0)
        source.close()
