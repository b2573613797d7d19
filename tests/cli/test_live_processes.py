"""`run` in a real terminal, beside commands that it answers; killed, and what it leaves behind."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "service"))

from shop import Shop, transact  # noqa: E402

from rollview.answer.local_socket import socket_folder  # noqa: E402
from rollview.config.project_file import read_project_file  # noqa: E402
from rollview.project.project import Project  # noqa: E402

pytestmark = pytest.mark.slow

ROLLVIEW = [sys.executable, "-c", "from rollview.cli import main; main()"]


class _Terminal:
    """What a person at a terminal sees and does."""

    def __init__(self, process: subprocess.Popen[bytes], descriptor: int) -> None:
        self.process, self._descriptor, self.text = process, descriptor, ""

    def read_until(self, pattern: str, seconds: float = 90.0) -> None:
        end = time.monotonic() + seconds
        while not re.search(pattern, self.text):
            assert time.monotonic() < end, self.text[-3000:]
            if select.select([self._descriptor], [], [], 0.5)[0]:
                try:
                    self.text += os.read(self._descriptor, 65536).decode(errors="replace")
                except OSError:
                    break
        assert re.search(pattern, self.text), self.text[-3000:]


@contextmanager
def _at_a_terminal(folder: Path, *words: str) -> Iterator[_Terminal]:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": "120", "LINES": "40", "TERM": "xterm"}
    process = subprocess.Popen(
        [*ROLLVIEW, *words], cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    try:
        yield _Terminal(process, ours)
    finally:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        process.wait()
        os.close(ours)


def _typed(folder: Path, *words: str) -> str:
    done = subprocess.run([*ROLLVIEW, *words], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def folder(tmp_path: Path, spark: SparkSession) -> Iterator[tuple[Path, Shop]]:
    shop = Shop(tmp_path / "shop")
    transact(shop, 15)
    with Project.open(shop.folder, spark) as project:
        project.setup()
    yield shop.folder, shop
    shop.close()


@pytest.mark.long
def test_a_live_table_and_answers_beside_it(folder: tuple[Path, Shop]) -> None:
    place, shop = folder
    alone = _typed(place, "read", "sold")
    with _at_a_terminal(place, "run") as terminal:
        terminal.read_until("high-water mark")
        terminal.read_until("Ctrl-C stops")
        assert _typed(place, "read", "sold") == alone
        # Who starts no Java gets an answer all the same: it comes from there.
        query = ("query", "SELECT count(*) AS n FROM sold", "--json")
        environment = {**os.environ, "JAVA_HOME": "/no/such/java"}
        done = subprocess.run(
            [*ROLLVIEW, *query], cwd=place, env=environment, capture_output=True, text=True, check=False
        )
        assert (done.returncode, '"columns": ["n"]' in done.stdout) == (0, True), done.stderr
        transact(shop, 3)
        terminal.read_until("captured [0-9]+ transaction")
        terminal.read_until("applied")
        os.kill(terminal.process.pid, signal.SIGINT)
        terminal.read_until("stopped at csn")
        assert terminal.process.wait(60) == 0
    assert list(socket_folder(read_project_file(place)).iterdir()) == []
    # Where it was killed, its socket is of no use to anybody, and goes.
    with _at_a_terminal(place, "run") as terminal:
        terminal.read_until("high-water mark")
        while not list(socket_folder(read_project_file(place)).iterdir()):
            time.sleep(0.1)
    assert len(list(socket_folder(read_project_file(place)).iterdir())) == 1
    assert "rows" in _typed(place, "read", "sold")
    assert list(socket_folder(read_project_file(place)).iterdir()) == []


def test_status_is_watched_until_q(folder: tuple[Path, Shop]) -> None:
    with _at_a_terminal(folder[0], "status", "--watch", "0.2") as terminal:
        terminal.read_until("every 0.2 s; q or Ctrl-C ends")
        terminal.text = ""
        terminal.read_until("every 0.2 s; q or Ctrl-C ends")
        os.write(terminal._descriptor, b"q")
        assert terminal.process.wait(30) == 0
    with _at_a_terminal(folder[0], "status", "--watch") as terminal:
        terminal.read_until("q or Ctrl-C ends")
        os.kill(terminal.process.pid, signal.SIGINT)
        assert terminal.process.wait(30) == 0
