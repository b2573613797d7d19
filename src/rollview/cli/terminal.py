"""The two streams of a command: results on stdout, progress on stderr and only where somebody watches."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from math import isfinite
from typing import IO, Any

import click
from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner


def results() -> Console:
    """Where results go. What is not a terminal gets no colours and no line breaks inside of words."""
    return Console(highlight=False)


def print_json(value: Any) -> None:
    """One JSON document on one line."""
    click.echo(json.dumps(plain(value), ensure_ascii=False))


def plain(value: Any) -> Any:
    """A value as JSON has it: decimals and times as text, so that nothing is rounded on the way."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    if isinstance(value, date | datetime):
        return value.isoformat()
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    if isinstance(value, Decimal | timedelta):
        return str(value)
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    return value


class Working:
    """What is going on right now, shown while it goes on."""

    def __init__(self, spinner: Spinner | None) -> None:
        self._spinner = spinner

    def __call__(self, what: str) -> None:
        """Says what is being done; nobody sees it if stderr is no terminal."""
        if self._spinner is not None:
            self._spinner.update(text=what)

    @contextmanager
    def on(self, what: str) -> Iterator[None]:
        """Says what is being done for as long as it takes, then what was being done before."""
        before = "" if self._spinner is None else self._spinner.text
        self(what)
        try:
            yield
        finally:
            if self._spinner is not None:
                self._spinner.update(text=before)


@contextmanager
def working(what: str = "") -> Iterator[Working]:
    """A line with a spinner on stderr, if that is a terminal."""
    if not sys.stderr.isatty():
        yield Working(None)
        return
    spinner = Spinner("dots", text=what or "working")
    with _own_stderr() as stream:
        # Results must stay on stdout, so nothing is redirected.
        console = Console(file=stream)
        with Live(spinner, console=console, transient=True, redirect_stdout=False, redirect_stderr=False):
            yield Working(spinner)


@contextmanager
def _own_stderr() -> Iterator[IO[str]]:
    """The terminal by another descriptor, because Spark's start is silenced by taking the usual one away."""
    with os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding="utf-8", errors="replace") as stream:
        yield stream
