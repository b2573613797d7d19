"""Outputs without a name get one, made of their expression: a stored table needs it.

Spark calls them by their text, such as `sum(amount)`, which is no name that a lake table can have. Where two
columns with one name are outputs, the second gets a number behind it; so does a column of `*`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress

from sqlglot import exp

from rollview.algebra.relation import Table
from rollview.sql.aliased import aliased
from rollview.sql.ctes import without_ctes
from rollview.sql.generators import is_generator
from rollview.sql.outputs import output_names, scope_of
from rollview.sql.place import DIALECT, NodeError
from rollview.sql.shorthands import with_stars_written_out
from rollview.sql.time_windows import window_name

_LONGEST = 60


def with_names(query: exp.Expr) -> exp.Expr:
    """The query itself, with an alias for every output that has no name, or that of an earlier one.

    The alias is no name that the query uses for something else, so that nothing gets another meaning.
    """
    known = {each.name.lower() for each in query.find_all(exp.Identifier)}
    for select in query.find_all(exp.Select):
        taken = set(known)
        items: list[exp.Expr] = []
        for place, item in enumerate(select.expressions, 1):
            if name := _repeated(item, select.expressions[: place - 1]):
                name = _free(f"{name}_2", taken)
                taken.add(name)
                items.append(aliased(item, name, quoted=True))
                continue
            if _has_name(item):
                items.append(item)
                continue
            name = _spark_name(item) or _free(_name_of(item, place), taken)
            taken.add(name)
            items.append(aliased(item, name, quoted=True))
        select.set("expressions", items)
    return query


def with_stars_apart(query: exp.Expr, tables: Iterable[Table]) -> exp.Expr:
    """The query itself; where `*` shows two columns with one name, its columns are written out."""
    tables = tuple(tables)
    for select in reversed(list(query.find_all(exp.Select))):
        if _write_stars_apart(select, tables):
            with_names(select)
    return query


def _write_stars_apart(select: exp.Select, tables: tuple[Table, ...]) -> bool:
    """Whether `*` shows two columns with one name; then it is written out."""
    if not (select.args.get("joins") and any(item.is_star for item in select.expressions)):
        return False
    with suppress(NodeError):
        names = [name.lower() for name in output_names(select, tables)]
        scope = scope_of(select, tables)
        # A column of an item that has no name cannot be told from another one.
        if len(set(names)) < len(names) and not any(item.alias.startswith("[") for item in scope.items):
            with_stars_written_out(select, scope)
            return True
    return False


def given_names(query: exp.Expr, tables: Iterable[Table]) -> dict[str, str]:
    """The outputs of a query that have no name, as they are written, and what they are called."""
    query = without_ctes(query)
    top = query
    while isinstance(top, exp.SetOperation | exp.Subquery):
        top = top.this
    if not isinstance(top, exp.Select):
        return {}
    _write_stars_apart(top, tuple(tables))
    written = [
        "" if _is_called_so(item, top.expressions[:place]) else item.sql(dialect=DIALECT)
        for place, item in enumerate(top.expressions)
    ]
    with_names(query)
    return {text: item.alias for text, item in zip(written, top.expressions, strict=True) if text}


def _is_called_so(item: exp.Expr, earlier: list[exp.Expr]) -> bool:
    """Whether Spark's name of an output is also ours."""
    return not _repeated(item, earlier) and bool(_has_name(item) or _spark_name(item))


def _repeated(item: exp.Expr, earlier: list[exp.Expr]) -> str:
    """The name of a column, if an earlier output has it; a name that somebody gave is left alone."""
    inner = item.unnest()
    if not isinstance(inner, exp.Column) or inner.is_star:
        return ""
    taken = {(each.alias or each.unnest().name).lower() for each in earlier}
    return inner.name if inner.name.lower() in taken else ""


def _has_name(item: exp.Expr) -> bool:
    """Whether it has an alias, or is a column, also in parentheses; generators have names of their own."""
    inner = item.unnest()
    if isinstance(item, exp.Alias | exp.Aliases) or is_generator(item):
        return True
    return bool(inner.is_star) or isinstance(inner, exp.Column)


def _spark_name(item: exp.Expr) -> str:
    """What Spark calls a field, a column as another type, and a window of time; nothing for all else."""
    inner = item.unnest()
    if name := window_name(inner):
        return name
    if isinstance(inner, exp.Cast) and isinstance(inner.this, exp.Column):
        return inner.this.name
    return inner.name if isinstance(inner, exp.Dot) else ""


def _name_of(item: exp.Expr, place: int) -> str:
    words = re.sub(r"\W+", "_", item.sql(dialect=DIALECT).lower())[:_LONGEST].strip("_")
    return words if re.match(r"[^\W\d]", words) else f"column_{place}"


def _free(name: str, taken: set[str]) -> str:
    number, free = 1, name
    while free.lower() in taken:
        number += 1
        free = f"{name}_{number}"
    return free
