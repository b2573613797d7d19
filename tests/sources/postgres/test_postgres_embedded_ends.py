"""The embedded server ends with the last process that uses it, however that one ends."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from rollview.sources.postgres import EmbeddedPostgres

pytestmark = pytest.mark.slow
PATIENCE_SECONDS = 20.0
USER = """
import sys, threading, time
from pathlib import Path
from rollview.sources.postgres import EmbeddedPostgres
server = EmbeddedPostgres(Path(sys.argv[1]))
# In a thread that ends before the process does, as the pools of rollview do.
thread = threading.Thread(target=lambda: print(server.start(), flush=True))
thread.start()
thread.join()
time.sleep(600)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder for a server; removed even if a test fails."""
    yield tmp_path / "crm"
    EmbeddedPostgres(tmp_path / "crm").remove()


def user_of(folder: Path) -> tuple[subprocess.Popen[str], str]:
    """A process that uses the server; its address."""
    process = subprocess.Popen([sys.executable, "-c", USER, str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def end(process: subprocess.Popen[str], sign: signal.Signals) -> None:
    """Ends a process by a signal."""
    process.send_signal(sign)
    process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode != 0


def server_process(folder: Path) -> int:
    """The process of the server."""
    status = folder / "data" / "postmaster.pid"
    while not (lines := status.read_text().splitlines()):
        time.sleep(0.001)  # The file is there a moment before its first line.
    return int(lines[0])


def expect_no_server(folder: Path, pid: int) -> None:
    """The server ends, in order: it takes its file away."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{pid}").exists()
    assert not (folder / "data" / "postmaster.pid").exists()


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_a_killed_process_leaves_no_server(folder: Path, sign: signal.Signals) -> None:
    process, address = user_of(folder)
    pid = server_process(folder)
    psycopg.connect(address).close()
    end(process, sign)
    expect_no_server(folder, pid)
    again, same_address = user_of(folder)
    assert same_address == address
    end(again, signal.SIGKILL)


def test_a_kill_before_the_server_is_ready_leaves_none_either(folder: Path) -> None:
    end(user_of(folder)[0], signal.SIGKILL)
    EmbeddedPostgres(folder).stop()
    process = subprocess.Popen([sys.executable, "-c", USER, str(folder)], stdout=subprocess.PIPE, text=True)
    while not (folder / "data" / "postmaster.pid").exists():
        time.sleep(0.001)
    pid = server_process(folder)
    end(process, signal.SIGKILL)
    expect_no_server(folder, pid)


def test_it_stays_while_another_process_uses_it(folder: Path) -> None:
    starter, address = user_of(folder)
    other, same_address = user_of(folder)
    assert same_address == address
    pid = server_process(folder)
    with psycopg.connect(address, autocommit=True) as connection:
        end(starter, signal.SIGKILL)
        time.sleep(1.0)
        assert connection.execute("SELECT 1").fetchone() == (1,)
    assert server_process(folder) == pid
    end(other, signal.SIGKILL)
    expect_no_server(folder, pid)


def test_a_process_that_ends_leaves_no_server_and_one_that_begins_waits_for_its_end(folder: Path) -> None:
    script = USER.replace("time.sleep(600)", "")
    for _ in range(3):
        subprocess.run([sys.executable, "-c", script, str(folder)], check=True, stdout=subprocess.DEVNULL)
        assert not (folder / "data" / "postmaster.pid").exists(), "the end of the server is waited for"


FORKING = """
import atexit, os, sys
from pathlib import Path
import psycopg
from rollview.sources.postgres import EmbeddedPostgres
address = EmbeddedPostgres(Path(sys.argv[1])).start()
child = os.fork()
if not child:
    # Ends as a program does, with everything that was registered for it.
    atexit._run_exitfuncs()
    os._exit(0)
os.waitpid(child, 0)
psycopg.connect(address).close()
"""


def test_a_child_that_ends_takes_nothing_from_its_parent(folder: Path) -> None:
    """In a process of its own: what these tests registered for their end must not run here."""
    subprocess.run([sys.executable, "-c", FORKING, str(folder)], check=True)
