"""Processes that a test or a campaign has started."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def descendants(parent: int) -> list[int]:
    """The processes that a process has started, and those that these have started."""
    found: list[int] = []
    waiting = [parent]
    while waiting:
        for task in Path(f"/proc/{waiting.pop()}/task").glob("*/children"):
            with suppress(FileNotFoundError, ProcessLookupError):  # It has just ended.
                children = [int(child) for child in task.read_text().split()]
                found += children
                waiting += children
    return found


def java_of(parent: int) -> int:
    """The Java process that a process has started, directly or by a child; not that of its answers."""
    answers = {
        each
        for worker in descendants(parent)
        if b"answer_worker" in _read(worker, "cmdline")
        for each in descendants(worker)
    }
    for child in descendants(parent):
        if child not in answers and _read(child, "comm").strip() == b"java":
            return child
    raise AssertionError(f"process {parent} has no Java process")


def _read(process: int, name: str) -> bytes:
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{process}/{name}").read_bytes()
    return b""
