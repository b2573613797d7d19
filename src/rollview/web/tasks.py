"""Work that somebody asked for on a page: refresh and verify, one after the other, in a thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from rollview.web.watch import Watch

_KEPT = 20


@dataclass(frozen=True)
class Task:
    """One piece of work. `state` is `waiting`, `running`, `done` or `failed`; `told` is what came out."""

    id: int
    what: str
    view: str
    state: str
    begun_at: float
    seconds: float = 0.0
    told: str = ""
    hint: str = ""


class Tasks:
    """The last tasks, and a thread that does them."""

    def __init__(self, watch: Watch, explain: Callable[[Exception], dict[str, str]]) -> None:
        """`explain` says of an error what a page may say."""
        self._watch, self._explain = watch, explain
        self._lock = threading.Lock()
        self._tasks: dict[int, Task] = {}
        self._last = 0
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rollview-page-task")

    def begin(self, what: str, view: str, work: Callable[[], str]) -> None:
        """Does something later; the same thing that is still to be done is not done twice."""
        with self._lock:
            known = self._tasks.values()
            if any((t.what, t.view) == (what, view) and t.state in ("waiting", "running") for t in known):
                return
            self._last += 1
            task = self._tasks[self._last] = Task(self._last, what, view, "waiting", time.time())
            for old in sorted(self._tasks)[:-_KEPT]:
                del self._tasks[old]
        self._pool.submit(self._run, task, work)
        self._watch.changed()

    def of(self, view: str) -> list[Task]:
        """The last tasks of a view, the newest first."""
        with self._lock:
            return [task for task in reversed(self._tasks.values()) if task.view == view]

    def _run(self, task: Task, work: Callable[[], str]) -> None:
        started = time.monotonic()
        self._set(replace(task, state="running"))
        try:
            done = replace(task, state="done", told=work())
        except Exception as error:  # It is what the page says of the task.
            told = self._explain(error)
            done = replace(task, state="failed", told=told["message"], hint=told["hint"])
        self._set(replace(done, seconds=time.monotonic() - started))

    def _set(self, task: Task) -> None:
        with self._lock:
            if task.id in self._tasks:
                self._tasks[task.id] = task
        self._watch.changed()
