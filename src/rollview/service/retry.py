"""Work that is repeated until stopped, and what happens when it fails.

Errors that can pass (`is_retryable`) are retried for as long as it takes, with growing pauses. A programming
error, which no pause will mend, is retried twice, in case a passing state caused it, and then comes out; its
traceback is in the events. All other errors of rollview come out at once. So does bad input in the first
round: later it worked once, and what is missing may come back.
"""

from __future__ import annotations

import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rollview.errors import InputError, RollviewError, is_retryable
from rollview.events import Events, Failed, Retry

POLL_SECONDS = 0.5
PAUSE_SECONDS = (0.5, 1, 2, 5, 10, 30)
PROGRAMMING_ERROR_ATTEMPTS = 3


class Stop:
    """A wish to stop, from a signal or another thread; a step that runs is finished first."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def now(self) -> None:
        """Asks to stop."""
        self._event.set()

    def asked(self) -> bool:
        """Whether somebody asked."""
        return self._event.is_set()

    def wait(self, seconds: float) -> None:
        """Sleeps, or less."""
        self._event.wait(seconds)


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
    """What the action returns, once it succeeds; False if asked to stop before. `first`: the first round."""
    attempt = unexpected = 0
    while True:
        try:
            return action()
        except Exception as error:
            attempt += 1
            unexpected = unexpected + 1 if _is_programming_error(error) else 0
            if stop.asked() or not _may_pass(error, unexpected, first):
                raise
            pause = PAUSE_SECONDS[min(attempt, len(PAUSE_SECONDS)) - 1]
            events.emit(Retry(what, attempt, pause, **_error_fields(error)))
        stop.wait(pause)
        if stop.asked():
            return False


def follow(stop: Stop, what: str, action: Callable[[], bool], events: Events) -> None:
    """Repeats an action until stopped, at least once, with a pause whenever it found nothing to do."""
    first = True
    with reporting_failure(what, events):
        while first or not stop.asked():
            if not keep_trying(stop, what, action, events, first):
                stop.wait(POLL_SECONDS)
            first = False


@contextmanager
def reporting_failure(what: str, events: Events) -> Iterator[None]:
    """An error that comes out is an event, too."""
    try:
        yield
    except Exception as error:
        events.emit(Failed(what, **_error_fields(error)))
        raise


def _may_pass(error: Exception, unexpected: int, first: bool) -> bool:
    if first and isinstance(error, InputError):
        return False
    return is_retryable(error) or 0 < unexpected < PROGRAMMING_ERROR_ATTEMPTS


def _is_programming_error(error: Exception) -> bool:
    return not isinstance(error, RollviewError) and not is_retryable(error)


def _error_fields(error: Exception) -> dict[str, Any]:
    kind = type(error).__name__
    if isinstance(error, RollviewError):
        return {"message": error.message, "kind": kind, "subject": error.subject, "hint": error.hint}
    trace = "".join(traceback.format_exception(error)) if _is_programming_error(error) else ""
    return {"message": str(error).strip() or kind, "kind": kind, "trace": trace}
