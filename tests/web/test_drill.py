"""An operator's drill: ten faults on a running project, one after the other.

For each the page, the log and a metric say what is wrong and what to do. Its cause is removed, transactions
are written, and the views show them all.
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from drilled_project import DATABASE, PASSWORD, PATIENCE_SECONDS, VIEWS, DrilledProject, small_disk
from pyspark.sql import SparkSession

from servers.postgres import PostgresServer
from servers.processes import java_of

pytestmark = [pytest.mark.slow, pytest.mark.long]


@dataclass(frozen=True)
class Symptoms:
    """What an operator must find while a fault lasts: words on the page, an event in the log, a metric."""

    page: tuple[str, ...]
    event: str
    kind: str
    metric: tuple[str, str]
    value: float | None
    """None: any number above zero."""


@contextmanager
def source_down(at: DrilledProject) -> Iterator[Symptoms]:
    at.server.stop()
    metric = ("rollview_source_reachable", "crm")
    yield Symptoms(
        ("source crm", "stopped", "retries automatically"), "halted", "SourceUnavailable", metric, 0
    )
    at.server.start()


@contextmanager
def password_changed(at: DrilledProject) -> Iterator[Symptoms]:
    at.server.execute("ALTER ROLE reader PASSWORD 'another'")
    _end_sessions(at)
    metric = ("rollview_source_reachable", "crm")
    yield Symptoms(("source crm", "stopped", "password"), "halted", "AccessDenied", metric, 0)
    at.server.execute(f"ALTER ROLE reader PASSWORD '{PASSWORD}'")


@contextmanager
def slot_dropped(at: DrilledProject) -> Iterator[Symptoms]:
    deadline = time.monotonic() + PATIENCE_SECONDS
    with psycopg.connect(at.server.dsn(DATABASE), autocommit=True) as connection:
        while connection.execute("SELECT 1 FROM pg_replication_slots").fetchone():
            assert time.monotonic() < deadline
            at.server.free_slots(DATABASE)
            try:
                connection.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
            except psycopg.errors.ObjectInUse:
                time.sleep(0.01)
    at.server.execute("INSERT INTO customer VALUES (7, 'unseen')", DATABASE)
    metric = ("rollview_source_halted", "crm")
    yield Symptoms(("source crm", "stopped", "rollview setup --reload crm"), "halted", "LogLost", metric, 1)
    loaded = at.type("setup", "--reload", "crm")
    assert loaded.exit_code == 0, loaded.stderr


@contextmanager
def disk_full(at: DrilledProject) -> Iterator[Symptoms]:
    filler = at.disk / "filler"
    with filler.open("wb", buffering=0) as stream, pytest.raises(OSError, match="No space"):
        for size in (65536, 1024, 1):
            while True:
                try:
                    stream.write(b"x" * size)
                except OSError:
                    if size == 1:
                        raise
                    break
    at.write()
    metric = ("rollview_errors_total", "LakeUnavailable")
    yield Symptoms(("No space left", "disk is full"), "retry", "LakeUnavailable", metric, None)
    filler.unlink()


@contextmanager
def lake_file_deleted(at: DrilledProject) -> Iterator[Symptoms]:
    files = list((at.disk / "lake" / "views" / "sold").glob("*.parquet"))
    away = at.folder / "away"
    away.mkdir()
    for file in files:
        shutil.move(file, away / file.name)
    at.server.execute("UPDATE customer SET state = 'moved'", DATABASE)
    metric = ("rollview_view_halted", "sold")
    yield Symptoms(("sold", "stopped", "setup --reload"), "halted", "LakeDamaged", metric, 1)
    for file in files:
        shutil.move(away / file.name, file)


@contextmanager
def view_file_broken(at: DrilledProject) -> Iterator[Symptoms]:
    at.view_file("sold").write_text("SELEC nothing FORM nowhere")
    metric = ("rollview_view_file_differs", "sold")
    yield Symptoms(("sold", "file cannot be used", "continues as before"), "file_noted", "", metric, 1)
    at.view_file("sold").write_text(VIEWS["sold"])


@contextmanager
def clock_jump(at: DrilledProject) -> Iterator[Symptoms]:
    (at.folder / "shift").write_text("-7200")
    metric = ("rollview_clock_jumps_total", "")
    yield Symptoms(("clock was set back by 2.0 h", "NTP"), "clock_jumped", "", metric, None)
    (at.folder / "shift").write_text("0")


@contextmanager
def spark_killed(at: DrilledProject) -> Iterator[Symptoms]:
    assert at.process is not None
    os.kill(java_of(at.process.pid), signal.SIGKILL)
    at.write()
    at.server.execute("UPDATE customer SET state = 'killed'", DATABASE)
    metric = ("rollview_spark_starts_total", "")
    yield Symptoms(("Spark its process has ended", "spark.driver.memory"), "spark_lost", "", metric, 2)


@contextmanager
def two_runs(at: DrilledProject) -> Iterator[Symptoms]:
    second = at.call("run", "--log-format", "json", "--log-file", str(at.log))
    assert second.returncode == 1, second.stdout
    assert "run is held by process" in second.stderr
    yield Symptoms((), "failed", "LeaseHeld", ("rollview_ready", ""), 1)


@contextmanager
def catalog_locked(at: DrilledProject) -> Iterator[Symptoms]:
    lock = sqlite3.connect(at.folder / "catalog.db", isolation_level=None)
    lock.execute("BEGIN EXCLUSIVE")
    at.write()
    metric = ("rollview_errors_total", "CatalogUnavailable")
    yield Symptoms(("locked",), "retry", "CatalogUnavailable", metric, None)
    lock.execute("ROLLBACK")
    lock.close()


FAULTS = (
    source_down,
    password_changed,
    slot_dropped,
    disk_full,
    lake_file_deleted,
    view_file_broken,
    clock_jump,
    spark_killed,
    two_runs,
    catalog_locked,
)


def test_ten_faults(tmp_path: Path, spark: SparkSession) -> None:
    server = PostgresServer()
    server.start()
    try:
        at = DrilledProject(tmp_path, server, spark)
        with small_disk(at.disk) as is_small:
            for _ in range(6):
                at.write()
            loaded = at.type("setup")
            assert loaded.exit_code == 0, loaded.stderr
            faults = [fault for fault in FAULTS if is_small or fault is not disk_full]
            with at.running():
                _until_right(at)
                for fault in faults:
                    began = len(at.logged())
                    with fault(at) as expected:
                        _until_found(at, expected, began)
                    at.write()
                    _until_right(at)
                _check_end(at)
            verified = at.type("verify")
            assert verified.exit_code == 0, verified.stdout
            _check_log(at)
    finally:
        server.remove()


def _until_found(at: DrilledProject, expected: Symptoms, began: int) -> None:
    """Waits until page, log and metric have said it."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while missing := _missing(at, expected, began):
        assert time.monotonic() < deadline, missing
        time.sleep(0.1)


def _missing(at: DrilledProject, expected: Symptoms, began: int) -> list[str]:
    page, metrics = at.page(), at.metrics()
    found = [f"the page has no {word!r}: {page}" for word in expected.page if word not in page]
    lines = at.logged()[began:]
    if not any(
        line.get("event") == expected.event and line.get("kind", "") == expected.kind for line in lines
    ):
        found.append(f"the log has no {expected.event} {expected.kind}: {lines[-3:]}")
    value = metrics.get(expected.metric)
    if value != expected.value if expected.value is not None else not value:
        found.append(f"{expected.metric} is {value}")
    return found


def _until_right(at: DrilledProject) -> None:
    """Waits until each view in turn shows what the sources have; nobody writes meanwhile."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    for view, expected in at.expected().items():
        while (shown := at.shown(view)) != expected:
            assert time.monotonic() < deadline, (view, shown, expected, at.page(), at.logged()[-5:])
            time.sleep(0.1)


def _check_end(at: DrilledProject) -> None:
    """Nothing is left of the faults but what happened to the process."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while any(word in (page := at.page()) for word in ("stopped", "error", "locked", "No space")):
        assert time.monotonic() < deadline, page
        time.sleep(0.1)
    metrics = at.metrics()
    for name in VIEWS:
        assert metrics["rollview_view_halted", name] == 0
    assert metrics["rollview_ready", ""] == metrics["rollview_catalog_up", ""] == 1
    assert metrics["rollview_spark_jobs_total", ""] > 0


def _check_log(at: DrilledProject) -> None:
    """Nothing secret, no defect, and no warning without a way out or a reason."""
    text = at.log.read_text()
    assert PASSWORD not in text
    assert "Traceback" not in text
    for line in at.logged():
        if line["level"] in ("warning", "error"):
            assert line.get("message") or line.get("note") or "seconds" in line or "exit_code" in line, line


def _end_sessions(at: DrilledProject) -> None:
    at.server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'reader'")
