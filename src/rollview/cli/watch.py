"""`rollview status --watch`: the same status again and again, in place where that is possible."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from io import StringIO

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from rollview.cli.keys import single_keys
from rollview.cli.status_tables import print_status
from rollview.cli.terminal import print_json
from rollview.errors import RollviewError, is_retryable
from rollview.service.status import Status


def watch(console: Console, status: Callable[[], Status], seconds: float, as_json: bool) -> None:
    """Shows the status every so many seconds, until Ctrl-C or q."""
    try:
        if as_json:
            _repeat(status, seconds, lambda found, _: print_json(found))
        elif not console.is_terminal:
            _repeat(status, seconds, lambda found, error: _print_block(console, found, error))
        else:
            with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:

                def redraw(found: Status, error: str) -> None:
                    live.update(_drawn(console, found, error, seconds), refresh=True)

                _repeat(status, seconds, redraw)
    except KeyboardInterrupt:
        # Whoever watches has seen enough.
        return


def _repeat(status: Callable[[], Status], seconds: float, show: Callable[[Status, str], None]) -> None:
    """A status that cannot be had for a moment leaves the last one where it is, with the reason."""
    found, error = status(), ""
    with single_keys() as wait:
        while True:
            show(found, error)
            if wait(seconds).lower() == "q":
                return
            try:
                found, error = status(), ""
            except RollviewError as trouble:
                if not is_retryable(trouble):
                    raise
                error = trouble.message


def _print_block(console: Console, found: Status, error: str) -> None:
    console.print(Text(_now()))
    print_status(console, found)
    if error:
        console.print(Text(f"error: {error}"))
    console.print()


def _drawn(console: Console, found: Status, error: str, seconds: float) -> Group:
    # Not on the console itself, which is busy with what it shows now.
    page = StringIO()
    print_status(Console(file=page, force_terminal=True, width=console.width, highlight=False), found)
    # What does not fit would push the head out of sight.
    lines = Text.from_ansi(page.getvalue()).split("\n")[: max(1, console.height - 3)]
    foot = Text.assemble((f"{_now()}, every {seconds:g} s; q or Ctrl-C ends", "dim"))
    trouble = [Text(f"error: {error}", style="red")] if error else []
    return Group(*lines, *trouble, foot)


def _now() -> str:
    return f"{datetime.now().astimezone():%H:%M:%S}"
