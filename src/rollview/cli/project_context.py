"""What the commands of a project share: `--project`, `--json`, and the project, opened while it is used."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rollview.cli.event_lines import Activity
from rollview.cli.java import quiet_start
from rollview.cli.logs import Silence, log_options, logging_as_asked
from rollview.cli.terminal import Working, json_option, working

if TYPE_CHECKING:
    from rollview.monitoring.lineage import LineageCounts
    from rollview.service.project import Project

F = TypeVar("F", bound=Callable[..., Any])


def project_options(function: F) -> F:
    """Adds `--project FILE`, `--json` and where to log."""
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
    """A project at work, and where to say what is going on."""

    project: Project
    tell: Working
    lineage: LineageCounts | None = None


@contextmanager
def opened(path: Path, what: str = "", may_be_new: bool = False, spinning: bool = True) -> Iterator[Opened]:
    """Opens the project of a file. A Spark session in the context's `obj` is used instead of a new one.

    A project that has never been set up is refused, because opening it would leave an empty catalog behind.
    Without `spinning`, the command itself shows what is going on.
    """
    root = click.get_current_context().find_root()
    with working(what) if spinning else nullcontext(Working()) as tell:
        # Not at the top: help and wrong arguments should not wait for it.
        from rollview.service.project import Project  # noqa: PLC0415

        with (
            logging_as_asked(root) as silence,
            Project.open(path, root.obj, starting=partial(_starting_spark, root, silence)) as project,
        ):
            if root.obj is not None:
                silence(_query_loggers())
            root.meta["rollview.hide"] = project.hide
            project.subscribe(Activity(tell, what or "working"))
            if project.is_new and not may_be_new:
                project.check_set_up()
            with _lineage(project) as lineage:
                yield Opened(project, tell, lineage)


def _lineage(project: Project) -> AbstractContextManager[LineageCounts | None]:
    """Sends lineage while a command works, if the project file says where to."""
    if project.openlineage is None:
        return nullcontext()
    from rollview.monitoring import following_lineage  # noqa: PLC0415

    return following_lineage(project)


@contextmanager
def _starting_spark(root: click.Context, silence: Silence, settings: Mapping[str, str]) -> Iterator[None]:
    """Goes around the start of Spark, quietly."""
    with quiet_start(settings, debug=bool(root.meta.get("rollview.debug"))):
        silence(_query_loggers())
        yield


def _query_loggers() -> list[logging.Logger]:
    # Only PySpark can make them, and loading it takes a second.
    from rollview.service.spark_logs import query_loggers  # noqa: PLC0415

    return query_loggers()
