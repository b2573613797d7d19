"""The tables of the lake by what they are for, and who signs commits to them."""

from __future__ import annotations

import math
import re
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from shlex import quote

from rollview.algebra.history import CSN
from rollview.algebra.relation import Table
from rollview.algebra.view import View, owner
from rollview.catalog import Catalog
from rollview.errors import LakeDamaged, LakeError, LakeMisfit, LakeMoved
from rollview.lake import Commit, LakeTable, folder_name
from rollview.lake.description import OPERATION as DESCRIBE
from rollview.lake.identity import FILE, read_identity, write_identity
from rollview.lake.store import Store
from rollview.planning import description_of

# Whose turn it is to write to a lake: catalog and lake know the same epoch, a random word.
#
# A process that begins to write begins an epoch: it is announced in the catalog, written to the lake, and
# made known in the catalog. A copy of the catalog, or a catalog or a lake that was put back, knows another
# epoch than its counterpart as soon as somebody has written, and is refused before it writes.


LEASE = "epoch"
_PATIENCE_SECONDS = 30.0
_LOOKS = 10
_PAUSE_SECONDS = 0.05


def claim(catalog: Catalog, lake: Store, moves_to: Store | None = None) -> None:
    """Begins an epoch; from then on the lake is in another store, if it moves there."""
    with catalog.lease(LEASE, _PATIENCE_SECONDS):
        check_epoch(catalog, lake)
        identity = read_identity(lake)
        assert identity is not None, "the lake was given to the catalog when both were opened"
        epoch = uuid.uuid4().hex
        catalog.announce_epoch(epoch)
        if moves_to is not None:
            # First of all nobody continues here; a whole lake that does not say whose it is can be adopted.
            write_identity(lake, replace(identity, epoch="", moved=moves_to.address))
        write_identity(moves_to or lake, replace(identity, epoch=epoch))
        catalog.begin_epoch(epoch)


def check_epoch(catalog: Catalog, lake: Store) -> None:
    """Refuses a lake that has passed to another catalog, or to another copy of this one."""
    identity = None
    for _ in range(_LOOKS):
        identity = read_identity(lake)
        if identity is not None and identity.moved:
            raise LakeMoved(
                f"{lake.address}: the lake was moved to {identity.moved}",
                subject=lake.address,
                hint=f"write `lake: {identity.moved}` in the project file, and start again",
            )
        if identity is not None and identity.epoch in catalog.epochs():
            return
        # Another process of this catalog may begin an epoch right now.
        time.sleep(_PAUSE_SECONDS)
    if identity is None:
        raise LakeMisfit(
            f"{lake.address}: its file {FILE} is gone",
            subject=lake.address,
            hint=f"put it back; or {lake.start_over}",
        )
    raise LakeMisfit(
        f"{lake.address}: another copy of the catalog has written to the lake",
        subject=lake.address,
        hint=f"use that one; or {lake.start_over}",
    )


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

    def __init__(self, lake: Store, catalog: Catalog) -> None:
        self.lake = lake
        self._catalog = catalog
        self._opened: dict[str, LakeTable] = {}
        self._checked: dict[str, int] = {}
        self._is_claimed = False

    def change_log(self, table: Table) -> LakeTable:
        """`lake/changes/SOURCE/TABLE`."""
        place = ("changes", folder_name(table.source), folder_name(table.name))
        return self._table(*place, reload=table.source)

    def changes_kept_since(self, table: Table, since: int) -> int:
        """The first csn, not before `since`, after which the change log still has every change of a table.

        Pruning drops the files whose every row is old enough, so it has passed none of those that are left.
        What is before the end of the first of them counts only if no row is missing.
        """
        log, history = self.change_log(table), self._catalog.history
        files = log.files() if log.exists() else ()
        passed = min((int(file.maximum.get(CSN, since)) - 1 for file in files), default=history.last_csn())
        if passed <= since:
            return since
        first = tuple(file for file in files if file.minimum.get(CSN, since) <= passed)
        found = log.load(first, [CSN], csn=(since, passed))[CSN].to_pylist() if first else []
        kept = Counter(found)
        changed = history.changed_rows(table.qualified, since, passed)
        return max((csn for csn, rows in changed.items() if kept[csn] != rows), default=since)

    def of_view(self, name: str, generation: int) -> ViewTables:
        """The tables of a view; those for state and delta belong to one load of it."""
        own = folder_name(name)
        current = own if generation == 1 else f"{own}.{generation}"
        places = (("views", own), ("state", current), ("deltas", current))
        return ViewTables(*(self._table(*place, reload=owner(name)) for place in places))

    def describe(self, view: View, columns: Sequence[tuple[str, str]], csn: int) -> None:
        """Writes what the view's text says of its table, of these columns, into the table of its rows."""
        rows = self.of_view(view.name, 1).rows
        said = description_of(view.sql, tuple(name for name, _ in columns))
        description = (said.comment, said.properties, said.columns)
        if not rows.is_described(*description):
            writer = f"describe:{view.name}"
            step = rows.last_step(self.writer(writer)) + 1
            rows.describe(*description, self.signed(writer, step, csn, DESCRIBE))

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
            for folder in self.lake.folders(kind):
                # Others may have put a copy there, under a name like this one.
                if not re.fullmatch(rf"{re.escape(own)}(\.[0-9]+)?", folder):
                    continue
                table = self._table(kind, folder, reload=owner(name))
                if all(table.address != each.address for each in kept) and table.place.written() < before:
                    self.drop(table)

    def _table(self, *parts: str, reload: str) -> LakeTable:
        """A table; the error for a damaged one says to reload this view, or all views of this source."""
        name = "/".join(parts)
        if name not in self._opened:
            hint = f"`rollview setup --reload {quote(reload)}` reloads it"
            self._opened[name] = LakeTable(self.lake.table(*parts), hint)
        return self._opened[name]

    def writer(self, name: str) -> str:
        """The writer id of a lake commit: step ids are unique only together with their catalog.

        Checked before every write, which is refused if the lake has passed to another project meanwhile.
        """
        self.check_turn()
        return f"{self._identity}/{name}"

    def signed(self, name: str, step: int, csn: int, operation: str, continues: int | None = None) -> Commit:
        """A commit of this catalog, in the lake's epoch."""
        writer = self.writer(name)
        epoch, following = self._catalog.epochs()
        when = self._catalog.history.commit_time(csn) or 0.0
        return Commit(writer, step, csn, when, operation, continues, following or epoch)

    def check_turn(self) -> None:
        """Refuses to continue if the lake has passed to another copy of the catalog."""
        if not self._is_claimed:
            claim(self._catalog, self.lake)
            self._is_claimed = True
        check_epoch(self._catalog, self.lake)

    @cached_property
    def _identity(self) -> str:
        return self._catalog.identity

    def check_change_logs(self, tables: Iterable[Table]) -> None:
        """Refuses change logs that are not as rollview left them."""
        versions = self._catalog.captured.lake_versions()
        for table in tables:
            self.check_untouched(self.change_log(table), versions.get(table.qualified, 0))

    def check_untouched(self, table: LakeTable, at_least: int) -> None:
        """Refuses a table that somebody else has changed, or that lost versions.

        Version `at_least` is one that the catalog knows: it is as rollview left it.
        """
        if table.version() < at_least:
            raise LakeDamaged(
                f"{table.name} has lost entries of its log after version {table.version()}",
                subject=table.name,
                hint=table.way_out,
            )
        since = max(at_least, self._checked.get(table.address, 0))
        self._checked[table.address] = table.check_no_external_writes(since)

    def drop(self, table: LakeTable) -> None:
        """Removes a table from the lake."""
        self._opened = {name: each for name, each in self._opened.items() if each.address != table.address}
        self._checked.pop(table.address, None)
        table.place.drop()


# How large the tables of the lake are, from their Delta logs: no data file is read.


@dataclass(frozen=True)
class TableSize:
    """The total of one kind of tables of a view, or of a captured source.

    `kind` is `rows`, `state` or `deltas` of a view, its stages included, or `changes` of a source.
    """

    kind: str
    owner: str
    rows: int
    size_bytes: int
    files: int


def lake_sizes(catalog: Catalog, tables: LakeTables) -> tuple[TableSize, ...]:
    """The sizes by view and kind; what cannot be read, or is being replaced, is left out."""
    totals: dict[tuple[str, str], list[int]] = {}
    for kind, name, table in _tables(catalog, tables):
        try:
            files = table.files() if table.exists() else None
        except LakeError:
            continue
        if files is not None:
            total = totals.setdefault((kind, name), [0, 0, 0])
            for place, number in enumerate(
                (sum(each.rows for each in files), sum(each.size for each in files), len(files))
            ):
                total[place] += number
    return tuple(TableSize(kind, name, *total) for (kind, name), total in totals.items())


def _tables(catalog: Catalog, tables: LakeTables) -> Iterator[tuple[str, str, LakeTable]]:
    for name, record in catalog.views.all().items():
        own = tables.of_view(name, record.generation)
        # The rows of a stage are shown to no reader: they are state of the view.
        rows = "rows" if owner(name) == name else "state"
        yield from ((rows, owner(name), own.rows), ("state", owner(name), own.state))
        yield "deltas", owner(name), own.deltas
    for captured in catalog.captured.tables().values():
        yield "changes", captured.source, tables.change_log(captured)
