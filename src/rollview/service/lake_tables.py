"""The tables of the lake by what they are for, and who signs commits to them."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

from rollview.algebra.relation import Table
from rollview.catalog import Catalog
from rollview.errors import LakeDamaged
from rollview.lake import LakeTable, folder_name
from rollview.lake.identity import FOLDERS


class LakeTables:
    """Change logs, view deltas, and stored views with their states, below the folder `lake`."""

    def __init__(self, lake: Path, catalog: Catalog) -> None:
        self.lake = lake
        self._catalog = catalog
        self._opened: dict[Path, LakeTable] = {}
        self._checked: dict[Path, int] = {}

    def change_log(self, table: Table) -> LakeTable:
        """`lake/changes/SOURCE/TABLE`."""
        return self._table("changes", folder_name(table.source), folder_name(table.name))

    def delta_table(self, view: str) -> LakeTable:
        """`lake/deltas/VIEW`."""
        return self._table("deltas", folder_name(view))

    def view_table(self, view: str) -> LakeTable:
        """`lake/views/VIEW`: the rows of the view, for everybody."""
        return self._table("views", folder_name(view))

    def state_table(self, view: str) -> LakeTable:
        """`lake/state/VIEW`: what has to be known besides, for rollview alone."""
        return self._table("state", folder_name(view))

    def all_of_view(self, view: str) -> tuple[LakeTable, ...]:
        """All tables that a view may have, whether they are there or not."""
        return (self.view_table(view), self.state_table(view), self.delta_table(view))

    def _table(self, *parts: str) -> LakeTable:
        folder = self.lake.joinpath(*parts)
        return self._opened.setdefault(folder, LakeTable(folder))

    def writer(self, name: str) -> str:
        """Who signs a lake commit: step ids are unique only together with their catalog."""
        return f"{self._identity}/{name}"

    @cached_property
    def _identity(self) -> str:
        return self._catalog.identity

    def check_no_external_writes(self, table: LakeTable) -> None:
        """Refuses a lake table that somebody else has changed since this process looked last."""
        table.check_no_external_writes(self._checked.get(table.folder, 0))
        self._checked[table.folder] = table.version()

    def drop(self, table: LakeTable) -> None:
        """Removes a table from the lake; it vanishes at once, however long deleting its files takes.

        Only what is provably a table of this lake: a folder where the lake has them, reached without links.
        """
        self._opened.pop(table.folder, None)
        self._checked.pop(table.folder, None)
        if table.folder.exists():
            self._check_own(table.folder)
            trash = Path(mkdtemp(dir=self.lake, prefix=".dropped-"))
            table.folder.rename(trash / table.folder.name)
            rmtree(trash, ignore_errors=True)

    def _check_own(self, folder: Path) -> None:
        below = folder.absolute().relative_to(self.lake.absolute()).parts
        # The lake itself may be reached through a link; nothing below it is.
        is_here = folder.resolve() == self.lake.resolve().joinpath(*below)
        is_table = (folder / "_delta_log").is_dir() or not any(folder.iterdir())
        if below[0] not in FOLDERS or not is_here or not is_table:
            raise LakeDamaged(
                f"{folder} is not a table of this lake, so it is not removed",
                subject=str(folder),
                hint="somebody put it there, or a link: move it away",
            )
