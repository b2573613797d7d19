"""How large the tables of the lake are, from their Delta logs: no data file is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rollview.algebra.view import owner
from rollview.catalog import Catalog
from rollview.errors import LakeError
from rollview.lake import LakeTable
from rollview.service.lake_tables import LakeTables


@dataclass(frozen=True)
class TableSize:
    """What one kind of tables of a view, or of a captured source, adds up to.

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
    for name, record in catalog.views().items():
        own = tables.of_view(name, record.generation)
        # What a stage shows is shown to nobody: it is state of the view.
        rows = "rows" if owner(name) == name else "state"
        yield from ((rows, owner(name), own.rows), ("state", owner(name), own.state))
        yield "deltas", owner(name), own.deltas
    for captured in catalog.tables().values():
        yield "changes", captured.source, tables.change_log(captured)
