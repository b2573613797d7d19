"""What must be on disk before anything depends on it, and what a full disk looks like."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from deltalake.exceptions import DeltaError

from rollview.errors import LakeUnavailable


def sync(path: Path) -> None:
    """Waits until a file's content, or a folder's entries, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def discard(paths: Iterable[Path]) -> None:
    """Deletes files that nothing refers to; what cannot be deleted now is left to vacuum."""
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError:
            continue


@contextmanager
def explained(subject: str, doing: str) -> Iterator[None]:
    """Turns the errors of disk, Arrow and deltalake into one that says what was being done."""
    try:
        yield
    except (OSError, pa.ArrowException, DeltaError) as error:
        raise LakeUnavailable(
            f"{subject}: {doing} failed: {error}", subject=subject, hint=hint_for(error)
        ) from error


def hint_for(error: BaseException) -> str:
    """The way out of an error of the disk."""
    if getattr(error, "errno", None) == errno.ENOSPC or "No space left on device" in str(error):
        return "the disk is full: make room and run the same command again; nothing was changed"
    return "nothing was changed: remove the cause and run the same command again"
