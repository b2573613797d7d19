"""What the commands of a project share: `--project`, `--json`, and the project, opened while it is used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import click

from rollview.cli.java import check_java, silent_logs, silent_start
from rollview.cli.terminal import Working, working
from rollview.service.project import Project
from rollview.service.project_file import read_project_file
from rollview.service.warehouse import Warehouse

F = TypeVar("F", bound=Callable[..., Any])


def _remember_json(context: click.Context, _: click.Parameter, value: bool) -> bool:
    context.find_root().meta["rollview.json"] = value
    return value


def project_options(function: F) -> F:
    """Adds `--project FILE` and `--json`."""
    as_json = click.option(
        "--json",
        "as_json",
        is_flag=True,
        is_eager=True,
        callback=_remember_json,
        help="Print the result as one JSON document; errors go to stderr.",
    )
    project = click.option(
        "--project",
        "project_file",
        type=click.Path(path_type=Path),
        default=Path(),
        metavar="FILE",
        help="The project file, or its folder.  [default: ./rollview.yml]",
    )
    return project(as_json(function))


class _TellingWarehouse(Warehouse):
    """Says when Spark is being started, which takes seconds, and keeps it quiet."""

    def __init__(self, path: Path, spark: Any, tell: Working, debug: bool) -> None:
        super().__init__(read_project_file(path), spark)
        self._tell = tell
        self._debug = debug

    @cached_property
    def spark(self) -> Any:
        """The session that was given, or one started now."""
        if self._given_spark is not None:
            return self._given_spark
        if "remote" not in self.project.spark:
            check_java()
        with self._tell.on("starting Spark"), silent_start(self._debug):
            return super().spark


@dataclass(frozen=True)
class Opened:
    """A project at work: its API, the warehouse below it, and where to say what is going on."""

    project: Project
    warehouse: Warehouse
    tell: Working


@contextmanager
def opened(path: Path, what: str = "") -> Iterator[Opened]:
    """Opens the project of a file. A Spark session in the context's `obj` is used instead of a new one."""
    root = click.get_current_context().find_root()
    debug = bool(root.meta.get("rollview.debug"))
    with silent_logs(debug), working(what) as tell:
        warehouse = _TellingWarehouse(path, root.obj, tell, debug)
        with Project(warehouse) as project:
            yield Opened(project, warehouse, tell)
