"""`rollview consumers`: who reads view deltas from outside."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click
from rich import box
from rich.table import Table
from rich.text import Text

from rollview.cli.project_context import opened, project_options
from rollview.cli.terminal import print_json, results
from rollview.errors import InputError, OptionError


@click.command()
@click.argument("view", required=False)
@click.option("--drop", metavar="NAME", help="Forget this consumer of VIEW: nothing is kept for it any more.")
@project_options
def consumers(view: str | None, drop: str | None, project_file: Path, as_json: bool) -> None:
    """List those who read view deltas, or forget one of them.

    `rollview deltas VIEW --consumer NAME` makes a consumer. Changes are kept until all consumers have had
    them, so one that nobody reads for any more should be dropped.

    \b
    rollview consumers
    rollview consumers --drop billing sales_by_state
    """
    if drop is not None and view is None:
        raise OptionError("--drop needs the view", hint=f"rollview consumers --drop {drop} VIEW")
    with opened(project_file) as at:
        if drop is not None and view is not None:
            if not at.project.drop_consumer(view, drop):
                hint = "`rollview consumers` lists them"
                raise InputError(f"view {view} has no consumer {drop}", subject=drop, hint=hint)
            if as_json:
                print_json({"view": view, "dropped": drop})
            else:
                results().print(f"{view}: consumer {drop} is forgotten", markup=False)
            return
        found = [each for each in at.project.consumers() if view in (None, each.view)]
    if as_json:
        print_json(found)
        return
    console = results()
    if not found:
        console.print("no consumers", style="dim")
        return
    table = Table(
        "view", "consumer", "csn", "acknowledged", box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False
    )
    for each in found:
        when = datetime.fromtimestamp(each.acknowledged_at, UTC).isoformat(timespec="seconds")
        table.add_row(Text(each.view, style="bold"), Text(each.name), str(each.csn), when)
    console.print(table)
