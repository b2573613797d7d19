"""`rollview recover`: the way back from a lake and a catalog that do not fit."""

from __future__ import annotations

from pathlib import Path

import click

from rollview.cli.project_context import opened, project_options
from rollview.cli.setup import print_report
from rollview.cli.terminal import print_json, results


@click.command()
@project_options
def recover(project_file: Path, as_json: bool) -> None:
    """Set a lake that does not fit its catalog aside, and load all views anew.

    A catalog that was deleted or restored from a backup, a lake that was, or a lake that belongs to another
    catalog: rollview refuses to go on, because it would count anew beside old data. This command moves the
    old tables and the old catalog to a folder `set-aside` of the lake, where any Delta reader can still read
    them, and sets the project up again. The history before that is not kept.

    \b
    rollview recover
    """
    with opened(project_file, "recovering", may_be_new=True) as at:
        report = at.project.recover()
    if as_json:
        print_json(report)
        return
    console = results()
    console.print(f"{report.reason}", markup=False, soft_wrap=True)
    console.print(f"set aside in {report.set_aside}", markup=False, soft_wrap=True)
    print_report(console, report.setup)
