"""`rollview backup` and `rollview restore`: lake and catalog, copied together."""

from __future__ import annotations

from pathlib import Path

import click

from rollview.cli.project_context import opened, project_options
from rollview.cli.terminal import print_json, results


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@project_options
def backup(folder: Path, project_file: Path, as_json: bool) -> None:
    """Copy the lake and its catalog to an empty folder.

    Both are of the same moment. `rollview run` may go on meanwhile; it waits only while the logs are copied.

    \b
    rollview backup backup-1
    """
    with opened(project_file, "copying") as at:
        size = at.project.backup(folder)
    if as_json:
        print_json({"folder": str(folder), "bytes": size})
        return
    results().print(f"{folder}: {size / (1 << 20):,.1f} MB", markup=False, soft_wrap=True)


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@project_options
def restore(folder: Path, project_file: Path, as_json: bool) -> None:
    """Put a backup in the place of the lake and its catalog.

    What is there is moved to a folder `set-aside` of the lake. Views then show what they showed when the
    backup was made, and `rollview run` goes on from there, if the sources still have the log of what happened
    since. If one does not, rollview says so, and `rollview setup --reload SOURCE` loads its views anew.

    \b
    rollview restore backup-1
    """
    with opened(project_file, "copying", may_be_new=True) as at:
        aside = at.project.restore(folder)
    if as_json:
        print_json({"folder": str(folder), "set_aside": aside})
        return
    console = results()
    console.print(f"{folder} is restored", markup=False, soft_wrap=True)
    if aside:
        console.print(f"set aside in {aside}", markup=False, soft_wrap=True)
