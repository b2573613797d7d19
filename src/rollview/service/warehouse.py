"""The warehouse: the parts that drivers are made of, opened when they are first needed, closed together.

Only `Drivers` and `Project` have it. Everything below takes the parts that it uses.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from rollview.catalog import Catalog
from rollview.errors import CatalogError
from rollview.events import Events
from rollview.lake.identity import read_identity
from rollview.service.lake_fit import check_fit, check_new_catalog
from rollview.service.lake_tables import LakeTables
from rollview.service.private_files import make_private_file, make_private_folder
from rollview.service.project_file import ProjectFile
from rollview.service.recorded import Recorded
from rollview.service.session import Session, Starting
from rollview.service.sites import Sites
from rollview.service.views import Views

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
        self._opened_catalog = self._catalog_place

    def beside(self) -> Warehouse:
        """The same for another thread: it shares Spark, and has a catalog, sources and events of its own."""
        other = Warehouse(self.project)
        other.session = self.session.beside()
        other.sites = Sites(self.project, other.session)
        return other

    @property
    def is_replaced(self) -> bool:
        """Whether another catalog has taken the place of the one that was there when this was made."""
        return self._catalog_place != self._opened_catalog

    @property
    def _catalog_place(self) -> tuple[int, int] | None:
        """Which file the catalog is, whatever it is called; None if it is no file, or not there."""
        path = self.project.catalog.removeprefix("sqlite:///")
        if path == self.project.catalog or not Path(path).exists():
            return None
        known = Path(path).stat()
        return known.st_dev, known.st_ino

    @property
    def is_new(self) -> bool:
        """Whether the project was never set up: its catalog, if it is a file, is not there."""
        path = self.project.catalog.removeprefix("sqlite:///")
        return path != self.project.catalog and not Path(path).exists()

    def recorded(self) -> Recorded:
        """What is set up now; a project that is new is left as it is."""
        if not self._has_catalog:
            check_new_catalog(self.project.lake)
            return Recorded()
        return Recorded.of(self.catalog, self.views)

    def check_up_to_date(self) -> None:
        """Refuses a catalog or a lake that opening would change first, for those who must change nothing."""
        if not self._has_catalog or "catalog" in self.__dict__:
            return
        if not Catalog.look(self.project.catalog).is_current or read_identity(self.project.lake) is None:
            raise CatalogError(
                "the catalog or the lake is of an earlier release, and opening it would bring it up to date",
                subject=self.project.name,
                hint="run `rollview status` first, which does that",
            )

    @property
    def _has_catalog(self) -> bool:
        """A database that is empty is no catalog yet."""
        opened = "catalog" in self.__dict__
        return opened or (not self.is_new and Catalog.look(self.project.catalog).exists)

    @cached_property
    def catalog(self) -> Catalog:
        """The control tables; made if they are not there."""
        lake = self.project.lake
        if self.is_new:
            check_new_catalog(lake)
        make_private_folder(lake)
        path = self.project.catalog.removeprefix("sqlite:///")
        if path not in (self.project.catalog, ":memory:"):
            make_private_file(Path(path))
        catalog = Catalog.open(self.project.catalog)
        try:
            check_fit(catalog, lake)
        except BaseException:
            catalog.close()
            raise
        return catalog

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
        self.close_catalog()
        self.session.close()

    def close_catalog(self) -> None:
        """Lets go of the catalog and of all that was read from it; it is opened again when it is needed."""
        if "catalog" in self.__dict__:
            self.catalog.close()
        for name in ("catalog", "tables", "views"):
            self.__dict__.pop(name, None)
