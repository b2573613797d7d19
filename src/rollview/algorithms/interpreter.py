"""The part that all interpreters of effects share, in the simulator and on live sources.

An interpreter sends results into processes and serves the effects that they yield. Which effect has to wait,
what it is served from and what happens meanwhile is its own; the walk from one waiting to the next is here,
and so is the rule that says when a view may answer for its sources.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from rollview.algorithms.effects import Answerable, KnownState, Process

WAIT = object()
"""The effect has no result yet."""


@dataclass(slots=True, eq=False)
class Running:
    """A process, and the effect that it is suspended on."""

    process: Process
    waits_on: Any = None

    def advance(
        self,
        value: Any,
        serve: Callable[[Self, Any], Any],
        send: Callable[[Any], Any] | None = None,
    ) -> bool:
        """Sends a result in and serves effects until one is to `WAIT`; False once the process is over.

        `send` is the process's own, or what does a little more, such as taking the time.
        """
        send = send or self.process.send
        while True:
            try:
                effect = send(value)
            except StopIteration:
                return False
            self.waits_on = effect
            value = serve(self, effect)
            if value is WAIT:
                return True


def known_state(
    asked: Answerable[Any], known: int, touched: Callable[[str, int, int], bool]
) -> KnownState | None:
    """The state before the intervals, and how far they complete it; None if sources must be asked.

    The view is `known` up to a csn, and `touched` says whether a table has changed in after < csn ≤ upto.
    """
    if any(touched(table, known, interval.after) for table, interval in asked.tables):
        return None
    last = max(interval.upto for _, interval in asked.tables)
    reached = (last if not touched(table, each.upto, last) else each.upto for table, each in asked.tables)
    return KnownState(known, min(reached))
