"""Which process this is, and whether another one is gone for certain.

A pid alone is not enough: it is given again. With the time at which the process started it names one
process of one running kernel; host name, boot id and pid namespace say which kernel, and which container.
Of a process anywhere else nothing can be known.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class Process:
    """A process anywhere; `kernel` and `start` are empty where the system does not tell them."""

    host: str
    kernel: str
    pid: int
    start: str


def this_process() -> Process:
    """The process that asks."""
    return Process(socket.gethostname(), _kernel(), os.getpid(), _state_and_start(os.getpid())[1])


def is_gone(process: Process) -> bool:
    """Whether the process is known to have ended. False if it runs, and if nobody here can tell."""
    if (process.host, process.kernel) != (socket.gethostname(), _kernel()):
        return False
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # It exists, but belongs to another user.
    state, start = _state_and_start(process.pid)
    # A zombie has ended, it only waits for its parent to notice.
    return state in {"Z", "X"} or bool(start and process.start and start != process.start)


@cache
def _kernel() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _state_and_start(pid: int) -> tuple[str, str]:
    """The state letter and the start in clock ticks since boot (fields 3 and 22 of proc(5) stat)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "", ""
    # The name in parentheses may hold anything, so fields are counted from its end.
    fields = text.rpartition(")")[2].split()
    return fields[0], fields[19]
