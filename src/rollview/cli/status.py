"""`rollview status`: the state of sources and views, once or again and again."""

from __future__ import annotations

from pathlib import Path

import click

from rollview.cli.project_context import opened, project_options
from rollview.cli.status_tables import print_status
from rollview.cli.terminal import print_json, results

DEFAULT_SECONDS = 2.0


@click.command()
@click.option(
    "--watch",
    "seconds",
    type=click.FloatRange(0.1),
    is_flag=False,
    flag_value=DEFAULT_SECONDS,
    metavar="[SECONDS]",
    help=f"Show it again every SECONDS, in place; q or Ctrl-C ends.  [default: {DEFAULT_SECONDS:g}]",
)
@project_options
def status(seconds: float | None, project_file: Path, as_json: bool) -> None:
    """Show the state of sources and views.

    For each source: how it is captured, and how far. For each view: whether it is running, catching up or
    stopped, the csn that it shows, how far its delta reaches (the high-water mark), how far that is behind
    the sources, its valid time, and what its last refresh did and why. Of what is stopped: why, since when,
    from which csn on, and what to do. Of views that say SELECT *: columns that came after setup.

    With --watch, it is redrawn in place until q or Ctrl-C; where the output is no terminal, one block after
    the other is printed, and with --json one line after the other.

    \b
    rollview status
    rollview status --watch
    rollview status --watch 10 --json
    """
    with opened(project_file, spinning=seconds is None) as at:
        if seconds is not None:
            # Not at the top: help and wrong arguments should not wait for it.
            from rollview.cli.watch import watch  # noqa: PLC0415

            watch(results(), at.project.status, seconds, as_json)
            return
        found = at.project.status()
    if as_json:
        print_json(found)
    else:
        print_status(results(), found)
