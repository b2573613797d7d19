"""TRUNCATE: a place in the history of a table that no log leads across.

The rows that went are named nowhere. So what is read of the table on one side cannot be rolled to the other,
and no forward query may take an interval with such a transaction in it. A view passes it in a step of its own
if it is empty behind it; otherwise it is loaded behind it.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

from rollview.algebra.history import Seen
from rollview.algebra.relation import Table
from rollview.algebra.view import View
from rollview.catalog import Catalog, Truncation
from rollview.errors import ReadPointLost, TableTruncated
from rollview.sources.source import CapturedTransaction


def emptied_by(transactions: Iterable[CapturedTransaction]) -> set[str]:
    """The tables that were truncated in a unit of work and have no rows behind it."""
    found: dict[str, bool] = {}
    for each in transactions:
        found |= dict.fromkeys(each.rows.keys() & found.keys(), False)
        found |= {name: loss.leaves_empty and found.get(name, True) for name, loss in each.lost.items()}
    return {name for name, is_empty in found.items() if is_empty}


def ahead_of(catalog: Catalog, view: View, after: int) -> list[Truncation]:
    """The truncations at the first csn behind `after` that has any of a table that the view reads."""
    found = _of(catalog, view.tables, after)
    return list(takewhile(lambda each: each.csn == found[0].csn, found))


def leave_empty(view: View, truncations: Iterable[Truncation]) -> bool:
    """Whether a view has no rows behind truncations of one csn."""
    return view.is_empty_without({each.table for each in truncations})


def newest_side(catalog: Catalog, tables: Iterable[Table]) -> int:
    """The csn of the last truncation of any of these tables; 0 if there was none."""
    return max((each.csn for each in _of(catalog, tables)), default=0)


def check_interval(catalog: Catalog, table: Table, upto: int, since: int) -> None:
    """Refuses changes up to a csn if the table was truncated behind the csn from which on they count."""
    for each in _of(catalog, [table], since):
        if each.csn <= upto:
            raise truncated(each)


def check_answer(catalog: Catalog, tables: Iterable[Table], saw: Seen, since: int) -> None:
    """Refuses an answer, for which `since` is the first csn that is needed, from behind a later truncation.

    One that has not seen an earlier truncation is of no use either, but the next one will have.
    """
    for each in _of(catalog, tables):
        if each.csn > since and each.csn in saw:
            raise truncated(each)
        if each.csn <= since and each.csn not in saw:
            raise ReadPointLost(f"{each.table} was read before it was truncated", subject=each.table)


def check_roll(catalog: Catalog, table: Table, saw: Seen, csn: int) -> None:
    """Refuses to roll what was read of a table to a csn on the other side of a truncation."""
    for each in _of(catalog, [table]):
        if (each.csn in saw) != (each.csn <= csn):
            raise truncated(each)


def reach_of(catalog: Catalog, table: Table, saw: Seen) -> int | None:
    """The last csn that what was read of a table can be rolled to; None without limit."""
    return min((each.csn - 1 for each in _of(catalog, [table]) if each.csn not in saw), default=None)


def truncated(truncation: Truncation) -> TableTruncated:
    """The refusal."""
    table, csn = truncation.table, truncation.csn
    message = f"table {table} was truncated at csn {csn}: its rows before that are not known"
    hint = "`rollview run` reloads the views that need them"
    return TableTruncated(message, subject=table, hint=hint, csn=csn)


def _of(catalog: Catalog, tables: Iterable[Table], after: int = 0) -> list[Truncation]:
    names = [table.qualified for table in tables if table.source]
    return catalog.history.truncations(names, after) if names else []
