"""`rollview init`: a project to start from."""

from __future__ import annotations

import shlex
from pathlib import Path

import click
from rich.text import Text

from rollview.cli.terminal import json_option, print_json, results
from rollview.demo.starter_project import NEXT_COMMANDS, write_project
from rollview.errors import InputError
from rollview.extras import require


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--sqlite", is_flag=True, help="Use SQLite for both databases, without a server.")
@json_option
def init(folder: Path, sqlite: bool, as_json: bool) -> None:
    """Write a small, commented project that works.

    It has two databases, a shop in SQLite and its customers in a real PostgreSQL that lives in the project's
    folder, and three views over them: a join, an aggregate, and a view over a view. Change anything you like.
    DIR must be empty or not exist yet.

    \b
    rollview init shop
    rollview init shop --sqlite
    """
    check_free(folder)
    if not sqlite:
        require("demo", "the PostgreSQL of the project", "`rollview init DIR --sqlite` needs no server")
    files = write_project(folder, sqlite)
    if as_json:
        print_json({"folder": folder.absolute(), "files": files, "next": [each for each, _ in NEXT_COMMANDS]})
        return
    console = results()
    console.print(Text.assemble("created a project in ", (str(folder), "bold")))
    for name, what in files.items():
        console.print(Text(f"  {name:26} {what}"))
    console.print("\nnext:")
    console.print(Text(f"  cd {shlex.quote(str(folder))}", style="cyan"), soft_wrap=True)
    for command, why in NEXT_COMMANDS:
        console.print(Text.assemble((f"  {command:44}", "cyan"), (f" # {why}", "dim")), soft_wrap=True)


def check_free(folder: Path) -> None:
    """Refuses a folder that holds anything, before anything is written."""
    hint = "name a folder that is empty or does not exist yet"
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file", subject=str(folder), hint=hint)
    if folder.is_dir() and any(folder.iterdir()):
        raise InputError(f"{folder} is not empty", subject=str(folder), hint=hint)
    for parent in folder.absolute().parents:
        if parent.exists():
            if not parent.is_dir():
                raise InputError(f"{parent} is a file", subject=str(folder), hint=hint)
            return
