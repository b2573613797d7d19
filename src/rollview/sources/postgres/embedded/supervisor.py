"""Runs the embedded server for as long as a process uses it, also if that process is killed.

Each user of the server holds a shared lock on a file, and the system releases the locks of a dead process.

`python supervisor.py LOCK_FILE USER GROUP COMMAND...` runs the command, as that user unless it is
empty, until it ends or the lock can be taken exclusively. It is a program of its own and needs
nothing but the standard library.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
from typing import Any

_FAST_SECONDS = 30.0
"""For an orderly end. After that it ends without a checkpoint, and the next start recovers from the log."""


def main(lock_file: str, user: str, group: str, command: list[str]) -> int:
    """Runs the server; its exit code."""
    become: dict[str, Any] = {"user": int(user), "group": int(group), "extra_groups": ()} if user else {}
    os.umask(0o077)
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, **become)
    for sign in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(sign, lambda *_: server.send_signal(signal.SIGINT))
    threading.Thread(target=_stop_when_unused, args=(lock_file, server), daemon=True).start()
    return server.wait()


def _stop_when_unused(lock_file: str, server: subprocess.Popen[bytes]) -> None:
    # Kept open until this process ends: who wants to use the server meanwhile waits for its end.
    lock = os.open(lock_file, os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    server.send_signal(signal.SIGINT)
    try:
        server.wait(_FAST_SECONDS)
    except subprocess.TimeoutExpired:
        server.send_signal(signal.SIGQUIT)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]))
