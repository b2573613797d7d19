"""`*` that shows two columns with one name, written out, so that each gets a name of its own."""

from __future__ import annotations

from contextlib import suppress

from sqlglot import exp

from rollview.algebra.relation import Table
from rollview.sql.errors import NodeError
from rollview.sql.names.outputs import output_names, scope_of, with_stars_written_out
from rollview.sql.passes.unnamed_outputs import with_names


def with_stars_apart(query: exp.Expr, tables: tuple[Table, ...]) -> exp.Expr:
    """The query itself; where `*` shows two columns with one name, its columns are written out."""
    for select in reversed(list(query.find_all(exp.Select))):
        if write_stars_apart(select, tables):
            with_names(select)
    return query


def write_stars_apart(select: exp.Select, tables: tuple[Table, ...]) -> bool:
    """Whether `*` shows two columns with one name; then it is written out."""
    if not (select.args.get("joins") and any(item.is_star for item in select.expressions)):
        return False
    with suppress(NodeError):
        names = [name.lower() for name in output_names(select, tables)]
        scope = scope_of(select, tables)
        # A column of an item that has no name cannot be distinguished from another one.
        if len(set(names)) < len(names) and not any(item.alias.startswith("[") for item in scope.items):
            with_stars_written_out(select, scope)
            return True
    return False
