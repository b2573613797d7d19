"""Every command that a hint names can be typed as it is printed. All of them are typed here, in a project."""

from __future__ import annotations

import ast
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from rollview.cli.main import main

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src" / "rollview").rglob("*.py"))
sys.path.insert(0, str(ROOT / "tests" / "service"))

from shop import Shop  # noqa: E402

COMMAND = re.compile(r"`(rollview [^`]*)`")
VIEW, SOURCE = "sold", "shop"
VALUES = {
    "quote(reload)": SOURCE,
    "quote(source)": SOURCE,
    "quote(new.source)": SOURCE,
    "reload": f"setup --reload {VIEW}",
    "name": VIEW,
    "view": VIEW,
    "quote(name)": VIEW,
    "quote(view.name)": VIEW,
    "quote(at.name)": "billing",
    "quote(at.view)": VIEW,
    "quote(view)": VIEW,
    "quote(point)": "latest",
    "source": SOURCE,
    "self.source": SOURCE,
    "verdict.view": VIEW,
    "reloads": f"--reload {VIEW} --reload sales_by_state",
    "' '.join(map(quote, views))": f"{VIEW} sales_by_state",
    "close[0]": "status",
    "quote(waiting.global_id)": "--help",
}
"""What stands in the places of a hint that are filled in when it is printed."""

PLACES = {"FILE": "for-the-administrator.sql", "FOLDER": "copy", "SOURCE": SOURCE, "VIEW": VIEW, "DIR": "new"}


def _text(node: ast.expr) -> str | None:
    """A string as it may be printed; None if it is not a string."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(_part(each) for each in node.values)
    return None


def _part(node: ast.expr) -> str:
    if isinstance(node, ast.FormattedValue):
        return VALUES.get(ast.unparse(node.value), f"<{ast.unparse(node.value)}>")
    return _text(node) or ""


def _hints() -> Iterator[tuple[str, str]]:
    """Every string in a call that names a command, and where it stands; docstrings are not printed."""
    for file in SOURCES:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        documented = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            and node.body
            and isinstance(node.body[0], ast.Expr)
        }
        inside = {
            id(part)
            for node in ast.walk(tree)
            if isinstance(node, ast.JoinedStr)
            for part in ast.walk(node)
            if part is not node
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.expr) and id(node) not in documented | inside:
                text = _text(node)
                if text and "`rollview " in text:
                    yield text, f"{file.relative_to(ROOT)}:{node.lineno}"


def _commands() -> dict[str, str]:
    """Each command once, with a place that prints it."""
    return {command: place for text, place in _hints() for command in COMMAND.findall(text)}


def test_there_are_hints_and_they_can_be_filled_in() -> None:
    commands = _commands()
    assert len(commands) > 15
    assert {"rollview recover", "rollview setup", f"rollview setup --reload {SOURCE}"} <= commands.keys()
    unknown = {command: place for command, place in commands.items() if "<" in command}
    assert not unknown, f"say in VALUES what stands there: {unknown}"


@pytest.mark.slow
@pytest.mark.campaign
def test_every_command_of_a_hint_can_be_typed(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(tmp_path / "shop")
    for _ in range(8):
        shop.transact()
    monkeypatch.chdir(shop.folder)
    assert CliRunner().invoke(main, ["setup"], obj=spark).exit_code == 0
    for command, place in sorted(_commands().items()):
        words = [PLACES.get(word, word) for word in shlex.split(command)[1:]]
        if words[0] in ("demo", "simulate", "COMMAND"):
            words = [words[0].replace("COMMAND", "status"), "--help"]
        if words[0] == "ui" or "--standby" in words:
            words.append("--help")  # It ends only when it is stopped.
        if words == ["run"]:
            words.append("--once")
        if words[:1] in (
            ["condense"],
            ["query"],
            ["read"],
            ["deltas"],
            ["explain"],
            ["release"],
            ["restore"],
        ):
            words = words if len(words) > 1 else [*words, "--help"]
        done = CliRunner().invoke(main, words, obj=spark)
        assert done.exception is None or isinstance(done.exception, SystemExit), (place, command)
        for complaint in ("Usage:", "No such", "Missing argument", "Error: Got unexpected"):
            assert complaint not in done.output or "--help" in words, (place, command, done.output)
    shop.close()
