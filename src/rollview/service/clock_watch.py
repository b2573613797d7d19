"""A clock that jumps. No csn and no order depends on it, but lags, schedules and retention are told by it."""

from __future__ import annotations

import time

from rollview.events import ClockJumped, Events

JUMP_SECONDS = 10.0
"""What a clock that is only being corrected does not do between two looks."""


class ClockWatch:
    """Compares the wall clock with the one that nobody can set."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._ahead = _ahead()

    def look(self) -> None:
        """Tells of a jump since the last look. A machine that slept looks like one that was set forward."""
        now = _ahead()
        jump, self._ahead = now - self._ahead, now
        if abs(jump) > JUMP_SECONDS:
            self._events.emit(ClockJumped(jump))


def _ahead() -> float:
    return time.time() - time.monotonic()
