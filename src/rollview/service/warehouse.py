"""The warehouse: the parts that drivers are made of, opened when they are first needed, closed together.

Only `Drivers` and `Project` have it. Everything below takes the parts that it uses.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import cached_property
from pathlib import Path

from pyspark.sql import SparkSession

from rollview.catalog import Catalog
from rollview.events import Events
from rollview.service.lake_tables import LakeTables
from rollview.service.private_files import make_private_file, make_private_folder
from rollview.service.project_file import ProjectFile
from rollview.service.session import Session, Starting
from rollview.service.sites import Sites
from rollview.service.views import Views


class Warehouse:
    """Catalog, lake tables, views, sites and Spark of a project. One per process; close it when done."""

    def __init__(
        self,
        project: ProjectFile,
        spark: SparkSession | None = None,
        starting: Starting = lambda _: nullcontext(),
    ) -> None:
        self.project = project
        self.events = Events(hide=project.secrets.hide)
        self.session = Session(project, self.events, spark, starting)
        self.sites = Sites(project, self.session)

    @property
    def is_new(self) -> bool:
        """Whether the project was never set up: its catalog, if it is a file, is not there."""
        path = self.project.catalog.removeprefix("sqlite:///")
        return path != self.project.catalog and not Path(path).exists()

    @cached_property
    def catalog(self) -> Catalog:
        """The control tables; made if they are not there."""
        make_private_folder(self.project.lake)
        path = self.project.catalog.removeprefix("sqlite:///")
        if path not in (self.project.catalog, ":memory:"):
            make_private_file(Path(path))
        return Catalog.open(self.project.catalog)

    @cached_property
    def tables(self) -> LakeTables:
        """The tables of the lake."""
        return LakeTables(self.project.lake, self.catalog)

    @cached_property
    def views(self) -> Views:
        """The views that have been set up."""
        return Views(self.catalog)

    def close(self) -> None:
        """Lets go of everything that was opened here; a session that was given stays."""
        self.session.cancel_work()
        self.sites.close()
        if "catalog" in self.__dict__:
            self.catalog.close()
        self.session.close()
