"""First steps: `rollview demo` shows rollview at work, `rollview init` writes a project to start from."""

from __future__ import annotations

import shlex
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from rollview.cli.project_context import Opened, opened
from rollview.cli.terminal import json_option, print_json, results
from rollview.demo.starter_project import NEXT_COMMANDS, write_project
from rollview.errors import InputError, OptionError
from rollview.imports import require
from rollview.lab.commands.anomaly import show_anomaly


@click.command()
@click.option("--keep", is_flag=True, help="Keep the folder, and print its path.")
@click.option("--anomaly", is_flag=True, help="In the simulator instead: how a naive algorithm goes wrong.")
@click.option("--runs", type=click.IntRange(1), default=2000, help="With --anomaly: fault-injection runs.")
@json_option
def demo(keep: bool, anomaly: bool, runs: int, as_json: bool) -> None:
    """See rollview at work on two real databases in a temporary folder.

    Other programs keep writing to a SQLite database and to a PostgreSQL server that the demo starts. A join
    and an aggregate over both are loaded while the writers write, follow them, are refreshed to the same
    point in time, are read as of an earlier one, and are verified. It takes less than a minute once Spark has
    started.

    \b
    rollview demo
    rollview demo --keep
    rollview demo --anomaly --runs 200
    """
    console = Console(highlight=False, quiet=as_json)
    if anomaly:
        if keep or as_json:
            raise OptionError(
                "--anomaly writes nothing and has no JSON output", hint="omit --keep and --json"
            )
        show_anomaly(console, runs)
        return
    require("demo", "`rollview demo`", "`rollview init DIR --sqlite` needs no server")
    # Not at the top: --anomaly needs no Spark and no server.
    from rollview.cli.status import print_status
    from rollview.cli.verify import print_verification
    from rollview.demo.demo_script import CommandLine, run_demo

    command_line = CommandLine(console, _open_project, print_status, print_verification)
    with ending_on_signals(), _temporary_folder(keep) as folder:
        facts = run_demo(command_line, folder)
    if keep:
        console.print(f"\nThe project is in {folder}; `cd` there and try any command.", soft_wrap=True)
    elif not as_json:
        console.print(
            "\nThe folder has been removed (--keep keeps it). Next: [cyan]rollview init shop[/cyan]"
        )
    if as_json:
        print_json({**facts, "folder": folder if keep else None})


def _open_project(folder: Path) -> AbstractContextManager[Opened]:
    return opened(folder, "starting Spark", may_be_new=True)


@contextmanager
def _temporary_folder(keep: bool) -> Iterator[Path]:
    """A folder whose server is stopped at the end; both are removed unless the user keeps them."""
    from rollview.demo.starter_project import CRM
    from rollview.sources.postgres import EmbeddedPostgres

    folder = Path(tempfile.mkdtemp(prefix="rollview-demo-"))
    try:
        yield folder
    finally:
        with ignoring_signals():
            server = EmbeddedPostgres(folder / CRM)
            server.stop()
            if not keep:
                server.remove()
                shutil.rmtree(folder, ignore_errors=True)


# `rollview init`: a project to start from.


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
        commands = [command for command, _ in _next_commands()]
        print_json({"folder": folder.absolute(), "files": files, "next": commands})
        return
    console = results()
    console.print(Text.assemble("created a project in ", (str(folder), "bold")))
    for name, what in files.items():
        console.print(Text(f"  {name:26} {what}"))
    console.print("\nnext:")
    console.print(Text(f"  cd {shlex.quote(str(folder))}", style="cyan"), soft_wrap=True)
    for command, why in _next_commands():
        console.print(Text.assemble((f"  {command:44}", "cyan"), (f" # {why}", "dim")), soft_wrap=True)


def _next_commands() -> list[tuple[str, str]]:
    """The next commands, each with its purpose; the shell must find them in this environment first."""
    found = shutil.which("rollview"), shutil.which("python3")
    ours = Path(sys.executable).parent
    activate = ours / "activate"
    if all(each and Path(each).parent == ours for each in found) or not activate.exists():
        return list(NEXT_COMMANDS)
    return [(f". {shlex.quote(str(activate))}", "`rollview` and its `python3` in this shell"), *NEXT_COMMANDS]


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


# Signals that end a command: whatever it has opened is closed first, as it is after Ctrl-C.

_ENDING = (signal.SIGTERM, signal.SIGHUP)
_INTERRUPTING = (*_ENDING, signal.SIGINT)


@contextmanager
def ending_on_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end what runs inside with an exception, and the process with the usual exit code."""

    def end(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    with _handled(_ENDING, end):
        yield


@contextmanager
def ignoring_signals() -> Iterator[None]:
    """For what must be finished once it has begun, such as removing files."""
    with _handled(_INTERRUPTING, signal.SIG_IGN):
        yield


@contextmanager
def _handled(signals: tuple[signal.Signals, ...], handler: Any) -> Iterator[None]:
    before = {each: signal.signal(each, handler) for each in signals}
    try:
        yield
    finally:
        for each, usual in before.items():
            signal.signal(each, usual)
