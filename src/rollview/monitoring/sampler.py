"""What is too slow for a scrape: sizes in the lake, logs at sources, view files. A thread looks at times."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field

from rollview.errors import RollviewError
from rollview.service.lake_sizes import TableSize
from rollview.service.project import Project

SAMPLE_SECONDS = 30.0
_PATIENCE_SECONDS = 2.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sample:
    """What was found at the last look; nothing before the first."""

    sizes: tuple[TableSize, ...] = ()
    kept_log_bytes: dict[str, int] = field(default_factory=dict)
    file_differs: dict[str, bool] = field(default_factory=dict)


class Sampler:
    """Looks at the lake and the sources, in a thread of its own, so that one that is slow delays nobody."""

    def __init__(self, project: Project, seconds: float = SAMPLE_SECONDS) -> None:
        self._project, self._seconds = project, seconds
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rollview-sample", daemon=True)
        self.last = Sample()

    def start(self) -> None:
        """Takes the first look right away."""
        self._thread.start()

    def look(self) -> None:
        """Takes a look now. What fails is left out: why it does, the events tell."""
        try:
            figures = self._project.figures
            files = figures.file_differs()
            self.last = Sample(figures.lake_sizes(), figures.kept_log_bytes(), files)
        except (RollviewError, OSError) as error:
            _log.debug("sizes and logs are not known: %s", self._project.hide(str(error)))
            self.last = Sample()

    def close(self) -> None:
        """Ends; waits a moment for a look that is being taken, and no longer."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(_PATIENCE_SECONDS)

    def _run(self) -> None:
        while not self._ended.is_set():
            self.look()
            self._ended.wait(self._seconds)
