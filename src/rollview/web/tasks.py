"""Work requested on a page: refresh and verify, one after the other, in a thread."""

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
    """One piece of work. `state` is `waiting`, `running`, `done` or `failed`; `result` is its outcome."""

    id: int
    what: str
    view: str
    state: str
    begun_at: float
    seconds: float = 0.0
    result: str = ""
    hint: str = ""


class Tasks:
    """The last tasks, and a thread that does them."""

    def __init__(self, watch: Watch, explain: Callable[[Exception], dict[str, str]]) -> None:
        """`explain` gives the text for an error without secrets."""
        self._watch, self._explain = watch, explain
        self._lock = threading.Lock()
        self._tasks: dict[int, Task] = {}
        self._last = 0
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rollview-page-task")

    def begin(self, what: str, view: str, work: Callable[[], str]) -> None:
        """Queues work, unless the same is already waiting or running."""
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
            done = replace(task, state="done", result=work())
        except Exception as error:  # The page shows it with the task.
            problem = self._explain(error)
            done = replace(task, state="failed", result=problem["message"], hint=problem["hint"])
        self._set(replace(done, seconds=time.monotonic() - started))

    def _set(self, task: Task) -> None:
        with self._lock:
            if task.id in self._tasks:
                self._tasks[task.id] = task
        self._watch.changed()
