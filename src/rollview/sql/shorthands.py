"""What a SELECT says shortly, written out: windows with a name, outputs that are named again, and `*`."""

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
    if not changed and not _names_outputs(select.args.get("group"), scope, known):
        return select
    select = select.copy()
    select.set("expressions", items)
    for each in _names_outputs(select.args.get("group"), scope, known):
        each.replace(known[each.name.lower()].copy())
    return select


def _names_outputs(group: exp.Expr | None, scope: Scope, known: dict[str, exp.Expr]) -> list[exp.Column]:
    """Where GROUP BY names outputs, also in ROLLUP, CUBE or GROUPING SETS; columns of FROM go first."""
    if group is None:
        return []
    sets = group.find_all(exp.Rollup, exp.Cube, exp.GroupingSets)
    columns = [each for one in sets for each in one.find_all(exp.Column)]
    columns += [each for each in group.expressions if isinstance(each, exp.Column)]
    unqualified = [each for each in columns if not each.table and each.name.lower() in known]
    return [each for each in unqualified if not scope.names(each)]


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


def with_stars_in_calls_written_out(select: exp.Select, scope: Scope) -> exp.Select:
    """`*` as arguments, as in struct(*); the same object where there is none. COUNT(*) means rows."""
    if not any(_is_argument(each) for each in select.find_all(exp.Star)):
        return select
    select = select.copy()
    for star in [each for each in select.find_all(exp.Star) if _is_argument(each)]:
        whole = star.parent if isinstance(star.parent, exp.Column) else star
        call = whole.parent
        if whole.find_ancestor(exp.Query) is not select or call is None:
            continue
        columns = [scope.syntax(seen.column) for seen in scope.star(whole)]
        values: list[exp.Expr] = list(columns)
        if isinstance(call, exp.Struct):
            values = [exp.PropertyEQ(this=each.this.copy(), expression=each) for each in columns]
        if whole.arg_key == "this":
            call.set("this", values[0])
            call.set("expressions", [*values[1:], *call.expressions])
        else:
            others = [[each] if each is not whole else values for each in call.expressions]
            call.set("expressions", [each for part in others for each in part])
    return select


def _is_argument(star: exp.Star) -> bool:
    whole: exp.Expr | None = star.parent if isinstance(star.parent, exp.Column) else star
    call = whole.parent if whole is not None else None
    if isinstance(call, exp.Distinct):
        return isinstance(call.parent, exp.Count)
    return isinstance(call, exp.Func) and not isinstance(call, exp.AggFunc)
