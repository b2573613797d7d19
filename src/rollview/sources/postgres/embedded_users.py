"""Which processes use an embedded server: each holds a shared lock on a file of the server's folder.

The supervisor waits for an exclusive lock, so that the server ends with its last user, also with one that
was killed. A process that ends in order waits until the server has ended, unless others use it.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class _Use:
    """A lock that this process holds."""

    descriptor: int
    process: int
    stop: Callable[[], None]


_uses: dict[Path, _Use] = {}
_guard = threading.Lock()


def use(lock_file: Path, stop: Callable[[], None]) -> None:
    """Keeps the server running until this process ends. Waits while a server is just being stopped."""
    with _guard:
        known = _uses.get(lock_file)
        if known is not None and _is_the_same_file(known.descriptor, lock_file):
            return
        if known is not None:
            # The folder was removed and made again.
            os.close(known.descriptor)
        descriptor = os.open(lock_file, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        _uses[lock_file] = _Use(descriptor, os.getpid(), stop)


def release(lock_file: Path) -> None:
    """This process no longer uses the server."""
    with _guard:
        known = _uses.pop(lock_file, None)
    if known is not None:
        os.close(known.descriptor)


@atexit.register
def _release_all() -> None:
    for lock_file, known in list(_uses.items()):
        # A forked child shares its parent's lock and has no say in it.
        if known.process == os.getpid():
            try:
                fcntl.flock(known.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                # Others use it.
                release(lock_file)
                continue
            known.stop()
            release(lock_file)


def _is_the_same_file(descriptor: int, file: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), file.stat())
    except FileNotFoundError:
        return False
