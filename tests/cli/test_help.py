"""What `--help` promises: every command listed, explained and shown by example, without loading Spark."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from commands_page import commands_page, examples

from rollview.cli import main
from rollview.cli.main import COMMANDS

NAMES = [name for section in COMMANDS.values() for name in section]
PLACES = {name: entry for section in COMMANDS.values() for name, entry in section.items()}
OF_A_PROJECT = [name for name in NAMES if name not in ("demo", "init", "simulate")]
CONTRACT = """demo init setup run capture propagate apply refresh status read deltas query explain verify
condense register release simulate recover backup restore move-catalog move-lake consumers ui why"""


def _command(name: str) -> click.Command:
    module, _, attribute = PLACES[name][0].partition(":")
    command = getattr(import_module(module), attribute)
    assert isinstance(command, click.Command)
    return command


def test_the_commands_are_those_of_the_design() -> None:
    assert set(NAMES) == set(CONTRACT.split())
    listed = CliRunner().invoke(main, ["--help"]).output
    assert all(f"\n  {name} " in listed for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_help_says_what_it_does_and_gives_an_example(name: str) -> None:
    command = _command(name)
    assert command.help is not None
    if name != "simulate":
        assert command.help.splitlines()[0] == PLACES[name][1]
    assert examples(command)
    assert all(example.startswith(f"rollview {name}") for example in examples(command))
    output = CliRunner().invoke(main, [name, "--help"]).output
    assert output.startswith(f"Usage: rollview {name}")
    assert "--debug" in output


@pytest.mark.parametrize("name", OF_A_PROJECT)
def test_commands_of_a_project_take_its_file_and_give_json(name: str) -> None:
    options = {option for each in _command(name).params for option in each.opts}
    assert {"--project", "--json"} <= options
    if options & {"--to", "--as-of", "--from"}:
        assert "T is `csn:N`, an ISO time" in (_command(name).help or "")


def test_help_and_wrong_arguments_do_not_load_spark() -> None:
    lines = ["import sys", "from click.testing import CliRunner", "from rollview.cli import main"]
    for name in NAMES:
        lines.append(f"assert CliRunner().invoke(main, [{name!r}, '--help']).exit_code == 0")
        lines.append(f"assert CliRunner().invoke(main, [{name!r}, '--no-such-option']).exit_code == 2")
    lines.append("import rollview")
    lines.append("assert 'pyspark' not in sys.modules, 'pyspark was loaded'")
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_project_is_loaded_when_asked_for() -> None:
    import rollview

    assert rollview.Project.__name__ == "Project"
    with pytest.raises(AttributeError, match="has no attribute 'Projekt'"):
        _ = rollview.Projekt


def test_a_mistyped_command_gets_a_hint() -> None:
    result = CliRunner().invoke(main, ["refesh"])
    assert result.exit_code == 2
    assert "did you mean `rollview refresh`?" in result.output
    assert "`rollview --help` lists them" in CliRunner().invoke(main, ["xyzzy"]).output


def test_the_page_of_commands_is_what_help_says() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "commands.md"
    assert page.read_text(encoding="utf-8") == commands_page(), (
        "python tests/cli/commands_page.py rewrites it"
    )
