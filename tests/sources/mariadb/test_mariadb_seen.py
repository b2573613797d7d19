"""What a reading saw, under writers that never stop: the test that matters."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path

import pyarrow as pa
import pytest
from mariadb_database import Database, History, Row, counted, planned
from mariadb_writers import ACCOUNTS, Writers, create_bank

from rollview.errors import SourceUnavailable

pytestmark = pytest.mark.slow
SECONDS = float(os.environ.get("MARIADB_STRESS_SECONDS", "6"))
_VIEW = "SELECT a.id, e.id AS entry FROM s.account a JOIN s.entry e ON a.id = e.account"
Reading = tuple[dict[str, Counter[Row]], str]


class Readers:
    """Threads that read whole tables, and ask for some rows, again and again."""

    def __init__(self, database: Database, count: int) -> None:
        self.readings: list[Reading] = []
        self.failures: list[BaseException] = []
        self._database = database
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(count)]

    def __enter__(self) -> Readers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
        assert not self.failures, self.failures

    def _run(self, number: int) -> None:
        source = self._database.open()
        try:
            tables = {table.name: table for table in source.tables()}
            wanted = {tables[name]: tables[name].columns for name in ("account", "entry")}
            every = pa.array(range(ACCOUNTS), pa.int32())
            plan = planned(self._database, _VIEW, {"id": every})
            while not self._stop.is_set():
                if number % 2:
                    found = source.read(wanted, Path("/nonexistent"))
                    names = [(table.name, columns) for table, columns in wanted.items()]
                else:
                    found = source.lookup(plan)
                    names = [("entry", ("id", "account"))]
                rows = {
                    name: counted(each, columns)
                    for (name, columns), each in zip(names, found.rows, strict=True)
                }
                self.readings.append((rows, found.read_point))
        except BaseException as error:
            self.failures.append(error)
        finally:
            source.close()


@pytest.mark.parametrize("xa_share", [0.0, 0.5])
def test_oracle_every_answer_is_the_replayed_state_that_it_saw(database: Database, xa_share: float) -> None:
    create_bank(database)
    database.setup()
    with Writers(database, 8, xa_share, seed=7) as writers:
        time.sleep(0.3)
        history = History(database.source)
        initial = read_now(database, history)
        with Readers(database, 3) as readers:
            end = time.monotonic() + SECONDS
            while time.monotonic() < end:
                history.capture()
                time.sleep(0.01)
    history.capture()
    assert len(readers.readings) > 20 and writers.commits > 100
    wrong = compare(history, initial, readers.readings)
    assert not wrong, f"{len(wrong)} of {len(readers.readings)} readings: {wrong[:3]}"


def test_oracle_a_reading_that_finds_a_table_emptied_has_seen_that(database: Database) -> None:
    """TRUNCATE takes effect before it is logged; in between, nobody may get the place before it."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    database.setup()
    history, halt, readings = History(database.source), threading.Event(), list[Reading]()

    def write() -> None:
        with closing(database.connect(autocommit=True)) as connection, connection.cursor() as cursor:
            for number in itertools.count():
                if halt.is_set():
                    return
                cursor.execute(f"INSERT INTO t VALUES ({number})")
                cursor.execute("TRUNCATE TABLE t")

    def read() -> None:
        source = database.open()
        table = next(table for table in source.tables() if table.name == "t")
        while not halt.is_set():
            with suppress(SourceUnavailable):  # It was altered while it was read.
                found = source.read({table: table.columns}, Path("/nonexistent"))
                readings.append(({"t": counted(found.rows[0], table.columns)}, found.read_point))
        source.close()

    threads = [threading.Thread(target=each) for each in (write, read, read)]
    for thread in threads:
        thread.start()
    ends = time.monotonic() + SECONDS
    while time.monotonic() < ends or (len(readings) <= 20 and time.monotonic() < ends + 60):
        time.sleep(0.1)
    halt.set()
    for thread in threads:
        thread.join()
    history.capture()
    changes = [Counter[Row](), *history.changes("t")]
    wrong = [
        (rows["t"], seen.upto)
        for rows, read_point in readings
        if (seen := history.seen(read_point)) is None or rows["t"] != changes[seen.upto]
    ]
    assert len(readings) > 20 and not wrong, f"{len(wrong)} of {len(readings)} readings: {wrong[:3]}"


def read_now(database: Database, history: History) -> tuple[dict[str, Counter[Row]], int]:
    """The tables at some state, and the number of transactions of the history that it has."""
    tables = database.tables()
    wanted = {tables[name]: tables[name].columns for name in ("account", "entry")}
    found = database.source.read(wanted, Path("/nonexistent"))
    while (seen := history.seen(found.read_point)) is None:
        history.capture()
    rows = {
        table.name: counted(each, columns)
        for (table, columns), each in zip(wanted.items(), found.rows, strict=True)
    }
    return rows, seen.upto


def compare(
    history: History, initial: tuple[dict[str, Counter[Row]], int], readings: list[Reading]
) -> list[str]:
    """Replays the history along the readings; which of them show another state than they say."""
    states, version = initial
    changes = {name: history.changes(name) for name in states}
    placed = []
    for rows, read_point in readings:
        seen = history.seen(read_point)
        assert seen is not None and not seen.holes
        placed.append((seen.upto, rows))
    wrong = []
    current = {name: Counter(rows) for name, rows in states.items()}
    for upto, rows in sorted(placed, key=lambda each: each[0]):
        assert upto >= version, "a reading saw less than one before it"
        for number in range(version, upto):
            for name, each in changes.items():
                for row, count in each[number].items():
                    current[name][row] += count
        version = upto
        for name, found in rows.items():
            width = len(next(iter(found), ()))
            state: Counter[Row] = Counter()
            for row, count in current[name].items():
                if count:
                    state[row[:width]] += count
            if state != found:
                wrong.append(f"at {upto}: {name} has {found - state} too much and {state - found} too little")
    return wrong
