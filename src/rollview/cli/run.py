"""`rollview run`: everything by policy, one line per thing done."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import click

from rollview.cli.project_context import opened, project_options
from rollview.cli.terminal import results
from rollview.service.points_in_time import iso


@click.command()
@click.option("--once", is_flag=True, help="Until nothing is left to do.")
@project_options
def run(once: bool, project_file: Path, as_json: bool) -> None:
    """Capture, propagate and apply, by policy, until stopped.

    Looks for new transactions twice a second, and keeps the lake's logs small. Trouble at a source or in the
    lake is told and tried again. Ctrl-C or SIGTERM finish the step that runs and end with exit code 0; it is
    safe to kill the process at any moment. With --json each event is one line of JSON.

    \b
    rollview run --once
    rollview run
    """
    # Not at the top: help and wrong arguments should not wait for Spark.
    from rollview.service.run import stopping_on_signals  # noqa: PLC0415

    def event(what: str) -> None:
        now = datetime.now(UTC)
        if as_json:
            line = json.dumps({"time": iso(now.timestamp()), "event": what}, ensure_ascii=False)
        else:
            line = f"{now.astimezone():%H:%M:%S}  {what}"
        with at.tell.aside():
            click.echo(line)

    with opened(project_file, "waiting for changes") as at, stopping_on_signals() as stop:
        at.project.run(once, stop, event)
        csn = at.warehouse.catalog.last_csn()
    if not as_json:
        results().print("nothing is left to do" if once else "stopped", f"at csn {csn}", style="dim")
