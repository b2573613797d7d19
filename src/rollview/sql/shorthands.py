"""What a SELECT says shortly, written out: windows with a name, outputs that name other outputs, and `*`."""

from __future__ import annotations

from sqlglot import exp

from rollview.sql.place import mistake
from rollview.sql.scope import Scope


def with_windows_written_out(select: exp.Select) -> exp.Select:
    """OVER w becomes what WINDOW says of w; the same object where there is no such clause."""
    named = select.args.get("windows")
    if not named:
        return select
    select = select.copy()
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


def with_aliases_written_out(select: exp.Select, scope: Scope) -> exp.Select:
    """An output that names an earlier one has its expression instead; columns of FROM go first."""
    known: dict[str, exp.Expr] = {}
    items: list[exp.Expr] = []
    changed = False
    for item in select.expressions:
        written = item.copy()
        written.parent = item.parent
        for each in list(written.find_all(exp.Column)):
            if _is_alias(each, written, scope, known):
                each.replace(exp.paren(known[each.name.lower()].copy()))
                changed = True
        items.append(written)
        if isinstance(written, exp.Alias):
            known.setdefault(written.alias.lower(), written.this)
    if not changed:
        return select
    select = select.copy()
    select.set("expressions", items)
    return select


def _is_alias(node: exp.Column, item: exp.Expr, scope: Scope, known: dict[str, exp.Expr]) -> bool:
    if node.table or node.name.lower() not in known or scope.names(node):
        return False
    # What stands in a query inside of the output has names of its own.
    return node.find_ancestor(exp.Query) is item.find_ancestor(exp.Query)


def with_stars_written_out(select: exp.Select, scope: Scope) -> exp.Select:
    """`*` as the columns that a scope has, before others are joined to it; changes the SELECT."""
    items: list[exp.Expr] = []
    for item in select.expressions:
        if not (item.is_star and isinstance(item, exp.Star | exp.Column)):
            items.append(item)
            continue
        for seen in scope.star(item):
            alias = seen.item.alias
            qualifier = None if alias.startswith("[") else exp.to_identifier(alias, quoted=True)
            items.append(exp.column(exp.to_identifier(seen.name, quoted=True), qualifier))
    select.set("expressions", items)
    return select
