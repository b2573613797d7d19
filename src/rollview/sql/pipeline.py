"""The pipeline: all passes from a query as it is written to one that an operator translates, in their order.

A pass takes a query and the tables that it may name, and returns the query written otherwise: the same object
where it has nothing to do, or is not about such a query. A whole query loses what is no more than a way of
writing, and is checked against the grammar. After that each query is on its own, from outside to inside: as
it is translated, it gets one operator outermost and loses the queries in its expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sqlglot import exp

from rollview.algebra.relation import Table
from rollview.sql.grammar import Syntax, check_supported
from rollview.sql.names.ctes import without_ctes
from rollview.sql.passes.ambiguous_names import with_one_meaning
from rollview.sql.passes.execution_hints import without_execution_hints
from rollview.sql.passes.generated_outputs import with_generators_in_from
from rollview.sql.passes.generators_below import with_generators_below
from rollview.sql.passes.groups_apart import with_groups_apart
from rollview.sql.passes.lateral_aliases import with_aliases_written_out
from rollview.sql.passes.laterals import without_laterals
from rollview.sql.passes.layers import layered
from rollview.sql.passes.named_windows import with_windows_written_out
from rollview.sql.passes.pivots import without_pivots
from rollview.sql.passes.repeated_names import with_stars_apart
from rollview.sql.passes.row_number_bounds import with_bounds_inside
from rollview.sql.passes.stars_in_calls import with_stars_in_calls_written_out
from rollview.sql.passes.subqueries import without_subqueries
from rollview.sql.passes.time_windows import without_time_windows
from rollview.sql.passes.unnamed_outputs import with_names
from rollview.sql.passes.values import without_values

Pass = Callable[[exp.Expr, tuple[Table, ...]], exp.Expr]

SPELLING_PASSES: tuple[Pass, ...] = (
    without_execution_hints,
    without_values,
    with_names,
    without_ctes,
    without_time_windows,
)
"""Over a whole query, whatever its tables are. The result is checked against the grammar."""

TABLE_PASSES: tuple[Pass, ...] = (
    without_pivots,
    with_one_meaning,
    with_stars_apart,
)
"""Over a whole query, by the columns of its tables."""

SELECT_PASSES: tuple[Pass, ...] = (
    with_windows_written_out,
    with_generators_in_from,
    without_laterals,
    with_generators_below,
    with_aliases_written_out,
    with_stars_in_calls_written_out,
    with_groups_apart,
    with_bounds_inside,
    layered,
    without_subqueries,
)
"""Over the outermost SELECT or, in `layered`, set operation; queries inside have their turn later."""


def plain(query: exp.Expr, tables: tuple[Table, ...], grammar: Syntax) -> exp.Expr:
    """A whole query without what is no more than a way of writing; refuses what is not in the grammar."""
    query = _rewritten(query, tables, SPELLING_PASSES)
    check_supported(query, grammar)
    return _rewritten(query, tables, TABLE_PASSES)


def simple(query: exp.Expr, tables: tuple[Table, ...]) -> exp.Expr:
    """A plain query with one operator outermost, and no queries inside its expressions."""
    return _rewritten(query, tables, SELECT_PASSES)


def _rewritten(query: exp.Expr, tables: tuple[Table, ...], passes: Iterable[Pass]) -> exp.Expr:
    for each in passes:
        query = each(query, tables)
    return query
