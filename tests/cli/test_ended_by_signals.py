"""Commands that are killed for real: no server stays behind, and the demo takes its folder along."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollview.sources.postgres import EmbeddedPostgres

pytestmark = pytest.mark.slow
PATIENCE_SECONDS = 90.0
MAIN = "from rollview.cli import main; main()"


def started(*arguments: str, folder: Path) -> subprocess.Popen[bytes]:
    """A command, with its temporary files in a folder."""
    command = [sys.executable, "-c", MAIN, *arguments]
    environment = {**os.environ, "TMPDIR": str(folder)}
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)


def until(found: object, what: str) -> None:
    """Waits until a question is answered with yes."""
    assert callable(found)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not found():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def command_lines() -> dict[int, str]:
    """What every process on this machine was started as; everybody can read that."""
    lines = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            lines[int(process.name)] = (process / "cmdline").read_text(errors="replace").replace("\0", " ")
        except OSError:
            continue
    return lines


def using(folder: Path) -> list[str]:
    """The processes that were started with something in a folder."""
    return [line for line in command_lines().values() if str(folder.resolve()) in line]


def writers() -> set[int]:
    """The demo's programs that write."""
    return {pid for pid, line in command_lines().items() if "demo_writers.py" in line}


def server_in(folder: Path) -> Path | None:
    """The file that names a server that runs below a folder."""
    return next((each for each in folder.glob("**/crm/data/postmaster.pid")), None)


def expect_nothing_runs(folder: Path, status: Path) -> None:
    """No process of the server's is left, and it ended in order: it took its file away."""
    until(lambda: not using(folder) and not status.exists(), f"still there: {using(folder)}")


def again(*values: object) -> object:
    """One more case of what another one shows already."""
    return pytest.param(*values, marks=pytest.mark.soak)


@pytest.mark.parametrize("sign", [signal.SIGTERM, again(signal.SIGINT), again(signal.SIGHUP), signal.SIGKILL])
def test_the_demo_leaves_nothing_behind(tmp_path: Path, sign: signal.Signals) -> None:
    before = writers()
    process = started("demo", folder=tmp_path)
    until(lambda: len(writers() - before) == 3, "the writers write")
    own_writers = writers() - before
    (folder,) = tmp_path.glob("rollview-demo-*")
    data = (folder / "crm" / "data").resolve()
    password = (folder / "crm" / "password").read_text()
    assert [line for line in command_lines().values() if password in line] == []
    process.send_signal(sign)
    process.communicate(timeout=PATIENCE_SECONDS)
    until(lambda: not writers() & own_writers, "the writers end")
    until(lambda: not [line for line in command_lines().values() if str(data) in line], "the server ends")
    if sign == signal.SIGKILL:
        assert process.returncode == -sign
        EmbeddedPostgres(folder / "crm").remove()
        return
    assert process.returncode == 128 + sign
    assert not folder.exists() and not data.exists()


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A project that has not been set up yet."""
    folder = tmp_path_factory.mktemp("signals")
    assert started("init", str(folder / "shop"), folder=folder).wait(PATIENCE_SECONDS) == 0
    assert server_in(folder) is None
    yield folder / "shop"
    EmbeddedPostgres(folder / "shop" / "crm").remove()


@pytest.mark.parametrize(
    ("command", "sign"),
    [
        again("setup", signal.SIGHUP),
        ("setup", signal.SIGTERM),
        again("setup", signal.SIGKILL),
        again("run", signal.SIGHUP),
        again("run", signal.SIGTERM),
        ("run", signal.SIGKILL),
    ],
)
def test_a_project_at_work_leaves_no_server(shop: Path, command: str, sign: signal.Signals) -> None:
    if command == "run":
        assert started("setup", "--project", str(shop), folder=shop).wait(PATIENCE_SECONDS) == 0
    process = started(command, "--project", str(shop), folder=shop)
    until(lambda: server_in(shop) is not None, "the server runs")
    time.sleep(0.5)
    status = server_in(shop)
    assert status is not None
    data = (shop / "crm" / "data").resolve()
    assert using(data) != []
    process.send_signal(sign)
    process.communicate(timeout=PATIENCE_SECONDS)
    expect_nothing_runs(data, status)


@pytest.mark.parametrize("sign", [signal.SIGTERM, again(signal.SIGINT), signal.SIGKILL])
def test_a_killed_init_leaves_no_server(tmp_path: Path, sign: signal.Signals) -> None:
    process = started("init", str(tmp_path / "shop"), folder=tmp_path)
    until(lambda: server_in(tmp_path) is not None, "the server runs")
    status = server_in(tmp_path)
    assert status is not None
    data = (tmp_path / "shop" / "crm" / "data").resolve()
    process.send_signal(sign)
    process.communicate(timeout=PATIENCE_SECONDS)
    expect_nothing_runs(data, status)
    EmbeddedPostgres(tmp_path / "shop" / "crm").remove()
