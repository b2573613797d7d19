"""Single keys from the terminal, while something is shown that changes by itself."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Wait = Callable[[float], str]
"""Waits so many seconds for a key, and gives it; empty if none was pressed."""


@contextmanager
def single_keys() -> Iterator[Wait]:
    """Keys as they are pressed, not shown; where nobody can press any, just the waiting."""
    try:
        import termios  # noqa: PLC0415 - not every system has it
        import tty  # noqa: PLC0415

        keyboard = sys.stdin.fileno()
        before = termios.tcgetattr(keyboard) if sys.stdin.isatty() else None
    except (ImportError, OSError, ValueError):
        before = None
    if before is None:
        yield _asleep
        return

    def wait(seconds: float) -> str:
        readable, _, _ = select.select([keyboard], [], [], seconds)
        return os.read(keyboard, 1).decode(errors="replace") if readable else ""

    tty.setcbreak(keyboard)
    try:
        yield wait
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


def _asleep(seconds: float) -> str:
    time.sleep(seconds)
    return ""
