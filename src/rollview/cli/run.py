"""`rollview run`: everything by policy, as a live table in a terminal, else one line per event."""

from __future__ import annotations

import json
import logging
import sys
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import IO

import click

from rollview.cli.event_lines import stamped_line
from rollview.cli.listen_address import parse_address
from rollview.cli.logs import logs_somewhere, logs_to_stderr
from rollview.cli.project_context import Opened, opened, project_options
from rollview.cli.terminal import own_stream, results
from rollview.cli.ui import access_options, page
from rollview.errors import OptionError
from rollview.events import Event, Started, Stopped

_log = logging.getLogger("rollview.run")


@click.command()
@click.option("--once", is_flag=True, help="Stop when nothing is left to do.")
@click.option("--ui", "listen", metavar="[HOST:]PORT", help="Serve the web page meanwhile, as `rollview ui`.")
@click.option(
    "--metrics",
    metavar="[HOST:]PORT",
    help="Serve /metrics, /healthz and /readyz there; without HOST, to this machine alone.",
)
@access_options
@project_options
def run(
    once: bool,
    listen: str | None,
    metrics: str | None,
    token_file: Path | None,
    allow_actions: bool,
    project_file: Path,
    as_json: bool,
) -> None:
    """Capture, propagate and apply, by policy, until stopped.

    Looks for new transactions twice a second, and keeps the lake's logs small. Errors at a source or in the
    lake are reported and retried; with --once, the first error ends the run. Ctrl-C and SIGTERM let the
    current step finish and end with exit code 0; it is safe to kill the process at any moment.

    In a terminal, sources and views are shown in a table that is always up to date. Elsewhere, with a log and
    with --once, each event is one line; with --json one line of JSON. With --log-format or --log-level and no
    --log-file, as for a service, the log on stderr takes the place of the lines on stdout. With --ui, a web
    page shows the project meanwhile; its address goes to stderr, and `rollview ui --help` says who can open
    it.

    While it runs, `read`, `deltas` and `query` of the same project are answered by it, at once.

    \b
    rollview run --once
    rollview run
    rollview run --ui 8642
    rollview run --once --log-file rollview.log
    rollview run --metrics 9464 --log-format json
    """
    address = None if metrics is None else parse_address(metrics, "--metrics")
    # Not at the top: help and wrong arguments should not wait for Spark.
    from rollview.service.retry import stopping_on_signals  # noqa: PLC0415

    is_live = _is_live(once, as_json)
    if listen is None and (token_file is not None or allow_actions):
        raise OptionError("--token-file and --allow-actions are for the page", hint="add --ui PORT")
    with (
        own_stream(sys.stdout) as stream,
        opened(project_file, "waiting for changes", spinning=not is_live) as at,
        stopping_on_signals() as stop,
        ExitStack() as stack,
    ):
        if listen is not None or address is not None:
            # Not at the top, either: most runs need none of it.
            from rollview.monitoring import Monitor, serving  # noqa: PLC0415

            monitor = stack.enter_context(Monitor(at.project, stop, at.lineage).watching())
            if address is not None:
                _tell(at, f"metrics at {stack.enter_context(serving(monitor, *address))}/metrics")
            if listen is not None:
                url = stack.enter_context(page(monitor, listen, token_file, allow_actions, beside=True))
                _tell(at, f"the page is at {url}", secret=True)
        last = [0]
        # The log says the same, and both may end in one place, such as the journal of a service.
        is_logged = logs_to_stderr(click.get_current_context())

        def tell(event: Event) -> None:
            if isinstance(event, Started) and not once:
                # Not before: one that is refused because another runs has no answers to give.
                stack.enter_context(at.project.answering())
            if isinstance(event, Stopped):
                last[0] = event.csn
            if is_logged and not as_json:
                return
            try:
                if not is_live:
                    print_event(event, at, stream, as_json)
            except BrokenPipeError:
                # Nobody reads any more; a program that writes to a pipe ends then.
                stop.now()
                raise

        at.project.subscribe(tell)
        if is_live:
            stack.enter_context(_live_table(at, stream))
        at.project.run(once, stop)
    if not as_json:
        results().print("nothing is left to do" if once else "stopped", f"at csn {last[0]}", style="dim")


def _is_live(once: bool, as_json: bool) -> bool:
    """Whether somebody looks at a terminal, and nothing else is written to it."""
    root = click.get_current_context().find_root()
    is_logged = logs_somewhere(root) or bool(root.meta.get("rollview.debug"))
    return sys.stdout.isatty() and not (once or as_json or is_logged)


def _live_table(at: Opened, stream: IO[str]) -> AbstractContextManager[None]:
    # Not at the top: help and wrong arguments should not wait for it.
    from rollview.cli.live_run import live_table  # noqa: PLC0415

    return live_table(at.project, stream)


def _tell(at: Opened, told: str, secret: bool = False) -> None:
    """Says where something is served, also in the log unless a token is a part of it."""
    if not secret:
        _log.info("%s", told)
    if secret or not logs_to_stderr(click.get_current_context()):
        with at.tell.aside():
            click.echo(told, err=True)


def print_event(event: Event, at: Opened, stream: IO[str], as_json: bool) -> None:
    """One line: all of the event as JSON, or a sentence if it is worth one."""
    if as_json:
        line = json.dumps(event.record(), ensure_ascii=False)
    elif not (line := stamped_line(event)):
        return
    with at.tell.aside():
        click.echo(line, file=stream)
