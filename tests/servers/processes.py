"""Processes that a test or a campaign has started."""

from __future__ import annotations

from pathlib import Path


def java_of(parent: int) -> int:
    """The Java process that a process has started, by itself or by a child."""
    waiting = [parent]
    while waiting:
        for task in Path(f"/proc/{waiting.pop()}/task").glob("*/children"):
            for child in map(int, task.read_text().split()):
                if Path(f"/proc/{child}/comm").read_text().strip() == "java":
                    return child
                waiting.append(child)
    raise AssertionError(f"process {parent} has no Java process")
