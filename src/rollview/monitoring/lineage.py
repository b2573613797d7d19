"""OpenLineage: a run for every refresh of a view that changed it, to a file or to a collector.

A load is sent when it begins and when it ends. An apply, of which there may be one a second, is sent when it
is done, and only if rows have changed; a view that cannot continue is a failed run. A separate thread sends
the events: a slow or unavailable collector never delays the work. The first failure is logged, and so is the
recovery; all are counted.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Full, Queue
from threading import Thread

from rollview.algebra.view import is_stage
from rollview.config.project_file import OpenLineageEntry
from rollview.errors import RollviewError
from rollview.events import Event, Failed, Halted, Refreshed, Retry, StepBegun
from rollview.monitoring.lineage_events import (
    COMPLETE,
    FAIL,
    START,
    RunMoment,
    new_run_id,
    open_client,
    run_event,
)
from rollview.observe.lineage import ViewLineage
from rollview.project.project import Project

_log = logging.getLogger(__name__)
MOST_WAITING = 1000
"""Events that may wait for a collector; more are dropped."""

LAST_SECONDS = 5.0
"""How long the end of a command waits for the last events to be sent."""


@dataclass
class LineageCounts:
    """The numbers of events by outcome."""

    sent: int = 0
    failed: int = 0
    dropped: int = 0


@contextmanager
def following_lineage(project: Project) -> Iterator[LineageCounts | None]:
    """Sends lineage while the context lasts, if the project file names a target; yields the counts then."""
    entry = project.openlineage
    if entry is None:
        yield None
        return
    follower = LineageFollower(project, entry)
    end = project.subscribe(follower)
    try:
        yield follower.counts
    finally:
        end()
        follower.close()


class LineageFollower:
    """A subscriber that makes runs of events, and a thread that sends them."""

    def __init__(self, project: Project, entry: OpenLineageEntry) -> None:
        self.counts = LineageCounts()
        self._project, self._entry = project, entry
        self._client = open_client(entry)
        self._loads: dict[str, str] = {}
        self._known: dict[str, tuple[str, ViewLineage]] = {}
        self._is_failing = self._is_closed = False
        self._queue: Queue[tuple[str, RunMoment] | None] = Queue(MOST_WAITING)
        self._thread = Thread(target=self._send_all, name="rollview-lineage", daemon=True)
        self._thread.start()

    def __call__(self, event: Event) -> None:
        match event:
            case StepBegun(kind="load", subject=view) if not is_stage(view):
                self._fail([view], "it was begun again", event.time)
                self._loads[view] = run = new_run_id()
                self._put(view, RunMoment(START, run, event.time))
            case Refreshed(view=view, kind="full", rows=rows, csn=csn) if not is_stage(view):
                run = self._loads.pop(view, "") or self._begun(view, event.time - event.seconds)
                self._put(view, RunMoment(COMPLETE, run, event.time, rows, csn))
            case Refreshed(rows=0):
                return
            case Refreshed(view=view, kind="incremental", rows=rows, csn=csn) if not is_stage(view):
                run = self._begun(view, event.time - event.seconds)
                self._put(view, RunMoment(COMPLETE, run, event.time, rows, csn))
            case Halted(scope="view", subject=view, message=message):
                if view not in self._loads:
                    self._loads[view] = self._begun(view, event.time)
                self._fail([view], message, event.time)
            case Retry(what=what, message=message):
                self._fail([what.removeprefix("load ")], message, event.time)
            case Failed(what=what, message=message) if not what.startswith("verify "):
                self._fail([*self._loads], message, event.time)

    def close(self) -> None:
        """Ends: running loads have failed; waits a while for events that are not sent yet."""
        self._fail([*self._loads], "the process ended before it was loaded", time.time())
        try:
            self._queue.put(None, timeout=LAST_SECONDS)
            self._thread.join(LAST_SECONDS)
        except Full:
            _log.debug("the lineage of the last refreshes was not sent in time")
        # Events that are still in the queue would open the project's catalog again.
        self._is_closed = True

    def _begun(self, view: str, when: float) -> str:
        run = new_run_id()
        self._put(view, RunMoment(START, run, when))
        return run

    def _fail(self, views: list[str], message: str, when: float) -> None:
        for view in views:
            if run := self._loads.pop(view, ""):
                self._put(view, RunMoment(FAIL, run, when, message=message))

    def _put(self, view: str, moment: RunMoment) -> None:
        try:
            self._queue.put_nowait((view, moment))
        except Full:
            self.counts.dropped += 1

    # In the thread.

    def _send_all(self) -> None:
        while not self._is_closed and (each := self._queue.get()) is not None:
            self._send(*each)

    def _send(self, view: str, moment: RunMoment) -> None:
        try:
            job = f"{self._project.name}.{view}"
            event = run_event(moment, self._entry.namespace, job, self._lineage(view))
            self._client.emit(event)
        # A network library may raise anything, and nothing of it may stop the work.
        except Exception as error:
            self.counts.failed += 1
            if not self._is_failing:
                reason = self._project.hide_foreign(f"{type(error).__name__}: {error}")
                _log.warning("lineage cannot be sent to %s, retrying: %s", self._place, reason)
            self._is_failing = True
            return
        self.counts.sent += 1
        if self._is_failing:
            _log.info("lineage can be sent to %s again", self._place)
        self._is_failing = False

    @property
    def _place(self) -> str:
        return self._project.hide(self._entry.url) or str(self._entry.file)

    def _lineage(self, view: str) -> ViewLineage | None:
        """The inputs of the view as it is set up now; None while it is not."""
        observe = self._project.observe
        try:
            record = observe.catalog.views.all().get(view)
            if record is None:
                return None
            known = self._known.get(view)
            if known is None or known[0] != record.digest:
                known = self._known[view] = record.digest, observe.dataset_lineage(view)
            return known[1]
        except RollviewError as error:
            _log.debug("the lineage of %s is not known: %s", view, self._project.hide_foreign(str(error)))
            return None
