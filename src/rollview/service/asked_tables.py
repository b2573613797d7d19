"""What a query asks of base tables: the columns that it names and, where it says so, some of their rows.

A query is read as a view is. Where a table stands in it once, the conditions on that table alone come before
everything else that is done with it, so other rows of it need not be read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rollview.algebra.expression import TRUE, Expression, conjunction, rename
from rollview.algebra.relation import Table
from rollview.algebra.view import View
from rollview.planning import occurrences
from rollview.service.lookup import comparisons_of
from rollview.service.used_columns import used_tables
from rollview.sources.source import Comparison


@dataclass(frozen=True)
class AskedTable:
    """A base table with the columns that are needed, and what is known of the rows that are."""

    table: Table
    comparisons: tuple[Comparison, ...] = ()
    condition: Expression = TRUE


def asked_tables(
    view: View | None, names: Iterable[str], known: Mapping[str, Table]
) -> dict[str, AskedTable]:
    """For each of these base tables what a query asks of it; all, where the query could not be read."""
    tables = {name: known[name] for name in names}
    if view is None:
        return {name: AskedTable(table) for name, table in tables.items()}
    used = used_tables(view, known.values())
    found = {name: AskedTable(used.get(name, table)) for name, table in tables.items()}
    blocks = [block for part in view.parts for block in part.blocks]
    times = Counter(relation.table.qualified for block in blocks for relation in block.relations)
    written = Counter(occurrences(view.sql))
    for block in blocks:
        for position, relation in enumerate(block.relations):
            name = relation.table.qualified
            if name not in found or times[name] != 1 or written[name.lower()] != 1:
                continue
            own = dict(zip(relation.columns, relation.table.columns, strict=True))
            condition = rename(conjunction(block.local[position]), own.__getitem__)
            found[name] = AskedTable(found[name].table, comparisons_of(block, position), condition)
    return found
