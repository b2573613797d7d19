"""`rollview run`: everything by policy, as a live table in a terminal, else one line per event."""

from __future__ import annotations

import json
import sys
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import IO

import click

from rollview.cli.event_lines import stamped_line
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
    current step finish and end with exit code 0; it is safe to kill the process at any moment.

    In a terminal, sources and views are shown in a table that is always up to date. Elsewhere, with
    --log-file or --log-level, and with --once, each event is one line; with --json one line of JSON.

    While it runs, `read`, `deltas` and `query` of the same project are answered by it, at once.

    \b
    rollview run --once
    rollview run
    rollview run --once --log-file rollview.log
    """
    # Not at the top: help and wrong arguments should not wait for Spark.
    from rollview.service.retry import stopping_on_signals  # noqa: PLC0415

    is_live = _is_live(once, as_json)
    with (
        own_stream(sys.stdout) as stream,
        opened(project_file, "waiting for changes", spinning=not is_live) as at,
        stopping_on_signals() as stop,
    ):
        last = [0]

        def tell(event: Event) -> None:
            if isinstance(event, Stopped):
                last[0] = event.csn
            try:
                if not is_live:
                    print_event(event, at, stream, as_json)
            except BrokenPipeError:
                # Nobody reads any more; a program that writes to a pipe ends then.
                stop.now()
                raise

        at.project.subscribe(tell)
        with ExitStack() as stack:
            if is_live:
                stack.enter_context(_live_table(at, stream))
            if not once:
                stack.enter_context(at.project.answering())
            at.project.run(once, stop)
    if not as_json:
        results().print("nothing is left to do" if once else "stopped", f"at csn {last[0]}", style="dim")


def _is_live(once: bool, as_json: bool) -> bool:
    """Whether somebody looks at a terminal, and nothing else is written to it."""
    meta = click.get_current_context().find_root().meta
    is_logged = any(meta.get(name) for name in ("rollview.log_file", "rollview.log_level", "rollview.debug"))
    return sys.stdout.isatty() and not (once or as_json or is_logged)


def _live_table(at: Opened, stream: IO[str]) -> AbstractContextManager[None]:
    # Not at the top: help and wrong arguments should not wait for it.
    from rollview.cli.live_run import live_table  # noqa: PLC0415

    return live_table(at.project, stream)


def print_event(event: Event, at: Opened, stream: IO[str], as_json: bool) -> None:
    """One line: all of the event as JSON, or a sentence if it is worth one."""
    if as_json:
        line = json.dumps(event.record(), ensure_ascii=False)
    elif not (line := stamped_line(event)):
        return
    with at.tell.aside():
        click.echo(line, file=stream)
