"""What the commands of a project share: `--project`, `--json`, and the project, opened while it is used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rollview.cli.java import silent_logs
from rollview.cli.terminal import Working, json_option, working
from rollview.errors import InputError

if TYPE_CHECKING:
    from rollview.service.project import Project
    from rollview.service.warehouse import Warehouse

F = TypeVar("F", bound=Callable[..., Any])


def project_options(function: F) -> F:
    """Adds `--project FILE` and `--json`."""
    project = click.option(
        "--project",
        "project_file",
        type=click.Path(path_type=Path),
        default=Path(),
        metavar="FILE",
        help="The project file, or its folder.  [default: ./rollview.yml]",
    )
    return project(json_option(function))


@dataclass(frozen=True)
class Opened:
    """A project at work: its API, the warehouse below it, and where to say what is going on."""

    project: Project
    warehouse: Warehouse
    tell: Working

    def views(self, *names: str) -> list[str]:
        """The named views, each once, or all of them; refuses a name that is none, and an empty project."""
        if not self.project.views:
            raise _not_set_up(self.warehouse.project.name)
        return [self.warehouse.view(name).name for name in dict.fromkeys(names)] or list(self.project.views)


@contextmanager
def opened(path: Path, what: str = "", may_be_new: bool = False) -> Iterator[Opened]:
    """Opens the project of a file. A Spark session in the context's `obj` is used instead of a new one.

    A project that has never been set up is refused, lest a look at it should leave an empty catalog behind.
    """
    root = click.get_current_context().find_root()
    debug = bool(root.meta.get("rollview.debug"))
    with silent_logs(debug), working(what) as tell:
        # Not at the top: help and wrong arguments should not wait for Spark.
        from rollview.cli.cli_warehouse import CliWarehouse, Project  # noqa: PLC0415

        warehouse = CliWarehouse(path, root.obj, tell, debug)
        if warehouse.is_new and not may_be_new:
            raise _not_set_up(warehouse.project.name)
        with Project(warehouse) as project:
            yield Opened(project, warehouse, tell)


def _not_set_up(name: str) -> InputError:
    return InputError(f"project {name}: no view is set up", subject=name, hint="run `rollview setup` first")
