"""Who does a large piece of reading: threads of this process, or whatever the service has to offer.

A task opens a connection of its own, so that it can be sent to another machine; it gives back a few bytes, or
writes what it read to a file. All tasks of one reading share a snapshot, which the source holds open until
they are done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

Task = Callable[[], bytes]
"""Something to do; it can be pickled."""

_THREADS = 4


class Workers(Protocol):
    """Does several tasks at once."""

    def run(self, tasks: Sequence[Task]) -> list[bytes]:
        """What all gave back, in order; raises what one of them raised."""


class Threads:
    """Threads of this process."""

    def run(self, tasks: Sequence[Task]) -> list[bytes]:
        """As many at once as there are threads."""
        with ThreadPoolExecutor(max(1, min(_THREADS, len(tasks)))) as pool:
            return [done.result() for done in [pool.submit(task) for task in tasks]]
