"""The warehouse: the parts that drivers are made of, opened when they are first needed, closed together.

Only `Drivers` and `Project` have it; everything below takes just the parts that it uses.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from rollview.ascii_text import url_scheme
from rollview.catalog import Catalog
from rollview.config.files import make_private_file, make_private_folder
from rollview.config.project_file import ProjectFile
from rollview.errors import CatalogError, InputError
from rollview.events import Events
from rollview.lake.disk import Disk
from rollview.lake.identity import read_identity
from rollview.lake.object_store import open_s3
from rollview.lake.store import Store
from rollview.object_storage import LOCAL_PART, is_s3
from rollview.runtime.session import Session, Starting
from rollview.runtime.sites import Sites
from rollview.storage.lake_fit import check_fit, check_new_catalog
from rollview.storage.lake_tables import LakeTables
from rollview.views.views import Views

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rollview.setup.plan import Recorded


class Warehouse:
    """Catalog, lake tables, views, sites and Spark of a project. One per process; close it when done."""

    def __init__(
        self,
        project: ProjectFile,
        spark: SparkSession | None = None,
        starting: Starting = lambda _: nullcontext(),
    ) -> None:
        self.project = project
        self.events = Events(hide=project.secrets.hide, hide_foreign=project.secrets.hide_foreign)
        self.session = Session(project, self.events, spark, starting)
        self.sites = Sites(project, self.session)
        self._opened_catalog = self._catalog_place

    def clone(self) -> Warehouse:
        """The same for another thread: it shares Spark, and has a catalog, sources and events of its own."""
        other = Warehouse(self.project)
        other.session = self.session.clone()
        other.sites = Sites(self.project, other.session)
        return other

    @cached_property
    def lake(self) -> Store:
        """What keeps the lake: a folder, or object storage."""
        project = self.project
        if project.lake_url:
            return open_s3(project.lake_url, project.storage, project.lake / "copies")
        return Disk(project.lake)

    def other_lake(self, place: str) -> Store:
        """The lake at another place; as for this one, keys come from `storage` or the environment."""
        if is_s3(place):
            copies = "moved" if self.project.lake_url else "copies"
            return open_s3(place, self.project.storage, self.project.folder / LOCAL_PART / copies)
        if url_scheme(place):
            message = f"`{place}` is neither a folder nor s3://BUCKET/PREFIX"
            raise InputError(message, subject=place, hint="for example s3://company-lake/shop")
        folder = Path(place).absolute()
        make_private_folder(folder)
        return Disk(folder)

    @property
    def is_replaced(self) -> bool:
        """Whether another catalog has taken the place of the one that was there when this was made."""
        return self._catalog_place != self._opened_catalog

    @property
    def _catalog_place(self) -> tuple[int, int] | None:
        """The identity of the catalog's file, whatever its name; None if it is not a file, or missing."""
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
        """The current setup; a new project is left as it is."""
        from rollview.setup.plan import Recorded

        if not self._has_catalog:
            check_new_catalog(self.lake)
            return Recorded()
        return Recorded.of(self.catalog, self.views)

    def check_up_to_date(self) -> None:
        """Refuses a catalog or a lake that opening would migrate, for callers that must change nothing."""
        if not self._has_catalog or "catalog" in self.__dict__:
            return
        if not Catalog.inspect(self.project.catalog).is_current or read_identity(self.lake) is None:
            raise CatalogError(
                "the catalog or the lake is of an earlier release, and opening it would bring it up to date",
                subject=self.project.name,
                hint="run `rollview status` first, which does that",
            )

    @property
    def _has_catalog(self) -> bool:
        """An empty database is not a catalog yet."""
        opened = "catalog" in self.__dict__
        return opened or (not self.is_new and Catalog.inspect(self.project.catalog).exists)

    @cached_property
    def catalog(self) -> Catalog:
        """The control tables; made if they are not there."""
        if self.is_new:
            check_new_catalog(self.lake)
        make_private_folder(self.project.lake)
        path = self.project.catalog.removeprefix("sqlite:///")
        if path not in (self.project.catalog, ":memory:"):
            make_private_file(Path(path))
        catalog = Catalog.open(self.project.catalog)
        try:
            check_fit(catalog, self.lake)
        except BaseException:
            catalog.close()
            raise
        return catalog

    @cached_property
    def tables(self) -> LakeTables:
        return LakeTables(self.lake, self.catalog)

    @cached_property
    def views(self) -> Views:
        return Views(self.catalog)

    def close(self) -> None:
        """Closes everything that was opened here; a given session stays."""
        self.session.cancel_work()
        self.sites.close()
        self.close_catalog()
        self.session.close()

    def refresh(self) -> None:
        """Forgets what was read from catalog and sources; refuses what a newer release has made of them."""
        if not Catalog.inspect(self.project.catalog).exists:
            check_new_catalog(self.lake)
        check_fit(self.catalog, self.lake)
        for name in ("tables", "views"):
            self.__dict__.pop(name, None)
        self.sites = Sites(self.project, self.session)

    def close_catalog(self) -> None:
        """Closes the catalog and drops all that was read from it; it is reopened when needed."""
        if "catalog" in self.__dict__:
            self.catalog.close()
        for name in ("catalog", "tables", "views"):
            self.__dict__.pop(name, None)
