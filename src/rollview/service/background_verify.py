"""verify in the background: views that ask for it are recomputed from time to time while `run` works,
as a whole or a random slice of them.

One at a time, in a thread of its own, so that maintenance of the views does not wait for it. What comes out
is an event; a view that differs is told as such, and goes on.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from random import Random

from rollview.errors import RollviewError
from rollview.events import Events, Verified
from rollview.service.definitions import verifying
from rollview.service.faults import report_failure
from rollview.service.verify import VerifyDriver
from rollview.service.views import Views


class BackgroundVerify:
    """Verifies each view when its time has come; nothing until the first time is over."""

    def __init__(self, views: Views, verify: VerifyDriver, events: Events) -> None:
        self._views, self._verify, self._events = views, verify, events
        self._due: dict[str, float] = {}
        self._chance = Random()
        self._running: Future[None] | None = None

    def look(self) -> None:
        """Begins with a view that is due, unless one is being verified."""
        if self._running is not None and not self._running.done():
            return
        now = time.monotonic()
        for name in self._views.names:
            wanted = verifying(self._views.named(name))
            if wanted is None:
                continue
            if now >= self._due.setdefault(name, now + wanted.seconds):
                self._due[name] = now + wanted.seconds
                self._running = self._thread.submit(self._run, name, wanted.fraction)
                return

    def close(self) -> None:
        """Waits for the one that is being verified."""
        if "_thread" in self.__dict__:
            self._thread.shutdown(wait=True)
            del self.__dict__["_thread"]

    @cached_property
    def _thread(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(max_workers=1, thread_name_prefix="rollview-verify")

    def _run(self, name: str, fraction: float) -> None:
        try:
            found = self._verify.run(name, fraction, self._chance)
        except RollviewError as error:
            report_failure(self._events, f"verify {name}", error)
            return
        examples = tuple(str(each) for each in found.differences)
        part = str(found.part or "")
        self._events.emit(Verified(name, found.csn, found.rows, found.different, examples, part))
