"""Answers of `read`, `deltas` and `query`, from whoever has them soonest.

A process that runs the project has all that it takes, and Spark is warm there: it is asked first. Without
one, this process answers by itself: without Spark where that can be, and else it starts Spark, which takes a
while and is said.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rollview.cli.project_context import opened
from rollview.cli.terminal import working

if TYPE_CHECKING:
    from rollview.service.requests import Reply, Request

SLOW = "only Spark can tell, and starting it takes a while; a running `rollview run` would answer at once"


def reply_to(project_file: Path, request: Request, what: str) -> Reply:
    """The reply to a request about a project; `what` is being done meanwhile."""
    root = click.get_current_context().find_root()
    reason = ""
    if root.obj is None and not root.meta.get("rollview.debug"):
        # Not at the top: help and wrong arguments should not wait for it.
        from rollview.service.answer_client import ask_running  # noqa: PLC0415

        with working(what) as tell:
            elsewhere = ask_running(project_file, request, tell)
        if elsewhere.reply is not None:
            return elsewhere.reply
        reason = elsewhere.reason
    with opened(project_file, what) as at:
        found = at.project.answer_without_spark(request)
        if found is None:
            if sys.stderr.isatty() and not root.meta.get("rollview.json") and root.obj is None:
                with at.tell.aside():
                    click.secho(f"{reason}; {SLOW}" if reason else SLOW, dim=True, err=True)
            found = at.project.answer(request)
    return found
