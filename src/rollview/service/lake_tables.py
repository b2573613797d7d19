"""The tables of the lake by what they are for, and who signs commits to them."""

from __future__ import annotations

import glob
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from shlex import quote
from shutil import rmtree
from tempfile import mkdtemp

from rollview.algebra.relation import Table
from rollview.algebra.view import owner
from rollview.catalog import Catalog
from rollview.errors import LakeDamaged
from rollview.lake import Commit, LakeTable, folder_name
from rollview.lake.identity import FOLDERS
from rollview.service.epoch import check_epoch, claim


@dataclass(frozen=True)
class ViewTables:
    """`lake/views/VIEW`: the rows, for everybody; `lake/state/VIEW` and `lake/deltas/VIEW`, for rollview."""

    rows: LakeTable
    state: LakeTable
    deltas: LakeTable

    def __iter__(self) -> Iterator[LakeTable]:
        return iter((self.rows, self.state, self.deltas))


class LakeTables:
    """Change logs, view deltas, and stored views with their states, below the folder `lake`."""

    def __init__(self, lake: Path, catalog: Catalog) -> None:
        self.lake = lake
        self._catalog = catalog
        self._opened: dict[Path, LakeTable] = {}
        self._checked: dict[Path, int] = {}
        self._is_claimed = False

    def change_log(self, table: Table) -> LakeTable:
        """`lake/changes/SOURCE/TABLE`."""
        place = ("changes", folder_name(table.source), folder_name(table.name))
        return self._table(*place, reload=table.source)

    def of_view(self, name: str, generation: int) -> ViewTables:
        """The tables of a view; those for state and delta belong to one load of it."""
        own = folder_name(name)
        current = own if generation == 1 else f"{own}.{generation}"
        places = (("views", own), ("state", current), ("deltas", current))
        return ViewTables(*(self._table(*place, reload=owner(name)) for place in places))

    def drop_view(self, name: str) -> None:
        """Removes all that there is of a view."""
        self.drop(self.of_view(name, 1).rows)
        self.drop_generations(name)

    def drop_generations(self, name: str, except_for: Iterable[int] = (), before: float = math.inf) -> None:
        """Removes tables for state and delta that loads have left, complete or not, but those of some loads.

        Of those only such as nobody has written to since `before`: somebody may still read them.
        """
        own = folder_name(name)
        kept = [table for generation in except_for for table in self.of_view(name, generation)]
        for kind in ("state", "deltas"):
            for folder in (self.lake / kind).glob(f"{glob.escape(own)}*"):
                # Others may have put a copy there, under a name like this one.
                is_own = re.fullmatch(rf"{re.escape(own)}(\.[0-9]+)?", folder.name)
                if is_own and all(folder != table.folder for table in kept) and _written(folder) < before:
                    self.drop(self._table(kind, folder.name, reload=owner(name)))

    def _table(self, *parts: str, reload: str) -> LakeTable:
        """A table; whoever finds it damaged is told to load this view, or all views of this source, anew."""
        folder = self.lake.joinpath(*parts)
        if folder not in self._opened:
            hint = f"`rollview setup --reload {quote(reload)}` loads it anew"
            self._opened[folder] = LakeTable(folder, hint)
        return self._opened[folder]

    def writer(self, name: str) -> str:
        """Who signs a lake commit: step ids are unique only together with their catalog.

        Asked before every write, which is refused if the lake has passed to somebody else meanwhile.
        """
        self.check_turn()
        return f"{self._identity}/{name}"

    def signed(self, name: str, step: int, csn: int, operation: str, continues: int | None = None) -> Commit:
        """A commit of this catalog, in the lake's epoch."""
        writer = self.writer(name)
        epoch, following = self._catalog.epochs()
        when = self._catalog.commit_time(csn) or 0.0
        return Commit(writer, step, csn, when, operation, continues, following or epoch)

    def check_turn(self) -> None:
        """Refuses to go on if the lake has passed to another copy of the catalog."""
        if not self._is_claimed:
            claim(self._catalog, self.lake)
            self._is_claimed = True
        check_epoch(self._catalog, self.lake)

    @cached_property
    def _identity(self) -> str:
        return self._catalog.identity

    def check_change_logs(self, tables: Iterable[Table]) -> None:
        """Refuses change logs that are not as rollview left them."""
        versions = self._catalog.lake_versions()
        for table in tables:
            self.check_untouched(self.change_log(table), versions.get(table.qualified, 0))

    def check_untouched(self, table: LakeTable, at_least: int) -> None:
        """Refuses a table that somebody else has changed, or that lost versions.

        Version `at_least` is one that the catalog knows: it is as rollview left it.
        """
        if table.version() < at_least:
            raise LakeDamaged(
                f"{table.folder.name} has lost entries of its log after version {table.version()}",
                subject=table.folder.name,
                hint=table.way_out,
            )
        table.check_no_external_writes(max(at_least, self._checked.get(table.folder, 0)))
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


def _written(table: Path) -> float:
    """When a table was last written to."""
    log = table / "_delta_log"
    return log.stat().st_mtime if log.exists() else 0.0
