"""The cached state for pages: the state of the project, descriptions of sources, current activity.

One thread reads it, while pages are open, so that no request waits for a catalog or a source that does not
answer: it gets the last known state and its age.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from rollview.events import (
    Applied,
    Captured,
    ClockJumped,
    Event,
    Failed,
    Halted,
    Resumed,
    Retry,
    SparkLost,
    SparkStarted,
    SparkStarting,
    StepBegun,
    StepFinished,
    Stopped,
    Verified,
)
from rollview.observe.lags import LagSeries
from rollview.observe.observer import SourceAnswer
from rollview.observe.state import ProjectState
from rollview.project.project import Project
from rollview.views.view_files import FileNotes

LOOK_SECONDS = 1.0
ASK_SECONDS = 5.0
"""How often sources and view files are read."""
TICK_SECONDS = 10.0
"""A page is updated at least so often: lags grow even if nothing happens."""
LAG_SECONDS = 15.0
IDLE_SECONDS = 30.0
"""Without a request for so long, no page is open, and nothing is read."""
_PATIENCE_SECONDS = 3.0
_RETRY_SECONDS, _FAILED_SECONDS, _RECENT_SECONDS = 30.0, 3600.0, 3600.0


@dataclass(frozen=True)
class Known:
    """The last known state, why it could not be read again, and the facts beside it."""

    state: ProjectState | None
    problem: Exception | None
    sources: dict[str, SourceAnswer]
    notes: FileNotes
    recent: tuple[Event, ...] = ()
    """Events of `run` in this process within the last hour that need attention."""


class Watch:
    """Reads the state of a project while pages are open."""

    def __init__(self, project: Project, events_of: Project | None = None) -> None:
        """`events_of` is the project at work in this process, if it is another object."""
        self._project = project
        self._lock = threading.Lock()
        self._looked = threading.Condition(self._lock)
        self._state: ProjectState | None = None
        self._problem: Exception | None = None
        self._fingerprint: object = None
        self._looks = 0
        self._sources: dict[str, SourceAnswer] = {}
        self._asked: dict[str, float] = {}
        self._notes = FileNotes({})
        self._files: object = None
        self._lags: dict[str, tuple[float, LagSeries]] = {}
        self._running: dict[tuple[str, str], str] = {}
        self._retries: dict[str, Retry | Failed] = {}
        self._recent: dict[str, tuple[float, Event]] = {}
        self._wanted = threading.Event()
        self._closed = threading.Event()
        self._last_request = 0.0
        self.version = 0
        """Grows whenever a page may have changed."""
        self._pool = ThreadPoolExecutor(max_workers=4, thread_name_prefix="rollview-page-ask")
        self._unsubscribe: list[Callable[[], None]] = [
            each.subscribe(self._hear) for each in (project, events_of) if each is not None
        ]
        self._thread = threading.Thread(target=self._look_on, name="rollview-page-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops reading."""
        self._closed.set()
        self._wanted.set()
        for end in self._unsubscribe:
            end()
        self._thread.join(5.0)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def known(self) -> Known:
        """The known state; waits a moment for one that is not old."""
        self.somebody_watches()
        with self._looked:
            is_old = self._state is None or time.time() - self._state.at > LOOK_SECONDS
            if is_old or self._problem is not None:
                looks = self._looks
                self._wanted.set()
                self._looked.wait_for(lambda: self._looks > looks, _PATIENCE_SECONDS)
            now = time.monotonic()
            recent = tuple(each for at, each in self._recent.values() if now - at < _RECENT_SECONDS)
            return Known(self._state, self._problem, dict(self._sources), self._notes, recent)

    def lags(self, names: list[str]) -> dict[str, LagSeries]:
        """The lag of views over the last hour; kept for some seconds."""
        now = time.monotonic()
        missing = [name for name in names if now - self._lags.get(name, (-1e9, None))[0] > LAG_SECONDS]
        for series in self._project.observe.lags(missing) if missing else ():
            self._lags[series.view] = (now, series)
        return {name: self._lags[name][1] for name in names if name in self._lags}

    def somebody_watches(self) -> None:
        """Notes that a page is open."""
        self._last_request = time.monotonic()
        if not self._wanted.is_set():
            self._wanted.set()

    def changed(self) -> None:
        """Notifies all pages of a change."""
        with self._lock:
            self.version += 1

    @property
    def is_closed(self) -> bool:
        return self._closed.is_set()

    @property
    def activity(self) -> str:
        with self._lock:
            return next(reversed(self._running.values()), "")

    def retries(self) -> list[Retry | Failed]:
        """Failures in this process that have not succeeded since."""
        with self._lock:
            now = time.time()
            old = [what for what, each in self._retries.items() if now - each.time > _until_old(each)]
            for what in old:
                del self._retries[what]
            return list(self._retries.values())

    def _hear(self, event: Event) -> None:
        with self._lock:
            match event:
                case StepBegun(kind=kind, subject=subject):
                    self._running[kind, subject] = f"{kind} {subject}".strip()
                case StepFinished(kind=kind, subject=subject):
                    self._running.pop((kind, subject), None)
                    self._retries.pop(f"{kind} {subject}".strip(), None)
                case SparkStarting():
                    self._running["spark", ""] = "starting Spark"
                case SparkStarted():
                    self._running.pop(("spark", ""), None)
                case Retry(what=what) | Failed(what=what):
                    self._running.clear()
                    self._retries[what] = event
                case Captured() | Applied():
                    self._retries.pop("run", None)
                case Stopped():
                    self._running.clear()
                case Resumed(subject=subject):
                    for what in (subject, f"capture {subject}"):
                        self._retries.pop(what, None)
                case ClockJumped() | SparkLost():
                    self._recent[event.name] = time.monotonic(), event
                case Halted() | Verified():
                    pass
                case _:
                    return
            self.version += 1

    def _look_on(self) -> None:
        ticked = 0.0
        while not self._closed.is_set():
            self._wanted.wait()
            self._wanted.clear()
            if self._closed.is_set():
                return
            if self._look() or time.monotonic() - ticked > TICK_SECONDS:
                ticked = time.monotonic()
                self.changed()
            self._ask_others()
            if time.monotonic() - self._last_request < IDLE_SECONDS:
                self._closed.wait(LOOK_SECONDS)
                self._wanted.set()

    def _look(self) -> bool:
        """Reads the catalog; whether anything has changed."""
        problem: Exception | None = None
        found, fingerprint = self._state, self._fingerprint
        try:
            fingerprint = self._project.observe.fingerprint()
            found = self._project.observe.state()
        except Exception as error:  # The page shows why the catalog does not answer.
            problem = error
        with self._looked:
            is_new = fingerprint != self._fingerprint or str(problem) != str(self._problem)
            self._state, self._fingerprint, self._problem = found, fingerprint, problem
            self._looks += 1
            self._looked.notify_all()
        return is_new

    def _ask_others(self) -> None:
        """Reads sources and files, each when it is due; one that does not answer delays no other."""
        now, state = time.monotonic(), self._state
        for site in [each.site for each in state.sources] if state else []:
            if now - self._asked.get(site, -1e9) > ASK_SECONDS:
                self._asked[site] = now + 3600.0  # until it has answered
                self._pool.submit(self._ask, site)
        if now - self._asked.get("", -1e9) > ASK_SECONDS:
            self._asked[""] = now
            self._read_files()

    def _ask(self, site: str) -> None:
        try:
            answer = self._project.observe.describe(site)
            with self._lock:
                if self._sources.get(site) != answer:
                    self._sources[site] = answer
                    self.version += 1
        finally:
            self._asked[site] = time.monotonic()

    def _read_files(self) -> None:
        """Reads the view files again if one of them, or the setup, has changed."""
        try:
            files = (self._project.observe.view_files(), self._project.views)
            if files != self._files:
                notes = self._project.observe.file_notes()
                with self._lock:
                    self._notes, self._files = notes, files
                    self.version += 1
        except Exception:  # The reading of the catalog reports that it does not answer.
            return


def _until_old(event: Retry | Failed) -> float:
    """After so many seconds it would have failed again, if it still did."""
    return 2 * event.pause_seconds + _RETRY_SECONDS if isinstance(event, Retry) else _FAILED_SECONDS
