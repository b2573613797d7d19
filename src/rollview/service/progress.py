"""How far long work has come, told from time to time: the one place that makes `Progress` events."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pyarrow import parquet

from rollview.events import Events, Progress

EVERY_SECONDS = 1.0
ROWS, TRANSACTIONS = "rows", "transactions"


class ProgressMeter:
    """Counts what is done of a piece of work; at most one event a second, and none for what is quick."""

    def __init__(
        self,
        events: Events,
        kind: str,
        subject: str,
        unit: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._events, self._kind, self._subject, self._unit = events, kind, subject, unit
        self._clock = clock
        self._begun = self._told = clock()
        self._first: int | None = None

    def at(self, done: int, total: int | None = None) -> None:
        """So much is done, of so much if that is known."""
        now = self._clock()
        if self._first is None:
            self._first = done
        if now - self._told < EVERY_SECONDS:
            return
        self._told = now
        seconds, gained = now - self._begun, done - self._first
        left = None
        if total is not None and gained > 0:
            left = max(0.0, (total - done) * seconds / gained)
        self._events.emit(Progress(self._kind, self._subject, done, total, self._unit, seconds, left))


@contextmanager
def watching_files(meter: ProgressMeter, folder: Path, estimate: Callable[[], int | None]) -> Iterator[None]:
    """Tells how many rows are in the files of a folder that somebody fills, and of how many in the end.

    What takes less than a second is not watched at all.
    """
    done = threading.Event()

    def watch() -> None:
        counted: dict[Path, int] = {}
        total = None
        if not done.wait(EVERY_SECONDS):
            with suppress(Exception):  # A source that cannot tell is no reason to stop.
                total = estimate()
        while not done.wait(EVERY_SECONDS):
            for file in folder.glob("*.parquet"):
                # One that is being written has no footer yet.
                with suppress(OSError, ValueError):
                    if file not in counted:
                        counted[file] = parquet.read_metadata(file).num_rows
            rows = sum(counted.values())
            meter.at(rows, None if total is None else max(total, rows))

    watcher = threading.Thread(target=watch, name="rollview-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
