"""Generators: functions of Spark that make several rows of one, in LATERAL VIEW or as an output."""

from __future__ import annotations

from sqlglot import exp

from rollview.sql.dialect import DIALECT
from rollview.sql.errors import refusal

_NAMES = {
    "EXPLODE": ("col",),
    "EXPLODE_OUTER": ("col",),
    "POSEXPLODE": ("pos", "col"),
    "POSEXPLODE_OUTER": ("pos", "col"),
}
_OTHERS = ("INLINE", "INLINE_OUTER", "STACK", "JSON_TUPLE")


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
    """The names of the columns of a LATERAL VIEW."""
    alias = lateral.args.get("alias")
    given = tuple(each.name for each in alias.columns) if alias is not None else ()
    if given:
        return given
    names = own_names(lateral.this)
    if not names:
        raise refusal(lateral, "LATERAL VIEW without names for its columns", hint="name them with AS")
    return names


def own_names(function: exp.Expr) -> tuple[str, ...]:
    """Spark's names for the columns of a generator; those of a struct's fields are not known here."""
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
