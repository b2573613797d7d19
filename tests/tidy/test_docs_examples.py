"""Examples in the docs are executed: Python blocks as they are, `$ rollview …` lines as a user types them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from rollview.cli import main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCKS = [
    (page, number, language, code)
    for page in PAGES
    for number, (language, code) in enumerate(
        re.findall(
            r"^```(python|console)\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
        )
    )
]
PYTHON = [(page, number, code) for page, number, language, code in BLOCKS if language == "python"]
COMMANDS = [
    (page, line.removeprefix("$ rollview "))
    for page, _, language, code in BLOCKS
    if language == "console"
    for line in code.splitlines()
    if line.startswith("$ rollview ")
]


@pytest.mark.parametrize(("page", "number", "code"), PYTHON, ids=lambda value: str(value)[-40:])
def test_python_blocks(page: Path, number: int, code: str) -> None:
    exec(compile(code, f"{page.name}[{number}]", "exec"), {})


@pytest.mark.parametrize(("page", "command"), COMMANDS, ids=lambda value: str(value)[-60:])
def test_commands(page: Path, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = shlex.split(command.split("#", maxsplit=1)[0])
    result = CliRunner().invoke(main, arguments)
    expected = 1 if {"conventional", "rolling-as-printed"} & set(arguments) else 0
    assert result.exit_code == expected, result.output


WITNESSES = re.findall(r"`rollview (simulate --algorithm [^`]*--expect \w+)`", "".join(
    page.read_text(encoding="utf-8") for page in PAGES if page.name == "algorithms.md"
))  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("command", WITNESSES[::9])
def test_witnesses_in_the_tables_still_fail(command: str) -> None:
    """A sample: the run that the page names falls short of the level that it says is missed."""
    assert CliRunner().invoke(main, shlex.split(command)).exit_code == 1
