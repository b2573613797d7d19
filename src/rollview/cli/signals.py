"""Signals that end a command: whatever it has opened is closed first, as it is after Ctrl-C."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_ENDING = (signal.SIGTERM, signal.SIGHUP)
_INTERRUPTING = (*_ENDING, signal.SIGINT)


@contextmanager
def ending_on_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end what runs inside with an exception, and the process with the usual exit code."""

    def end(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    with _handled(_ENDING, end):
        yield


@contextmanager
def ignoring_signals() -> Iterator[None]:
    """For what must be finished once it has begun, such as removing files."""
    with _handled(_INTERRUPTING, signal.SIG_IGN):
        yield


@contextmanager
def _handled(signals: tuple[signal.Signals, ...], handler: Any) -> Iterator[None]:
    before = {each: signal.signal(each, handler) for each in signals}
    try:
        yield
    finally:
        for each, usual in before.items():
            signal.signal(each, usual)
