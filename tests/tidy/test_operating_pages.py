"""The operating guide says what the code says: every failure has its way out, every command can be typed."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import tomllib
from pathlib import Path

import click
import pytest

import rollview.errors
from rollview.cli import main
from rollview.errors import RollviewError
from rollview.maintain.faults import RELOADING, TRUNCATED

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
    "optional-dependencies"
]

TYPED = {
    "tutorial.md": "tests/cli/test_project_commands.py",
    "how-to/postgresql.md": "tests/service/test_how_to.py",
    "how-to/mariadb.md": "tests/service/test_how_to.py",
    "how-to/sqlite.md": "tests/service/test_typed_pages.py",
    "how-to/delta.md": "tests/service/test_typed_pages.py",
    "how-to/files.md": "tests/service/test_typed_pages.py",
    "how-to/why.md": "tests/service/test_typed_pages.py",
    "operate/deploy.md": "tests/service/test_typed_pages.py",
    "operate/monitor.md": "tests/service/test_typed_pages.py",
    "operate/backup.md": "tests/service/test_typed_pages.py",
}
"""Pages with commands for a shell, and the test that types them."""

NOT_SHOWN = {
    "RollviewError": "a family",
    "InputError": "a family",
    "SourceError": "a family",
    "LakeError": "a family",
    "HistoryError": "a family; what is raised as such is a defect of a source",
    "OptionError": "a mistake in a command, reported at once",
    "ProjectError": "a mistake in the project file, reported at once",
    "PointError": "a mistake in a command, reported at once",
    "WorldError": "the simulator's",
    "SeveralMistakes": "several of the others",
    "NotWaiting": "a mistake in `rollview release`, reported at once",
}
"""Errors that stop nothing that runs, and why."""


def _errors() -> set[str]:
    found = [each for each in vars(rollview.errors).values() if isinstance(each, type)]
    return {each.__name__ for each in found if issubclass(each, RollviewError)}


def test_every_failure_has_its_way_out() -> None:
    text = (DOCS / "operate" / "failures.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([A-Z][A-Za-z]+)`", text))
    kinds = (_errors() - NOT_SHOWN.keys()) | {TRUNCATED, RELOADING}
    assert kinds - named == set(), "a kind of fault without a line"
    others = {"GLOBAL_ID"}
    assert {name for name in named - kinds - others if not name.isupper()} == set(), "a kind that is none"


def test_commands_for_a_shell_are_typed_by_a_test() -> None:
    pages = [page for page in DOCS.rglob("*.md") if "\n```sh\n" in page.read_text(encoding="utf-8")]
    assert {str(page.relative_to(DOCS)) for page in pages} == TYPED.keys()
    for page, test in TYPED.items():
        assert Path(page).name in (ROOT / test).read_text(encoding="utf-8"), page


def _block(language: str) -> str:
    text = (DOCS / "operate" / "deploy.md").read_text(encoding="utf-8")
    (block,) = re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return str(block)


def _parse(words: list[str]) -> None:
    context = click.Context(main, **main.context_settings)
    command = main.get_command(context, words[0])
    assert command is not None
    command.make_parser(click.Context(command, context, words[0])).parse_args(words[1:])


def test_the_service_runs_a_command_that_exists() -> None:
    unit = configparser.ConfigParser(interpolation=None, strict=True)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(_block("ini"))
    assert set(unit) - {"DEFAULT"} == {"Unit", "Service", "Install"}
    program, *words = shlex.split(unit["Service"]["ExecStart"])
    assert program.endswith("/rollview")
    _parse(words)


def test_the_container_runs_a_command_that_exists() -> None:
    text = _block("dockerfile")
    (command,) = re.findall(r"^CMD (.*)$", text, re.MULTILINE)
    program, *words = json.loads(command)
    assert program == "rollview"
    _parse(words)


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: str(page.relative_to(DOCS)))
def test_extras_that_a_page_names_exist(page: Path) -> None:
    named = re.findall(r"(?:rollview|\.)\[([a-z]+(?:,[a-z]+)*)\]", page.read_text(encoding="utf-8"))
    assert {extra for group in named for extra in group.split(",")} <= EXTRAS.keys()
