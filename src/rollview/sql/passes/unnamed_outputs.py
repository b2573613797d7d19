"""Outputs without a name get one, made of their expression: a stored table needs it.

Spark calls them by their text, such as `sum(amount)`, which is no name that a lake table can have. Where two
columns with one name are outputs, the second gets a number behind it; of those of `*`, see `repeated_names`.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from sqlglot import exp

from rollview.algebra.relation import Table
from rollview.sql.dialect import DIALECT
from rollview.sql.names.generators import is_generator
from rollview.sql.passes.time_windows import window_name
from rollview.sql.tree import aliased

_LONGEST = 60


def with_names(query: exp.Expr, _: tuple[Table, ...] = ()) -> exp.Expr:
    """The query itself, with an alias for every output that has no name, or that of an earlier one.

    The alias is no name that the query uses for something else, so that nothing gets another meaning.
    """
    known = {each.name.lower() for each in query.find_all(exp.Identifier)}
    for select in query.find_all(exp.Select):
        taken = set(known)
        items: list[exp.Expr] = []
        for place, item in enumerate(select.expressions, 1):
            if name := _repeated(item, select.expressions[: place - 1]):
                name = free_name(f"{name}_2", taken)
                taken.add(name)
                items.append(aliased(item, name, quoted=True))
                continue
            if _has_name(item):
                items.append(item)
                continue
            name = _spark_name(item) or free_name(_name_of(item, place), taken)
            taken.add(name)
            items.append(aliased(item, name, quoted=True))
        select.set("expressions", items)
    return query


def is_called_so(item: exp.Expr, earlier: list[exp.Expr]) -> bool:
    """Whether Spark's name of an output is also ours."""
    return not _repeated(item, earlier) and bool(_has_name(item) or _spark_name(item))


def _repeated(item: exp.Expr, earlier: list[exp.Expr]) -> str:
    """The name of a column, if an earlier output has it; a name that the query gives is left alone."""
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
    """Spark's name for a field, a column as another type, and a window of time; empty for all others."""
    inner = item.unnest()
    if name := window_name(inner):
        return name
    if isinstance(inner, exp.Cast) and isinstance(inner.this, exp.Column):
        return inner.this.name
    return inner.name if isinstance(inner, exp.Dot) else ""


def _name_of(item: exp.Expr, place: int) -> str:
    words = re.sub(r"\W+", "_", item.sql(dialect=DIALECT).lower())[:_LONGEST].strip("_")
    return words if re.match(r"[^\W\d]", words) else f"column_{place}"


def free_name(name: str, taken: Collection[str]) -> str:
    """A name that none has yet: itself, or with a number behind it."""
    number, free = 1, name
    while free.lower() in taken:
        number += 1
        free = f"{name}_{number}"
    return free
