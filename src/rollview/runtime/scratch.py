"""Folders for what Spark reads once: large readings of sources, and large transactions that were captured.

They are in the lake's folder, because executors on other machines share nothing else with this process. Each
process has one, and holds a lock there. What nobody holds is of a process that was killed, and is removed by
the next one.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from threading import Lock

from rollview.config.files import make_private_folder

_LOCK = ".lock"


class Scratch:
    """Private folders below one folder, which is made when it is first needed."""

    def __init__(self, parent: Path) -> None:
        self._parent = parent
        self._own: Path | None = None
        self._held = -1
        self._making = Lock()

    def new(self) -> Path:
        """A new folder, which its user removes; `close` removes those that are left."""
        with self._making:
            if self._own is None or not self._own.exists():
                self._release()
                self._own = self._claimed()
            return Path(mkdtemp(dir=self._own))

    def close(self) -> None:
        """Removes all folders."""
        with self._making:
            if self._own is not None:
                rmtree(self._own, ignore_errors=True)
            self._own = None
            self._release()

    def _claimed(self) -> Path:
        """A folder of our own; nobody looks for left-overs while it has no lock yet."""
        make_private_folder(self._parent)
        everybody = _locked(self._parent / _LOCK, fcntl.LOCK_EX)
        try:
            for each in self._parent.iterdir():
                if each.is_dir():
                    _remove_if_left(each)
            own = Path(mkdtemp(dir=self._parent))
            self._held = _locked(own / _LOCK, fcntl.LOCK_EX)
            return own
        finally:
            os.close(everybody)

    def _release(self) -> None:
        if self._held >= 0:
            os.close(self._held)
        self._held = -1


def _locked(file: Path, kind: int) -> int:
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, kind)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _remove_if_left(folder: Path) -> None:
    with suppress(OSError):  # Somebody holds it.
        held = _locked(folder / _LOCK, fcntl.LOCK_EX | fcntl.LOCK_NB)
        rmtree(folder, ignore_errors=True)
        os.close(held)
