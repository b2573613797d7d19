"""Java as Spark needs it: present, and silent about what does not concern the user."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from rollview.errors import JavaMissing, SparkFailed


def check_java() -> None:
    """Refuses early and clearly what Spark would answer with a page of traces."""
    home = os.environ.get("JAVA_HOME", "")
    if home and not Path(home, "bin", "java").exists():
        hint = "set it to a Java 17 or 21, or unset it to use the `java` on the path"
        raise JavaMissing(f"JAVA_HOME is {home}, where there is no bin/java", subject="JAVA_HOME", hint=hint)
    if not home and shutil.which("java") is None:
        hint = "install Java 17 or 21, for example: apt install openjdk-17-jre-headless; or set JAVA_HOME"
        raise JavaMissing("Spark needs Java, and there is none on this machine", subject="java", hint=hint)


@contextmanager
def quiet_start(settings: Mapping[str, str], debug: bool) -> Iterator[None]:
    """Goes around the start of Spark with these settings: Java is there, and Spark is quiet."""
    if "remote" not in settings:
        check_java()
    with silent_start(debug):
        yield


@contextmanager
def silent_start(debug: bool) -> Iterator[None]:
    """Starts what is started inside with its output kept aside; shows the end of it if the start fails.

    Java writes to the descriptors it inherits for as long as it lives, so all that Spark has to say goes
    to a file without a name, which ends with the process. Spark also takes Ctrl-C for itself; that is taken
    back.
    """
    before = signal.getsignal(signal.SIGINT)
    in_main_thread = threading.current_thread() is threading.main_thread()
    try:
        if debug:
            yield
        else:
            with tempfile.TemporaryFile() as aside:
                try:
                    with _descriptors_to(aside):
                        yield
                except Exception as error:
                    raise _failed(aside, error) from error
    finally:
        if in_main_thread:
            signal.signal(signal.SIGINT, before)


@contextmanager
def _descriptors_to(file: IO[bytes]) -> Iterator[None]:
    """Standard output and error of this process go to a file."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved = {descriptor: os.dup(descriptor) for descriptor in (1, 2)}
    for descriptor in saved:
        os.dup2(file.fileno(), descriptor)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for descriptor, usual in saved.items():
            os.dup2(usual, descriptor)
            os.close(usual)


def _failed(said: IO[bytes], error: Exception) -> SparkFailed:
    said.seek(0)
    lines = [line for line in said.read().decode(errors="replace").splitlines() if line.strip()]
    telling = [line.strip() for line in lines if "Exception" in line or "Error" in line or "rror:" in line]
    reason = (telling or [str(error).splitlines()[0] if str(error) else type(error).__name__])[-1]
    hint = "--debug shows all of Spark's messages; check `spark` in the project file"
    return SparkFailed(f"Spark did not start: {reason}", subject="spark", hint=hint)
