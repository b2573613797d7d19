"""`rollview ui` as a process, as a user starts it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from paper_project import Size, fill, project_file

from rollview.cli import main

MAIN = "from rollview.cli import main; main()"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that exists in its catalog alone."""
    found = project_file(tmp_path_factory.mktemp("command"))
    fill(found, Size())
    return found


@contextmanager
def _started(*arguments: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command and what it prints first."""
    # Whoever starts Spark fails: the page needs none.
    known = {**os.environ, "JAVA_HOME": "/no/such/java", **environment}
    command = [sys.executable, "-c", MAIN, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=known)
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline()
    finally:
        process.kill()
        process.communicate()


def _get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.mark.slow
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_stopped(path: Path, sign: signal.Signals) -> None:
    with _started("ui", "--listen", "0", "--project", str(path), "--json") as (process, line):
        url = json.loads(line)["url"]
        assert url.startswith("http://127.0.0.1:")
        assert _get(url)[0] == 200 and "view_000" in _get(url)[1]
        process.send_signal(sign)
        assert process.wait(30) == 0


@pytest.mark.slow
def test_for_other_addresses_a_token_is_printed_once(path: Path) -> None:
    log = path.with_name("page.log")
    logged = ("--log-file", str(log), "--log-level", "debug")
    with _started("ui", "--listen", "0.0.0.0:0", "--project", str(path), *logged) as (process, line):
        url = line.split(" at ")[1].strip()
        assert "?token=" in url
        here = url.replace("0.0.0.0", "127.0.0.1")
        assert _get(here.partition("?")[0])[0] == 401
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with opener.open(here, timeout=30) as answer:
            assert answer.status == 200 and "view_000" in answer.read().decode()
        process.terminate()
        out, err = process.communicate(timeout=30)
        assert "token" not in out + err
        assert url.partition("?token=")[2] not in log.read_text()


def test_a_missing_extra_is_named_with_the_way_to_install_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rollview.imports._is_installed", lambda module: module != "uvicorn")
    for arguments in (["ui"], ["run", "--ui", "0"]):
        found = CliRunner().invoke(main, [*arguments, "--project", str(path)])
        assert found.exit_code == 2
        assert "there is no uvicorn" in found.output and "pip install 'rollview[ui]'" in found.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["ui", "--listen", "nonsense"], "is not an address to listen on"),
        (["ui", "--token-file", "/no/such/file"], "cannot be read"),
        (["run", "--allow-actions"], "add --ui PORT"),
    ],
)
def test_bad_input_is_refused(path: Path, arguments: list[str], words: str) -> None:
    found = CliRunner().invoke(main, [*arguments, "--project", str(path)])
    assert found.exit_code == 2 and words in found.output, found.output


def test_run_serves_the_page_meanwhile(path: Path) -> None:
    """There is nothing to capture from, so that it ends at once; the page was there."""
    found = CliRunner().invoke(main, ["run", "--once", "--ui", "0", "--project", str(path)])
    assert found.exit_code and "the page is at http://127.0.0.1:" in found.output, found.output


def test_a_project_that_is_not_set_up_is_refused(tmp_path: Path) -> None:
    found = CliRunner().invoke(main, ["ui", "--project", str(project_file(tmp_path / "new"))])
    assert found.exit_code == 2 and "rollview setup" in found.output
    assert not (tmp_path / "new" / "lake").exists()


def test_what_pages_need_is_in_the_package() -> None:
    package: Any = files("rollview.web")
    assert {each.name for each in (package / "assets").iterdir()} >= {"page.css", "page.js", "icon.svg"}
    assert (package / "templates" / "overview.html").is_file()
