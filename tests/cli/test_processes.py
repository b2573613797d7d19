"""Commands as processes: what reaches the streams, and how they end when somebody asks them to."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from command_runs import Command

from rollview.sources.postgres import EmbeddedPostgres

pytestmark = pytest.mark.slow
PATIENCE_SECONDS = 120


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A project that a process of its own has set up."""
    folder = tmp_path_factory.mktemp("processes") / "shop"
    for arguments in (["init", str(folder)], ["setup", "--project", str(folder), "--json"]):
        done = _rollview(*arguments)
        assert done.returncode == 0, done.stderr
        assert done.stderr == "", "Spark is quiet"
    assert set(json.loads(done.stdout)["loaded"]) == {"sale_lines", "sales_by_state", "large_sales"}
    yield folder
    EmbeddedPostgres(folder / "crm").remove()


def _command(*arguments: str) -> list[str]:
    return [str(Path(sys.executable).parent / "rollview"), *arguments]


def _rollview(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(_command(*arguments), capture_output=True, text=True, check=False)


def _sell(shop: Path) -> None:
    with closing(sqlite3.connect(shop / "shop.db")) as database, database:
        database.execute("INSERT INTO sales (customer_id, amount) VALUES (1, 1.5)")


def _lines_until(process: subprocess.Popen[str], wanted: str) -> list[str]:
    """The lines of the output up to the first that has the wanted words."""
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), True)
    lines = []
    for line in process.stdout:
        lines.append(line)
        if wanted in line:
            return lines
    raise AssertionError(f"ended without {wanted!r}")


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_followers_end_when_asked(shop: Path, sign: signal.Signals) -> None:
    started = time.monotonic()
    arguments = _command("capture", "--follow", "--json", "--project", str(shop))
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        _sell(shop)
        assert json.loads(_lines_until(process, "transactions")[-1])["transactions"] == 1
        _sell(shop)
        assert json.loads(_lines_until(process, "transactions")[-1])["transactions"] == 1
        process.send_signal(sign)
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, errors) == (0, "")
    assert time.monotonic() - started < PATIENCE_SECONDS


def test_run_continues_until_ctrl_c(shop: Path) -> None:
    """Spark is started in the midst of it, and takes Ctrl-C for itself if nobody takes it back."""
    arguments = _command("run", "--json", "--project", str(shop))
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        _sell(shop)
        events = [json.loads(line) for line in _lines_until(process, '"event": "applied"')]
        assert {"started", "captured", "step_begun", "step_finished", "propagated"} <= {
            event["event"] for event in events
        }
        applied = events[-1]
        assert set(applied) == {"time", "event", "views", "csn"}
        assert set(applied["views"]) == {"sale_lines", "sales_by_state", "large_sales"}
        assert abs(applied["time"] - time.time()) < PATIENCE_SECONDS
        steps = [event for event in events if event["event"] == "step_finished"]
        assert {"capture", "propagate"} <= {step["kind"] for step in steps}
        assert all(step["phases"] for step in steps)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, errors) == (0, "")
    done = _rollview("status", "--json", "--project", str(shop))
    assert all(view["behind_csn"] == 0 for view in json.loads(done.stdout)["views"])


def test_the_password_of_the_embedded_server_leaves_its_file_nowhere(shop: Path) -> None:
    """Neither on the screen nor in a file of the project's, the lake and its catalog included."""
    password = (shop / "crm" / "password").read_text()
    for command in (
        ["status"],
        ["status", "--json"],
        ["explain", "sale_lines"],
        ["run", "--once", "--debug"],
    ):
        done = _rollview(*command, "--project", str(shop))
        assert done.returncode == 0, done.stderr
        assert password not in done.stdout + done.stderr
    with_it = [file for file in shop.rglob("*") if file.is_file() and password.encode() in file.read_bytes()]
    assert with_it == [shop / "crm" / "password"]


def test_run_ends_when_nobody_reads_any_more(shop: Path) -> None:
    """As with `rollview run | head -1`: the other end of the pipe is closed."""
    arguments = _command("run", "--json", "--project", str(shop))
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        _lines_until(process, '"event": "started"')
        assert process.stdout is not None
        process.stdout.close()
        _sell(shop)
        assert process.wait(timeout=PATIENCE_SECONDS) == 1, "as any command whose output is cut off"


def test_a_failure_of_spark_is_one_line(shop: Path, rollview: Command) -> None:
    sql = "SELECT n / 0 AS x FROM sales_by_state"
    done = _rollview("query", sql, "--project", str(shop))
    assert done.returncode == 1
    assert done.stdout == ""
    first, second = done.stderr.splitlines()
    assert first == "error: the query cannot be computed: [DIVIDE_BY_ZERO] Division by zero (in n / 0)"
    assert second == "  hint: change the query, for example by `try_divide` or `try_cast`"


JAVA = ("at org.apache", "Traceback", "Caused by", "Exception in task", "Py4J", "SQLQueryContextLogger")


def test_no_trace_of_java_reaches_the_terminal(tmp_path: Path) -> None:
    """Views that fail at `setup` and later: sentences, exit code 1, and the other view is there."""
    with closing(sqlite3.connect(tmp_path / "a.db")) as database, database:
        database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, k TEXT NOT NULL)")
        database.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    (tmp_path / "rollview.yml").write_text("name: p\nsources: {a: {type: sqlite, path: ./a.db}}\n")
    (tmp_path / "views").mkdir()
    for name, sql in {
        "good": "SELECT k, count(*) AS n FROM a.t GROUP BY k",
        "two_rows": "SELECT id, (SELECT k FROM a.t WHERE id < 9) AS x FROM a.t",
        "pattern": "SELECT id, k RLIKE concat('(', k) AS x FROM a.t",
        "later": "SELECT id, 10 % (id - 3) AS x FROM a.t",
    }.items():
        (tmp_path / "views" / f"{name}.sql").write_text(f"CREATE MATERIALIZED VIEW {name} AS {sql};\n")
    done = _rollview("setup", "--project", str(tmp_path))
    assert done.returncode == 1, done.stderr
    assert "view good: loaded" in done.stdout and "view two_rows: not set up" in done.stdout
    assert done.stderr.startswith("error: 2 views were not set up; the others were:\n")
    assert "view two_rows cannot be computed at csn 0: " in done.stderr
    with closing(sqlite3.connect(tmp_path / "a.db")) as database, database:
        database.execute("INSERT INTO t VALUES (3, 'c')")
    once = _rollview("run", "--once", "--project", str(tmp_path))
    assert once.returncode == 1 and "view later cannot be computed at csn 1: " in once.stderr
    for run in (done, once):
        assert not [each for each in JAVA if each in run.stdout + run.stderr], run.stderr


def test_the_demo(tmp_path: Path) -> None:
    """It ends although its writers do not; a total that did not agree would have ended it with an error."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        _command("demo", "--json"), capture_output=True, text=True, env=environment, timeout=300, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    facts = json.loads(done.stdout)
    assert facts["verified"] is True
    assert max(facts["loaded_csn"].values()) <= facts["earlier_csn"] <= facts["chosen_csn"]
    assert facts["chosen_csn"] < facts["latest_csn"]
    assert facts["at_earlier_csn"] != facts["at_latest_csn"]
    assert facts["transactions_written"] >= facts["latest_csn"] > 10
    assert [each for each in tmp_path.iterdir() if each.name.startswith("rollview-demo")] == []
