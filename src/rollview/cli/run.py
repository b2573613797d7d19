"""`rollview run`: everything by policy, one line per event."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

import click

from rollview.cli.event_lines import sentence
from rollview.cli.project_context import Opened, opened, project_options
from rollview.cli.terminal import own_stream, results
from rollview.events import Event, Stopped


@click.command()
@click.option("--once", is_flag=True, help="Stop when nothing is left to do.")
@project_options
def run(once: bool, project_file: Path, as_json: bool) -> None:
    """Capture, propagate and apply, by policy, until stopped.

    Looks for new transactions twice a second, and keeps the lake's logs small. Errors at a source or in the
    lake are reported and retried; with --once, the first error ends the run. Ctrl-C and SIGTERM let the
    current step finish and end with exit code 0; it is safe to kill the process at any moment. With --json,
    each event is one line of JSON.

    \b
    rollview run --once
    rollview run
    rollview run --once --log-file rollview.log
    """
    # Not at the top: help and wrong arguments should not wait for Spark.
    from rollview.service.retry import stopping_on_signals  # noqa: PLC0415

    with (
        own_stream(sys.stdout) as stream,
        opened(project_file, "waiting for changes") as at,
        stopping_on_signals() as stop,
    ):
        last = [0]

        def tell(event: Event) -> None:
            if isinstance(event, Stopped):
                last[0] = event.csn
            try:
                print_event(event, at, stream, as_json)
            except BrokenPipeError:
                # Nobody reads any more; a program that writes to a pipe ends then.
                stop.now()
                raise

        at.project.subscribe(tell)
        with nullcontext() if once else at.project.answering():
            at.project.run(once, stop)
    if not as_json:
        results().print("nothing is left to do" if once else "stopped", f"at csn {last[0]}", style="dim")


def print_event(event: Event, at: Opened, stream: IO[str], as_json: bool) -> None:
    """One line: all of the event as JSON, or a sentence if it is worth one."""
    if as_json:
        line = json.dumps(event.record(), ensure_ascii=False)
    elif told := sentence(event):
        line = f"{datetime.fromtimestamp(event.time, UTC).astimezone():%H:%M:%S}  {told}"
    else:
        return
    with at.tell.aside():
        click.echo(line, file=stream)
