"""Where transactions end, with writers in other processes that know nothing of rollview."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
import sqlite_writer
from sqlite_history import FakeMarks, bag, contents, database, drain, ready, replay, writer
from sqlite_processes import TABLES, check_against, ids, running, start, writers

from rollview.sources.source import Captured, SightLost
from rollview.sources.sqlite import SQLiteSource
from rollview.sources.sqlite import watch as watching
from rollview.sources.sqlite.watch import CommitWatch


@pytest.mark.slow
@pytest.mark.parametrize("cache_pages", ["-2000", "3"], ids=["cache", "spilling"])
def test_every_transaction_of_concurrent_writers_stands_alone(tmp_path: Path, cache_pages: str) -> None:
    path = tmp_path / "a.db"
    with closing(database(path, *sqlite_writer.TABLES)) as connection:
        source, bookmark = ready(path)
        captured: list[Captured] = []
        with writers(path, 3, 2, cache_pages) as processes:
            while running(processes):
                batch = source.capture("s", bookmark, 200)
                captured += batch.transactions
                bookmark = batch.bookmark
                source.forget("s", bookmark)
                time.sleep(random.random() / 5)
        found, bookmark = drain(source, bookmark, 200)
        captured += found
        assert len(captured) > 50
        check_against(connection, captured)
        source.close()


@pytest.mark.slow
def test_the_wal_is_started_over_now_and_then_and_no_commit_is_overlooked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With small limits, both ways of letting the WAL start over are taken many times."""
    monkeypatch.setattr(CommitWatch.__init__, "__defaults__", (60.0, 200, 600))
    path = tmp_path / "a.db"
    with closing(database(path, *sqlite_writer.TABLES)) as connection:
        source, bookmark = ready(path)
        captured: list[Captured] = []
        salts: list[int] = []
        with writers(path, 2, 3) as processes:
            while running(processes):
                batch = source.capture("s", bookmark, 1000)
                captured += batch.transactions
                bookmark = batch.bookmark
                # SQLite locks nothing in the WAL itself, so a test may open and close it.
                with Path(f"{path}-wal").open("rb") as wal:
                    salts.append(int.from_bytes(wal.read(32)[16:20], "big"))
        found, bookmark = drain(source, bookmark, 1000)
        check_against(connection, captured + found)
        assert salts[-1] > salts[0], "the WAL was never started over"
        source.close()


@pytest.mark.parametrize("limits", [(50, 10_000), (50, 50)], ids=["in passing", "holding writers up"])
def test_the_wal_does_not_grow_while_it_is_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int]
) -> None:
    monkeypatch.setattr(CommitWatch.__init__, "__defaults__", (60.0, *limits))
    path = tmp_path / "a.db"
    with closing(database(path, "CREATE TABLE t(a INTEGER)")) as connection:
        source, bookmark = ready(path)
        for _ in range(10):
            for number in range(40):
                connection.execute("INSERT INTO t VALUES (?)", (number,))
            batch = source.capture("s", bookmark, 1000)
            assert len(batch.transactions) == 40
            bookmark = batch.bookmark
        # 400 transactions of four pages and more would take 6 MB without ever starting over.
        assert Path(f"{path}-wal").stat().st_size < 2 << 20
        source.close()


@pytest.mark.slow
def test_a_killed_writer_leaves_nothing_of_its_unfinished_transaction(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(database(path, *sqlite_writer.TABLES)) as connection:
        source, bookmark = ready(path)
        captured: list[Captured] = []
        chance = random.Random(5)
        for number in range(8):
            process = start(path, f"k{number}", 20, "3")
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(chance.random() / 3)
            os.kill(process.pid, signal.SIGKILL)
            process.communicate()
            if number % 2:
                found, bookmark = drain(source, bookmark, 500)
                captured += found
        found, bookmark = drain(source, bookmark, 500)
        check_against(connection, captured + found)
        source.close()


@pytest.mark.parametrize("mode", ["PASSIVE", "FULL", "RESTART", "TRUNCATE"])
def test_checkpoints_between_polls_cost_no_boundary_while_watched(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "a.db"
    with closing(database(path, "CREATE TABLE t(a INTEGER)")) as connection:
        source, bookmark = ready(path)
        connection.execute("PRAGMA busy_timeout = 0")
        total = 0
        for _ in range(5):
            for _ in range(3):
                connection.execute("INSERT INTO t VALUES (1), (2)")
                connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
            found, bookmark = drain(source, bookmark)
            total += len(found)
        assert total == 15
        source.close()


@pytest.mark.parametrize("mode", ["RESTART", "TRUNCATE"])
def test_what_nobody_watched_becomes_one_true_composite(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "a.db"
    with closing(database(path, "CREATE TABLE t(a INTEGER)")) as connection:
        source, bookmark = ready(path)
        source.close()
        connection.executemany("INSERT INTO t VALUES (?)", [(i,) for i in range(5)])
        connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
        connection.execute("INSERT INTO t VALUES (10)")
        connection.execute("INSERT INTO t VALUES (11)")
        found, bookmark = drain(source, bookmark)
        assert [sum(bag(each.rows["s.t"]).values()) for each in found] == [6, 1]
        connection.execute("INSERT INTO t VALUES (12)")
        found, bookmark = drain(source, bookmark)
        assert len(found) == 1
        source.close()


def test_a_restarted_process_finds_the_boundaries_that_the_wal_still_has(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(database(path, "CREATE TABLE t(a INTEGER)")) as connection:
        source, bookmark = ready(path)
        source.close()
        connection.executemany("INSERT INTO t VALUES (?)", [(i,) for i in range(5)])
        again = SQLiteSource("s", path)
        assert len(drain(again, bookmark)[0]) == 5
        again.close()


def test_a_vacuum_moves_the_counter_but_loses_no_boundary_seen_before(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(database(path, "CREATE TABLE t(a INTEGER)", "CREATE TABLE big(b BLOB)")) as connection:
        connection.execute("INSERT INTO big VALUES (zeroblob(100000))")
        source, bookmark = ready(path, "big")
        connection.execute("INSERT INTO t VALUES (1)")
        found, bookmark = drain(source, bookmark)
        assert len(found) == 1
        connection.execute("DROP TABLE big")
        connection.execute("VACUUM")
        connection.execute("INSERT INTO t VALUES (2)")
        connection.execute("INSERT INTO t VALUES (3)")
        found, bookmark = drain(source, bookmark)
        assert len(found) == 2
        source.close()


@pytest.mark.slow
def test_rollback_mode_gives_composites_that_are_true_states(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(database(path, *sqlite_writer.TABLES, wal=False)) as connection:
        source, bookmark = ready(path)
        assert source.describe()["capture"] == "one composite transaction per poll"
        start_state = contents(connection, TABLES)
        captured: list[Captured] = []
        with writers(path, 2, 2) as processes:
            while running(processes):
                batch = source.capture("s", bookmark, 1)
                assert len(batch.transactions) <= 1
                bookmark = batch.bookmark
                captured += batch.transactions
                time.sleep(0.05)
        found, bookmark = drain(source, bookmark)
        states = replay(start_state, captured + found)
        assert states[-1] == contents(connection, TABLES)
        # A true state holds each transaction wholly or not at all: item and mark were written together.
        assert any(len(ids(each)) > 1 for each in captured)
        source.close()


@pytest.mark.slow
@pytest.mark.parametrize("wal", [True, False], ids=["wal", "rollback"])
@pytest.mark.parametrize("shared", [True, False], ids=["one process", "another source object"])
def test_oracle_what_a_reading_saw_is_what_replay_says(tmp_path: Path, wal: bool, shared: bool) -> None:
    """Readings in one thread, capture in another, writers in other processes."""
    path = tmp_path / "a.db"
    with closing(database(path, *sqlite_writer.TABLES, wal=wal)) as connection:
        source, bookmark = ready(path)
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
                    readings.append((found.sight, [bag(rows) for rows in found.rows]))
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=read)
        thread.start()
        captured: list[Captured] = []
        with writers(path, 2, 2) as processes:
            while running(processes):
                batch = source.capture("s", bookmark, 300)
                bookmark = batch.bookmark
                captured += batch.transactions
        done.set()
        thread.join()
        assert not failures
        found, bookmark = drain(source, bookmark, 300)
        captured += found
        states += replay(states[0], captured)
        marks = FakeMarks([each.mark for each in captured], bookmark)
        assert len(readings) > 5
        for sight, rows in readings:
            seen = source.seen("s", sight, marks)
            assert seen is not None
            assert rows == [states[seen.upto][table.name] for table in tables]
        source.close()
        reader.close()


def test_a_sight_waits_for_capture_and_a_lost_one_is_said(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(database(path, "CREATE TABLE t(a INTEGER)")) as connection:
        source, bookmark = ready(path)
        origin = source.read({}, tmp_path).sight
        assert json.loads(origin) == int(bookmark)
        assert source.seen("s", origin, FakeMarks([], bookmark)) is not None
        connection.execute("INSERT INTO t VALUES (1), (2)")
        sight = source.read({}, tmp_path).sight
        assert source.seen("s", sight, FakeMarks([], bookmark)) is None
        passed_over = FakeMarks([json.loads(sight) + 5], str(json.loads(sight) + 5))
        with pytest.raises(SightLost):
            source.seen("s", sight, passed_over)
        source.close()


@pytest.mark.parametrize("wal", [True, False], ids=["wal", "rollback"])
def test_what_an_unwatched_reading_saw_is_never_stepped_over(tmp_path: Path, wal: bool) -> None:
    path = tmp_path / "a.db"
    with closing(database(path, "CREATE TABLE t(a INTEGER)", wal=wal)) as connection:
        source, bookmark = ready(path)
        source.close()
        reader = SQLiteSource("s", path)
        sights = [reader.read({}, tmp_path).sight]
        for number in range(3):
            connection.execute("INSERT INTO t VALUES (?)", (number,))
            connection.execute("INSERT INTO t VALUES (?)", (number,))
            sights.append(reader.read({}, tmp_path).sight)
        connection.execute("INSERT INTO t VALUES (9)")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        found, bookmark = drain(source, bookmark)
        assert [sum(bag(each.rows["s.t"]).values()) for each in found] == [2, 2, 2, 1]
        marks = FakeMarks([each.mark for each in found], bookmark)
        source.forget("s", bookmark)
        seen = [source.seen("s", sight, marks) for sight in sights]
        assert [each and each.upto for each in seen] == [0, 1, 2, 3]
        source.close()


def test_a_snapshot_that_nobody_follows_up_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert watching.HOLD_SECONDS <= 60
    monkeypatch.setattr(CommitWatch.__init__, "__defaults__", (0.2, 4000, 32000))
    path = tmp_path / "a.db"
    with closing(database(path, "CREATE TABLE t(a INTEGER)")):
        source, _ = ready(path)
        with closing(writer(path)) as other:
            other.execute("INSERT INTO t VALUES (1)")
            time.sleep(0.6)
            assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() == (0, 0, 0)
        source.close()
