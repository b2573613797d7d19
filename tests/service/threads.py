"""Work in threads while something else is tried out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread


@contextmanager
def at_work(works: Sequence[Callable[[Event], None]]) -> Iterator[None]:
    """Runs each in a thread of its own until the block ends, which the event signals; raises their errors."""
    over, failed = Event(), list[BaseException]()

    def run(work: Callable[[Event], None]) -> None:
        try:
            work(over)
        except BaseException as error:
            failed.append(error)

    threads = [Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert not failed, failed[0]
