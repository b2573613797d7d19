"""Several actions at once, all of them over when the call returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Executor, wait
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def side_by_side(pool: Executor, action: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """What an action returns for each item; if some fail, the first error, once none is at work any more.

    A caller that gives up a lease, or tries again, must not meet an earlier attempt that still writes.
    """
    running = [pool.submit(action, item) for item in items]
    wait(running)
    return [each.result() for each in running]
