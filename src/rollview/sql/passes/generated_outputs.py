"""A generator among the outputs becomes a LATERAL VIEW."""

from __future__ import annotations

from sqlglot import exp

from rollview.algebra.relation import Table
from rollview.sql.errors import refusal
from rollview.sql.names.generators import is_generator, own_names
from rollview.sql.tree import aliased

_ALIAS = "_generated"


def with_generators_in_from(query: exp.Expr, _: tuple[Table, ...] = ()) -> exp.Expr:
    """A generator among the outputs becomes a LATERAL VIEW; the same object where there is none."""
    if not isinstance(query, exp.Select):
        return query
    place = next((n for n, each in enumerate(query.expressions) if is_generator(_bare(each))), None)
    if place is None:
        return query
    select = query.copy()
    item = select.expressions[place]
    function = _bare(item)
    names = [each.name for each in item.expressions] if isinstance(item, exp.Aliases) else [item.alias]
    names = names if all(names) else list(own_names(function))
    if not names:
        raise refusal(function, "a generator without names for its columns", hint="name them with AS")
    columns = [exp.column(exp.to_identifier(name, quoted=True), _ALIAS) for name in names]
    items = list(select.expressions)
    items[place : place + 1] = [
        aliased(each, name, quoted=True) for each, name in zip(columns, names, strict=True)
    ]
    alias = exp.TableAlias(
        this=exp.to_identifier(_ALIAS), columns=[exp.to_identifier(each) for each in names]
    )
    lateral = exp.Lateral(this=function.copy(), view=True, alias=alias)
    select.set("expressions", items)
    select.set("laterals", [*(select.args.get("laterals") or []), lateral])
    return select


def _bare(item: exp.Expr) -> exp.Expr:
    inner: exp.Expr = item.this if isinstance(item, exp.Alias | exp.Aliases) else item
    return inner
