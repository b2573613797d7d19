"""A thread that reads what is too slow for a scrape: sizes in the lake, logs at sources, view files."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field

from rollview.errors import RollviewError
from rollview.project.project import Project
from rollview.storage.lake_tables import TableSize

SAMPLE_SECONDS = 30.0
_PATIENCE_SECONDS = 2.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sample:
    """The facts of the last reading; empty before the first."""

    sizes: tuple[TableSize, ...] = ()
    kept_log_bytes: dict[str, int] = field(default_factory=dict)
    file_differs: dict[str, bool] = field(default_factory=dict)


class Sampler:
    """Reads the lake and the sources in a thread of its own, so that a slow one delays nothing else."""

    def __init__(self, project: Project, seconds: float = SAMPLE_SECONDS) -> None:
        self._project, self._seconds = project, seconds
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rollview-sample", daemon=True)
        self.last = Sample()

    def start(self) -> None:
        """Starts the thread, which reads at once."""
        self._thread.start()

    def poll(self) -> None:
        """Reads now. Failures are left out; the events say why."""
        try:
            observe = self._project.observe
            files = observe.file_differs()
            self.last = Sample(observe.lake_sizes(), observe.kept_log_bytes(), files)
        except (RollviewError, OSError) as error:
            _log.debug("sizes and logs are not known: %s", self._project.hide_foreign(str(error)))
            self.last = Sample()

    def close(self) -> None:
        """Ends; waits only a moment for a reading in progress."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(_PATIENCE_SECONDS)

    def _run(self) -> None:
        while not self._ended.is_set():
            self.poll()
            self._ended.wait(self._seconds)
