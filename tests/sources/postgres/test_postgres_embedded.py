"""The server that comes with us: in a folder, for root and for ordinary users, found by other processes."""

from __future__ import annotations

import stat
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest
from postgres_history import History, bag, read

from rollview.sources.postgres import EmbeddedPostgres, PostgresSource

pytestmark = pytest.mark.slow


def open_source(folder: Path) -> PostgresSource:
    return PostgresSource("s", f"embedded:{folder}", {"slot": "own", "coordinators": "postgres"})


def test_it_starts_when_it_is_needed_and_is_captured_like_any_other(tmp_path: Path) -> None:
    """pytest's folder is closed to other users, so that root has to put the data elsewhere."""
    folder = tmp_path / "crm"
    source = open_source(folder)
    assert not folder.exists()
    assert source.tables() == ()
    dsn = EmbeddedPostgres(folder).start()
    with psycopg.connect(dsn, autocommit=True) as writer:
        writer.execute("CREATE TABLE item (id int PRIMARY KEY, size numeric(10,2))")
        source.setup(source.tables())
        history = History(source)
        writer.execute("INSERT INTO item VALUES (1, 1.5)")
        writer.execute("BEGIN; INSERT INTO item VALUES (2, 2); SELECT own_global.take_part('g', 's,t')")
        writer.execute("PREPARE TRANSACTION 'any'")
        writer.execute("COMMIT PREPARED 'any'")
    first, second = history.capture(acknowledge=True)
    assert (first.global_id, second.global_id) == ("", "g")
    assert sum(bag(read(source, "item").rows[0]).values()) == 2
    # Stopped behind our back, it is started again on the same port.
    source.close()
    EmbeddedPostgres(folder).stop()
    assert [table.name for table in source.tables()] == ["item"]
    assert EmbeddedPostgres(folder).start() == dsn
    source.close()
    place = (folder / "data").resolve()
    EmbeddedPostgres(folder).stop()
    EmbeddedPostgres(folder).stop()
    EmbeddedPostgres(folder).remove()
    assert not folder.exists() and not place.exists()


def test_it_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    folder = tmp_path / "crm"
    script = f"from rollview.sources.postgres import EmbeddedPostgres as E; E({str(folder)!r}).start()"
    subprocess.run([sys.executable, "-c", script], check=True)
    deadline = time.monotonic() + 60
    while EmbeddedPostgres(folder)._pid() is not None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert EmbeddedPostgres(folder)._pid() is None
    assert (folder / "log").exists()
    EmbeddedPostgres(folder).remove()


def test_folders_above_stay_as_they_are(tmp_path: Path) -> None:
    """A launcher that opens every folder above its data to everybody would be no guest."""
    modes = [stat.S_IMODE(each.stat().st_mode) for each in (tmp_path, *tmp_path.parents)]
    EmbeddedPostgres(tmp_path / "crm").start()
    EmbeddedPostgres(tmp_path / "crm").remove()
    assert modes == [stat.S_IMODE(each.stat().st_mode) for each in (tmp_path, *tmp_path.parents)]


def test_two_processes_start_one_server(tmp_path: Path) -> None:
    folder = tmp_path / "crm"
    script = (
        "import time; from rollview.sources.postgres import EmbeddedPostgres as E\n"
        f"print(E({str(folder)!r}).start(), flush=True); time.sleep(3)"
    )
    started = [subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) for _ in range(3)]
    answers = {each.communicate()[0] for each in started}
    assert len(answers) == 1 and answers != {b""}
    EmbeddedPostgres(folder).remove()
