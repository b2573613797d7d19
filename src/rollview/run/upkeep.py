"""Periodic work of `run`: look at columns, keep the lake small, condense, verify."""

from __future__ import annotations

import ctypes
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from random import Random

import pyarrow as pa

from rollview.algebra.net_effect import condensed_around
from rollview.config.schedules import Condensing, condensing_of
from rollview.errors import InputError, RollviewError
from rollview.events import ClockJumped, Events, Maintained, Verified
from rollview.maintain.faults import concerns_all, report_failure
from rollview.upkeep.maintenance import CondenseDriver, MaintainDriver
from rollview.upkeep.verify import Verification, VerifyDriver
from rollview.views.define import ColumnWatch
from rollview.views.properties import is_full, verifying
from rollview.views.views import Views


@dataclass(frozen=True)
class Upkeep:
    """Maintenance, in the order that saves most work."""

    maintain: MaintainDriver
    columns: ColumnWatch
    condense: CondenseDriver
    events: Events

    def run(self) -> dict[str, int]:
        """Does what is due; returns what was done, by table."""
        self.columns.poll()
        done, failed = self._condense_old()
        done |= self.maintain.run()
        if failed:
            raise failed[0]
        return done

    def _condense_old(self) -> tuple[dict[str, int], list[RollviewError]]:
        """Condenses what views declare to be old: the rows saved, by table, and the failures.

        A failure for one view does not stop the others.
        """
        done: dict[str, int] = {}
        failed: list[RollviewError] = []
        for name, view in self.condense.views.all().items():
            condensing = None if is_full(view) else condensing_of(view)
            try:
                saved = 0 if condensing is None else self._condense(name, condensing)
            except RollviewError as error:
                if concerns_all(error):
                    raise
                failed.append(error)
                continue
            if saved:
                done[f"deltas/{name}: rows condensed"] = saved
                self.events.emit(Maintained(f"deltas/{name}", "rows condensed", saved))
        return done, failed

    def _condense(self, name: str, condensing: Condensing) -> int:
        catalog = self.condense.catalog
        covered, known = self.condense.stored.covered(name), catalog.views.condensed(name)
        began = catalog.history.commit_time(covered.oldest + 1)
        if began is None:
            return 0
        times = condensing.ends(began, catalog.watched_time())
        ends = sorted({max(catalog.history.csn_at(each), covered.oldest) for each in times})
        saved = 0
        for after, upto in pairwise(ends):
            if upto - after < 2 or upto > covered.newest or condensed_around(known, after + 1) is not None:
                continue
            # A reader, a consumer or the stored view is inside the range: try again another time.
            try:
                saved += self.condense.run(name, after, upto).saved
            except InputError:
                continue
        return saved


# Memory that a long run has used for a moment, given back to the system.
#
# Rows pass through a process in bursts, in many threads. What is freed stays with the allocators, each of
# which keeps some for every thread, so that a process would look as if it leaked for hours. Commands have
# Arrow use the C library's allocator (`cli.main`), which can return unused memory.


def give_back() -> None:
    """Returns unused memory to the system; where the C library cannot, only that of Arrow."""
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


# A clock that jumps. CSNs and orders are unaffected; lags, schedules and retention depend on it.


JUMP_SECONDS = 10.0
"""A difference that a clock that is only being adjusted does not reach between two checks."""


class ClockWatch:
    """Compares the wall clock with the monotonic clock."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._ahead = _ahead()

    def poll(self) -> None:
        """Reports a jump since the last check. A machine that slept looks like one that was set forward."""
        now = _ahead()
        jump, self._ahead = now - self._ahead, now
        if abs(jump) > JUMP_SECONDS:
            self._events.emit(ClockJumped(jump))


def _ahead() -> float:
    return time.time() - time.monotonic()


# verify in the background: views that ask for it are recomputed from time to time while `run` works,
# as a whole or a random slice of them.
#
# One at a time, in a thread of its own, so that maintenance of the views does not wait for it. The result
# is an event; a view that differs is reported, and continues. All views that read a table of it are
# verified next, as a whole.


class BackgroundVerify:
    """Verifies each view when its time has come; nothing until the first time is over."""

    def __init__(self, views: Views, verify: VerifyDriver, events: Events) -> None:
        self._views, self._verify, self._events = views, verify, events
        self._due: dict[str, float] = {}
        self._chance = Random()
        self._running: Future[None] | None = None

    def poll(self) -> None:
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
        self._report(found)
        for suspect in self._verify.run_suspects([found]):
            self._report(suspect)

    def _report(self, found: Verification) -> None:
        examples = tuple(str(each) for each in found.differences)
        part = str(found.part or "")
        self._events.emit(
            Verified(found.view, found.csn, found.rows, found.different, examples, part, found.suspects)
        )
