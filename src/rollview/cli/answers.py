"""Answers of commands that change nothing, by the fastest way available.

A process that runs the project is asked first, because its Spark is already warm. Without one, this process
answers: without Spark where possible; otherwise it says that it starts Spark, and starts it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rollview.answer.requests import values_of
from rollview.cli.logs import logs_somewhere
from rollview.cli.project_context import opened
from rollview.cli.terminal import plain, working

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from rollview.answer.local_socket import RemoteReply
    from rollview.answer.requests import Page as FirstRows
    from rollview.answer.requests import Reply, Request, Values


SLOW = "this needs Spark, which takes a while to start; a running `rollview run` would answer at once"


def asked_elsewhere(project_file: Path, request: Request, what: str) -> RemoteReply:
    """The reply of a process that runs the project, if there is one; `what` is shown meanwhile."""
    root = click.get_current_context().find_root()
    from rollview.answer.local_socket import RemoteReply, ask_running

    # A log says what this process does.
    if root.obj is not None or root.meta.get("rollview.debug") or logs_somewhere(root):
        return RemoteReply()
    with working(what) as progress:
        return ask_running(project_file, request, progress, as_values=True)


def reply_to(project_file: Path, request: Request, what: str) -> Reply:
    """The reply to a request about a project; `what` is shown meanwhile."""
    root = click.get_current_context().find_root()
    elsewhere = asked_elsewhere(project_file, request, what)
    if elsewhere.reply is not None:
        return elsewhere.reply
    with opened(project_file, what) as at:
        found = at.project.answer_without_spark(request)
        if found is None:
            if sys.stderr.isatty() and not root.meta.get("rollview.json") and root.obj is None:
                reason = elsewhere.reason
                with at.progress.aside():
                    click.secho(f"{reason}; {SLOW}" if reason else SLOW, dim=True, err=True)
            found = at.project.answer(request)
    return found


# Rows on a terminal and as JSON: the first of them, in a stable order, and how many there are.

F = TypeVar("F", bound=Callable[..., Any])
DEFAULT_LIMIT = 20


@dataclass(frozen=True)
class Page:
    """The first rows of a table, and the number of all of them."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    total: int

    def records(self) -> list[dict[str, Any]]:
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def limit_option(function: F) -> F:
    """Adds `--limit N`."""
    return click.option(
        "--limit",
        type=click.IntRange(0),
        metavar="N",
        help=f"Show at most N rows.  [default: {DEFAULT_LIMIT}; with --json: all]",
    )(function)


def rows_shown(limit: int | None, as_json: bool) -> int | None:
    """How many rows to show: the limit that was given, else all in JSON and a few for people."""
    return limit if limit is not None or as_json else DEFAULT_LIMIT


def shown_rows(reply: Reply) -> Page:
    """The first rows of a reply, which has some."""
    if reply.values is not None:
        return _shown(reply.values)
    assert reply.page is not None
    return shown_page(reply.page)


def shown_page(found: FirstRows) -> Page:
    """The first rows of an Arrow table as Python's values."""
    return _shown(values_of(found))


def _shown(found: Values) -> Page:
    """Instants are shown as local times, as everywhere here."""
    columns = [
        [_local(value) if isinstance(value, datetime) else value for value in column]
        for column in found.values
    ]
    # A table without columns still has rows.
    rows = tuple(zip(*columns, strict=True)) if columns else ((),) * found.rows
    return Page(found.columns, rows, found.total)


def _local(value: datetime) -> datetime:
    return value if value.tzinfo is None else value.astimezone().replace(tzinfo=None)


def print_page(console: Console, shown: Page) -> None:
    """The rows as a table: numbers to the right, NULL dimmed, long text folded."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for position, name in enumerate(shown.columns):
        values = [row[position] for row in shown.rows if row[position] is not None]
        numeric = bool(values) and all(map(is_number, values))
        table.add_column(Text(name), justify="right" if numeric else "left", overflow="fold")
    for row in shown.rows:
        table.add_row(*map(cell, row))
    console.print(table)
    missing = shown.total - len(shown.rows)
    if missing:
        console.print(f"… and {missing:,} more", style="dim")
    elif not shown.rows:
        console.print("no rows", style="dim")


def is_number(value: Any) -> bool:
    """Whether a value belongs to the right edge of its column."""
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def cell(value: Any) -> Text:
    """One value as text; control characters are shown, not obeyed."""
    from rich.text import Text

    if value is None:
        return Text("NULL", style="dim")
    if isinstance(value, bool):
        return Text(str(value).lower())
    if isinstance(value, bytes | bytearray):
        return Text(f"X'{bytes(value).hex()}'")
    nested = isinstance(value, list | tuple | dict)
    text = json.dumps(plain(value), ensure_ascii=False) if nested else str(value)
    return Text("".join(each if each.isprintable() else repr(each)[1:-1] for each in text))
