"""`rollview release`: ends the wait for the missing parts of a global transaction."""

from __future__ import annotations

from pathlib import Path

import click

from rollview.cli.project_context import opened, project_options
from rollview.cli.terminal import print_json, results


@click.command()
@click.argument("global_id")
@project_options
def release(global_id: str, project_file: Path, as_json: bool) -> None:
    """Stop waiting for missing parts of a global transaction.

    A transaction over several databases gets one csn, so that no view ever shows half of it. If one of its
    parts never arrives, because the application gave up in between, the other parts wait, and so does
    everything that their databases committed later: `rollview status` shows that. This command ends the wait:
    the parts that have arrived, and any that arrive later, become transactions of their own.

    \b
    rollview release transfer-4711
    """
    with opened(project_file) as at:
        missing = at.project.release(global_id)
    if as_json:
        print_json({"global_id": global_id, "missing": missing})
        return
    results().print(f"{global_id}: no longer waiting for {', '.join(missing)}", markup=False)
