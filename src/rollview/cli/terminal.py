"""The two streams of a command: results on stdout; progress on stderr, if it is a terminal."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from math import isfinite
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click

from rollview.answer.values import Record

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.spinner import Spinner

F = TypeVar("F", bound=Callable[..., Any])


def json_option(function: F) -> F:
    """Adds `--json`, and lets errors be JSON too."""

    def remember(context: click.Context, _: click.Parameter, value: bool) -> bool:
        context.find_root().meta["rollview.json"] = value
        return value

    return click.option(
        "--json",
        "as_json",
        is_flag=True,
        is_eager=True,
        callback=remember,
        help="Print the result as one JSON document; errors go to stderr.",
    )(function)


def results() -> Console:
    """Where results go. Output that is not a terminal gets no colours and no broken words."""
    from rich.console import Console

    return Console(highlight=False)


def print_json(value: Any) -> None:
    """One JSON document on one line."""
    click.echo(json.dumps(plain(value), ensure_ascii=False))


def plain(value: Any) -> Any:
    """A value as JSON has it: decimals and times as text, so that nothing is rounded on the way."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Record):
        return plain(value.as_dict())
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    if isinstance(value, date | datetime):
        return value.isoformat()
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    if isinstance(value, Decimal | timedelta | Path):
        return str(value)
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    return value


def plural(count: int, word: str) -> str:
    """A number with its noun: `1 row`, `1,200 rows`."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


class Working:
    """The line that shows what is being done."""

    def __init__(self, live: Live | None = None, spinner: Spinner | None = None) -> None:
        self._live = live
        self._spinner = spinner

    def __call__(self, what: str) -> None:
        """Shows what is being done; does nothing unless stderr is a terminal."""
        if self._spinner is not None:
            self._spinner.update(text=what)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Makes way for lines on stdout, which may be the same terminal."""
        if self._live is not None:
            self._live.stop()
        try:
            yield
        finally:
            if self._live is not None:
                self._live.start()


@contextmanager
def working(what: str = "") -> Iterator[Working]:
    """A line with a spinner on stderr, if that is a terminal."""
    if not sys.stderr.isatty():
        yield Working()
        return
    from rich.console import Console
    from rich.live import Live
    from rich.spinner import Spinner

    spinner = Spinner("dots", text=what or "working")
    with own_stream(sys.stderr) as stream:
        # Results must stay on stdout, so nothing is redirected.
        console = Console(file=stream)
        live = Live(spinner, console=console, transient=True, redirect_stdout=False, redirect_stderr=False)
        with live:
            yield Working(live, spinner)


@contextmanager
def own_stream(usual: IO[str]) -> Iterator[IO[str]]:
    """A stream by another descriptor, because the usual one is redirected while Spark starts.

    Where there is no descriptor, as in tests, nothing is redirected.
    """
    try:
        descriptor = os.dup(usual.fileno())
    except OSError:
        yield usual
        return
    with os.fdopen(descriptor, "w", buffering=1, encoding="utf-8", errors="replace") as stream:
        yield stream
