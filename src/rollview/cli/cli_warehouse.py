"""The warehouse of a command: it says when Spark is being started, and keeps Spark quiet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rollview.cli.java import check_java, silent_start
from rollview.cli.terminal import Working
from rollview.service.project import Project
from rollview.service.project_file import read_project_file
from rollview.service.warehouse import Warehouse

__all__ = ["CliWarehouse", "Project"]


class CliWarehouse(Warehouse):
    """Says when Spark is being started, which takes seconds, and keeps it quiet."""

    def __init__(self, path: Path, spark: Any, tell: Working, debug: bool) -> None:
        super().__init__(read_project_file(path), spark)
        self._tell = tell
        self._debug = debug

    def start_spark(self) -> Any:
        """Makes the session, quietly."""
        if "remote" not in self.project.spark:
            check_java()
        with self._tell.on("starting Spark"), silent_start(self._debug):
            return super().start_spark()
