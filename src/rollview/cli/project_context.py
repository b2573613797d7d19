"""Shared parts of the commands of a project: `--project`, `--json`, and the opened project."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click

from rollview.cli.logs import Silence, log_options, logging_as_asked
from rollview.cli.terminal import Working, json_option, working
from rollview.errors import JavaMissing, SparkFailed
from rollview.imports import keep_pandas_out

if TYPE_CHECKING:
    from rollview.monitoring.lineage import LineageCounts
    from rollview.project.project import Project


F = TypeVar("F", bound=Callable[..., Any])


def project_options(function: F) -> F:
    """Adds `--project FILE`, `--json` and the options of the log."""
    project = click.option(
        "--project",
        "project_file",
        type=click.Path(path_type=Path),
        default=Path(),
        metavar="FILE",
        help="The project file, or its folder.  [default: ./rollview.yml]",
    )
    return project(json_option(log_options(function)))


@dataclass(frozen=True)
class Opened:
    """An opened project, and where to show progress."""

    project: Project
    progress: Working
    lineage: LineageCounts | None = None


@contextmanager
def opened(path: Path, what: str = "", may_be_new: bool = False, spinning: bool = True) -> Iterator[Opened]:
    """Opens the project of a file. A Spark session in the context's `obj` is used instead of a new one.

    A project that has never been set up is refused, because opening it would leave an empty catalog behind.
    Without `spinning`, the command itself shows what is going on.
    """
    root = click.get_current_context().find_root()
    with working(what) if spinning else nullcontext(Working()) as progress:
        keep_pandas_out()
        from rollview.cli.event_lines import Activity
        from rollview.project.project import Project

        with (
            logging_as_asked(root) as silence,
            Project.open(path, root.obj, starting=partial(_starting_spark, root, silence)) as project,
        ):
            if root.obj is not None:
                silence(_query_loggers())
            root.meta["rollview.hide"] = project.hide
            root.meta["rollview.hide_foreign"] = project.hide_foreign
            project.subscribe(Activity(progress, what or "working"))
            if project.is_new and not may_be_new:
                project.check_set_up()
            with _lineage(project) as lineage:
                yield Opened(project, progress, lineage)


def _lineage(project: Project) -> AbstractContextManager[LineageCounts | None]:
    """Sends lineage while a command works, if the project file names a target."""
    if project.openlineage is None:
        return nullcontext()
    from rollview.monitoring import following_lineage

    return following_lineage(project)


@contextmanager
def _starting_spark(
    root: click.Context, silence: Silence, settings: Mapping[str, str]
) -> Iterator[Mapping[str, str] | None]:
    """Wraps the start of Spark, quietly unless `--debug` asks for all of its output."""
    debug = bool(root.meta.get("rollview.debug"))
    with quiet_start(settings, debug):
        silence(_query_loggers())
        yield {"spark.log.level": settings.get("spark.log.level", "ERROR")} if debug else None


def _query_loggers() -> list[logging.Logger]:
    # Only PySpark can make them, and loading it takes a second.
    from rollview.runtime.session import query_loggers

    return query_loggers()


# Java as Spark needs it: present, and silent about what does not concern the user.


def check_java() -> None:
    """Refuses early and clearly where Spark would fail with pages of traceback."""
    home = os.environ.get("JAVA_HOME", "")
    if home and not Path(home, "bin", "java").exists():
        hint = "set it to a Java 17 or 21, or unset it to use the `java` on the path"
        raise JavaMissing(f"JAVA_HOME is {home}, where there is no bin/java", subject="JAVA_HOME", hint=hint)
    if not home and shutil.which("java") is None:
        hint = "install Java 17 or 21, for example: apt install openjdk-17-jre-headless; or set JAVA_HOME"
        raise JavaMissing("Spark needs Java, and there is none on this machine", subject="java", hint=hint)


@contextmanager
def quiet_start(settings: Mapping[str, str], debug: bool) -> Iterator[None]:
    """Wraps the start of Spark with these settings: checks for Java, and keeps Spark quiet."""
    if "remote" not in settings:
        check_java()
    with silent_start(debug):
        yield


@contextmanager
def silent_start(debug: bool) -> Iterator[None]:
    """Redirects the output of what is started inside; shows the end of it if the start fails.

    Java writes to the descriptors it inherits for as long as it lives, so all output of Spark goes
    to an unnamed file, which ends with the process. Spark also installs a handler for Ctrl-C; that is undone.
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
    causes = [line.strip() for line in lines if "Exception" in line or "Error" in line or "rror:" in line]
    reason = (causes or [str(error).splitlines()[0] if str(error) else type(error).__name__])[-1]
    hint = "--debug shows all of Spark's messages; check `spark` in the project file"
    return SparkFailed(f"Spark did not start: {reason}", subject="spark", hint=hint)
