"""Windows with a name: OVER w becomes what the clause WINDOW says of w."""

from __future__ import annotations

from sqlglot import exp

from rollview.algebra.relation import Table
from rollview.sql.errors import mistake


def with_windows_written_out(query: exp.Expr, _: tuple[Table, ...] = ()) -> exp.Expr:
    """OVER w becomes what WINDOW says of w; the same object where there is no such clause."""
    if not isinstance(query, exp.Select) or not query.args.get("windows"):
        return query
    select = query.copy()
    known = {each.this.name.lower(): each for each in select.args["windows"]}
    select.set("windows", None)
    for window in list(select.find_all(exp.Window)):
        name = window.args.get("alias")
        if name is None:
            continue
        meant = known.get(name.name.lower())
        if meant is None:
            raise mistake(window, f"unknown window `{name.name}`", subject=name.name)
        window.set("alias", None)
        for argument in ("partition_by", "order", "spec"):
            if not window.args.get(argument) and meant.args.get(argument):
                value = meant.args[argument]
                copied = [each.copy() for each in value] if isinstance(value, list) else value.copy()
                window.set(argument, copied)
    return select
