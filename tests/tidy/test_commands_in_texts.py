"""A command that a message, a hint or a page names can be typed: it exists, and so do its options."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from rollview.cli import main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
QUOTED = re.compile(r"`rollview ([a-z][^`]*)`")


def _text(node: ast.AST) -> str:
    """A constant, or an f-string with a word in place of each value."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(each) if isinstance(each, ast.Constant) else "value" for each in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _quoted() -> Iterator[tuple[str, str]]:
    for file in sorted((ROOT / "src").rglob("*.py")):
        code = file.read_text(encoding="utf-8")
        if "`rollview " not in code:
            continue
        for node in ast.walk(ast.parse(code)):
            for command in QUOTED.findall(_text(node)):
                yield str(file.relative_to(ROOT)), command
    for file in PAGES:
        for command in QUOTED.findall(file.read_text(encoding="utf-8")):
            yield str(file.relative_to(ROOT)), command


def _parse(text: str) -> None:
    """Raises what click says to somebody who types this; missing arguments are left to the reader."""
    name, *arguments = shlex.split(text.replace("[", "").replace("]", "").replace("…", ""))
    if name == "value":
        return
    # The settings decide what `--help` is called, which click keeps with the command.
    context = click.Context(main, **main.context_settings)
    command = main.get_command(context, name)
    if command is None:
        raise click.UsageError(f"no command {name}")
    command.make_parser(click.Context(command, context, name)).parse_args(arguments)


@pytest.mark.parametrize(("file", "command"), sorted(set(_quoted())))
def test_commands_in_texts_can_be_typed(file: str, command: str) -> None:
    try:
        _parse(command)
    except click.UsageError as error:
        pytest.fail(f"{file}: `rollview {command}`: {error.format_message()}")


def test_a_command_without_its_value_is_noticed() -> None:
    with pytest.raises(click.UsageError):
        _parse("setup --reload")
    with pytest.raises(click.UsageError):
        _parse("refersh v")


def _unquoted(code: str) -> Iterator[str]:
    """Values that an f-string puts into a command, as they are."""
    for node in ast.walk(ast.parse(code)):
        if not isinstance(node, ast.JoinedStr):
            continue
        before = ""
        for each in node.values:
            if isinstance(each, ast.Constant):
                before += str(each.value)
            elif isinstance(each, ast.FormattedValue):
                shown = ast.unparse(each.value)
                # In a command, behind its name, as long as no backtick ends it.
                if re.search(r"(?:^|`|: )rollview [a-z]+ [^`;,.]*$", before) and not shown.startswith(
                    ("quote(", "' '.join(")
                ):
                    yield shown
                before += "value"


@pytest.mark.parametrize(
    "folder", ["catalog", "cli", "service", "sources", "spark", "web", "lake", "planning"]
)
def test_names_in_commands_are_quoted_for_a_shell(folder: str) -> None:
    """Names of views, sources, consumers and global transactions are what others chose."""
    found = {
        f"{file.relative_to(ROOT)}: {value}"
        for file in sorted((ROOT / "src/rollview" / folder).rglob("*.py"))
        for value in _unquoted(file.read_text(encoding="utf-8"))
    }
    assert found == set()


def test_a_name_that_is_not_quoted_is_noticed() -> None:
    assert list(_unquoted("f'run `rollview release {name}` now {x}'")) == ["name"]
    assert list(_unquoted("f'{a} `rollview setup --reload {quote(name)}` {b}'")) == []
