"""`rollview demo`: rollview at work, on real databases that others keep writing to."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import click
from rich.console import Console

from rollview.cli.anomaly import tell_anomaly
from rollview.cli.project_context import Opened, opened
from rollview.cli.signals import ending_on_signals, ignoring_signals
from rollview.cli.terminal import json_option, print_json
from rollview.errors import OptionError
from rollview.extras import require


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
        tell_anomaly(console, runs)
        return
    require("demo", "`rollview demo`", "`rollview init DIR --sqlite` needs no server")
    # Not at the top: --anomaly needs no Spark and no server.
    from rollview.cli.status_tables import print_status  # noqa: PLC0415
    from rollview.cli.verify import print_verification  # noqa: PLC0415
    from rollview.demo.demo_script import CommandLine, run_demo  # noqa: PLC0415

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
    from rollview.demo.starter_project import CRM  # noqa: PLC0415
    from rollview.sources.postgres import EmbeddedPostgres  # noqa: PLC0415

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
