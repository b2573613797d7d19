"""What must be on disk before anything depends on it, and what a full disk looks like."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from deltalake.exceptions import DeltaError

from rollview.errors import LakeDamaged, LakeUnavailable


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
            f"{subject}: {doing} failed: {first_line(error)}", subject=subject, hint=hint_for(error)
        ) from error


@contextmanager
def damage_found(subject: str, doing: str, way_out: str) -> Iterator[None]:
    """The same for reading: what is missing or makes no sense is damage, with a way out of its own."""
    try:
        yield
    except (FileNotFoundError, pa.ArrowException, DeltaError) as error:
        message = f"{subject}: {doing} failed: {first_line(error)}"
        raise LakeDamaged(message, subject=subject, hint=way_out) from error
    except OSError as error:
        message = f"{subject}: {doing} failed: {first_line(error)}"
        if error.errno is None:
            raise LakeDamaged(message, subject=subject, hint=way_out) from error
        raise LakeUnavailable(message, subject=subject, hint=hint_for(error)) from error


def first_line(error: BaseException) -> str:
    """What an error says, without the stack of a library."""
    return str(error).strip().split("\n", 1)[0][:300]


def hint_for(error: BaseException) -> str:
    """The way out of an error of the disk."""
    if getattr(error, "errno", None) == errno.ENOSPC or "No space left on device" in str(error):
        return "the disk is full: make room and run the same command again; nothing was changed"
    return "nothing was changed: remove the cause and run the same command again"
