"""Generators: functions of Spark that make several rows of one, in LATERAL VIEW or as an output."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from rollview.sql.aliased import aliased
from rollview.sql.place import DIALECT, beyond, refusal
from rollview.sql.scope import Scope

_NAMES = {
    "EXPLODE": ("col",),
    "EXPLODE_OUTER": ("col",),
    "POSEXPLODE": ("pos", "col"),
    "POSEXPLODE_OUTER": ("pos", "col"),
}
_OTHERS = ("INLINE", "INLINE_OUTER", "STACK", "JSON_TUPLE")
_ALIAS = "_generated"


def is_generator(node: exp.Expr) -> bool:
    """Whether a node is a call of a generator."""
    return _name(node) in (*_NAMES, *_OTHERS)


def _name(node: exp.Expr) -> str:
    if isinstance(node, exp.Anonymous):
        return str(node.name).upper()
    return node.sql_name().upper() if isinstance(node, exp.Func) else ""


def spark_function(node: exp.Expr, is_outer: bool) -> str:
    """The call as SQL; after OUTER it gives a row of NULLs where it would give none."""
    sql = node.sql(dialect=DIALECT)
    if is_outer and not _name(node).endswith("_OUTER"):
        name, rest = sql.split("(", 1)
        return f"{name}_outer({rest}"
    return sql


def generated_names(lateral: exp.Lateral) -> tuple[str, ...]:
    """What the columns of a LATERAL VIEW are called."""
    alias = lateral.args.get("alias")
    given = tuple(each.name for each in alias.columns) if alias is not None else ()
    if given:
        return given
    names = _own_names(lateral.this)
    if not names:
        raise refusal(lateral, "LATERAL VIEW without names for its columns", hint="name them with AS")
    return names


def _own_names(function: exp.Expr) -> tuple[str, ...]:
    """What Spark calls the columns of a generator; those of a struct's fields are not known here."""
    name = _name(function)
    if name == "JSON_TUPLE":
        return tuple(f"c{place}" for place in range(len(_arguments(function)) - 1))
    if name == "STACK":
        rows, *values = _arguments(function)
        if not isinstance(rows, exp.Literal) or rows.is_string or not values:
            return ()
        return tuple(f"col{place}" for place in range(-(-len(values) // max(int(rows.name), 1))))
    return _NAMES.get(name, ())


def _arguments(function: exp.Expr) -> list[exp.Expr]:
    first = function.this if isinstance(function.this, exp.Expr) else None
    return [*([first] if first is not None else []), *function.expressions]


def with_generators_in_from(select: exp.Select) -> exp.Select:
    """A generator among the outputs becomes a LATERAL VIEW; the same object where there is none."""
    place = next((n for n, each in enumerate(select.expressions) if is_generator(_bare(each))), None)
    if place is None:
        return select
    select = select.copy()
    item = select.expressions[place]
    function = _bare(item)
    names = [each.name for each in item.expressions] if isinstance(item, exp.Aliases) else [item.alias]
    names = names if all(names) else list(_own_names(function))
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


def generated_first(select: exp.Select, scope: Scope) -> exp.Select:
    """Groups and windows over a SELECT with LATERAL VIEW, which is a query of its own below."""
    known: dict[str, str] = {}

    def placed(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column) and not node.is_star and (node.table or scope.names(node)):
            name = known.setdefault(node.sql(dialect=DIALECT), f"_below_{len(known) + 1}")
            return exp.column(name)
        return node

    outer = select.copy()
    items = []
    for item in outer.expressions:
        if item.is_star:
            raise beyond(item, "* with LATERAL VIEW and groups or windows", hint="name the columns")
        items.append(item if item.alias else aliased(item.copy(), item.alias_or_name, quoted=True))
    outer.set("expressions", items)
    for argument in ("expressions", "group", "having", "order", "windows"):
        _replace(outer, argument, placed)
    columns = [
        aliased(exp.maybe_parse(text, dialect=DIALECT), name, quoted=True) for text, name in known.items()
    ] or [aliased(exp.Literal.number(1), "_below_1")]
    inner = exp.Select(expressions=columns)
    for argument in ("from_", "joins", "laterals", "where"):
        inner.set(argument, outer.args.get(argument))
        outer.set(argument, None)
    below = exp.Subquery(this=inner, alias=exp.TableAlias(this=exp.to_identifier("_layer")))
    outer.set("from_", exp.From(this=below))
    return outer


def _replace(select: exp.Select, argument: str, change: Callable[[exp.Expr], exp.Expr]) -> None:
    value = select.args.get(argument)
    if isinstance(value, list):
        select.set(argument, [each.transform(change) for each in value])
    elif value is not None:
        select.set(argument, value.transform(change))
