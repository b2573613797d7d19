"""Work that is repeated until stopped, and what happens when it fails.

Errors that can pass (`is_retryable`) are retried for as long as it takes, with growing pauses. A programming
error, which no pause will fix, is retried twice, in case a passing state caused it, and then comes out; its
traceback is in the events. All other errors of rollview come out at once. So does bad input in the first
round: later it worked once, and what is missing may come back.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Container, Hashable, Iterator
from contextlib import contextmanager

from rollview.errors import InputError, RollviewError
from rollview.events import Events
from rollview.maintain.faults import report_failure, report_retry
from rollview.retryable import is_retryable

POLL_SECONDS = 0.5
PAUSE_SECONDS = (0.5, 1, 2, 5, 10, 30)
PROGRAMMING_ERROR_ATTEMPTS = 3


class Backoff:
    """When to retry, for each subject; faults that only `setup` can repair wait for that."""

    def __init__(self) -> None:
        self._attempts: dict[Hashable, int] = {}
        self._due: dict[Hashable, float] = {}

    def is_due(self, name: Hashable) -> bool:
        return time.monotonic() >= self._due.get(name, 0.0)

    def failed(self, name: Hashable, error: Exception) -> tuple[int, float]:
        """It failed: the next time is later; how often it has failed, and the pause until then."""
        attempt = self._attempts[name] = self._attempts.get(name, 0) + 1
        pause = PAUSE_SECONDS[min(attempt, len(PAUSE_SECONDS)) - 1]
        for_ever = is_programming_error(error) and attempt >= PROGRAMMING_ERROR_ATTEMPTS
        if for_ever or getattr(error, "waits_for_setup", False):
            pause = math.inf
        self._due[name] = time.monotonic() + pause
        return attempt, pause

    def only(self, failing: Container[Hashable]) -> None:
        """All others went well, or `setup` has taken care of them."""
        for name in [name for name in self._due if name not in failing]:
            del self._due[name], self._attempts[name]


class Stop:
    """A wish to stop, from a signal or another thread; a step that runs is finished first.

    `turned_at` is when the loop that looks at it last came around, in unix seconds; 0 before it began.
    """

    def __init__(self) -> None:
        self._event = threading.Event()
        self.turned_at = 0.0

    def now(self) -> None:
        """Asks to stop."""
        self._event.set()

    def asked(self) -> bool:
        return self._event.is_set()

    def wait(self, seconds: float) -> None:
        """Sleeps, or less."""
        self.turn()
        self._event.wait(seconds)

    def turn(self) -> None:
        """Says that the loop came around."""
        self.turned_at = time.time()


@contextmanager
def stopping_on_signals() -> Iterator[Stop]:
    """A stop that SIGINT and SIGTERM ask for."""
    stop = Stop()
    before = {sign: signal.signal(sign, lambda *_: stop.now()) for sign in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for sign, handler in before.items():
            signal.signal(sign, handler)


def keep_trying(
    stop: Stop, what: str, action: Callable[[], bool], events: Events, first: bool = False
) -> bool:
    """The result of the action, once it succeeds; False if asked to stop before. `first`: the first round."""
    attempt = unexpected = 0
    while True:
        try:
            return action()
        except Exception as error:
            attempt += 1
            unexpected = unexpected + 1 if is_programming_error(error) else 0
            if stop.asked() or not _may_pass(error, unexpected, first):
                raise
            pause = PAUSE_SECONDS[min(attempt, len(PAUSE_SECONDS)) - 1]
            report_retry(events, what, attempt, pause, error)
        stop.wait(pause)
        if stop.asked():
            return False


def follow(stop: Stop, what: str, action: Callable[[], bool], events: Events) -> None:
    """Repeats an action until stopped, at least once, with a pause whenever it found nothing to do."""
    first = True
    with reporting_failure(what, events):
        while first or not stop.asked():
            stop.turn()
            if not keep_trying(stop, what, action, events, first):
                stop.wait(POLL_SECONDS)
            first = False


@contextmanager
def reporting_failure(what: str, events: Events) -> Iterator[None]:
    """An error that comes out is an event, too."""
    try:
        yield
    except Exception as error:
        report_failure(events, what, error)
        raise


def _may_pass(error: Exception, unexpected: int, first: bool) -> bool:
    if first and isinstance(error, InputError):
        return False
    return is_retryable(error) or 0 < unexpected < PROGRAMMING_ERROR_ATTEMPTS


def is_programming_error(error: Exception) -> bool:
    """Whether an error is a defect of rollview, which no pause will fix."""
    return not isinstance(error, RollviewError) and not is_retryable(error)
