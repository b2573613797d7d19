"""Which of the parser's functions become which of ours, and from which of their arguments.

All of these depend on their arguments alone. A function that depends on anything else (a clock, chance, the
session) cannot be maintained: the same rows would give another view whenever they are looked at.
"""

from __future__ import annotations

from sqlglot import exp

from rollview.sql.spark_functions import REFUSED

_ONE, _TWO, _MANY = ("this",), ("this", "expression"), ("this", "expressions")

FUNCTIONS: dict[type[exp.Expr], tuple[str, tuple[str, ...]]] = {
    exp.Not: ("NOT", _ONE),
    exp.Abs: ("ABS", _ONE),
    exp.Round: ("ROUND", ("this", "decimals")),
    exp.Floor: ("FLOOR", _ONE),
    exp.Ceil: ("CEIL", _ONE),
    exp.Coalesce: ("COALESCE", _MANY),
    exp.Least: ("LEAST", _MANY),
    exp.Greatest: ("GREATEST", _MANY),
    exp.Concat: ("||", ("expressions",)),
    exp.Upper: ("UPPER", _ONE),
    exp.Lower: ("LOWER", _ONE),
    exp.Length: ("LENGTH", _ONE),
    exp.Substring: ("SUBSTRING", ("this", "start", "length")),
    exp.Year: ("YEAR", _ONE),
    exp.Quarter: ("QUARTER", _ONE),
    exp.Month: ("MONTH", _ONE),
    exp.Day: ("DAY", _ONE),
    exp.DayOfMonth: ("DAY", _ONE),
    exp.TsOrDsAdd: ("DATE_ADD", _TWO),
    exp.DateDiff: ("DATEDIFF", _TWO),
}

IGNORED: dict[type[exp.Expr], tuple[str, ...]] = {
    # These repeat what is so in Spark anyway.
    exp.Coalesce: ("is_nvl",),
    exp.Least: ("ignore_nulls",),
    exp.Greatest: ("ignore_nulls",),
    exp.Concat: ("safe",),
    exp.TsOrDsAdd: ("unit",),
}

BOOLEAN = {"=", "<>", "<", "<=", ">", ">=", "<=>", "AND", "OR", "NOT", "IS NULL", "IN", "LIKE"}
"""Functions of ours whose value is a condition."""

OF_THEIR_ARGUMENTS = {"IF", "COALESCE", "LEAST", "GREATEST"}
"""Functions of ours whose value is a condition if their arguments are."""


def unstable_hint(name: str) -> str:
    """Why a function cannot be in a view, if it is one that is refused; empty if it is not."""
    reason = REFUSED.get(name.lower(), "")
    return f"{reason}; use a column, or apply it when the view is read" if reason else ""


def function_name(node: exp.Expr) -> str:
    """The name of a function; empty for what is none."""
    if isinstance(node, exp.Filter | exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls):
        return function_name(node.this)
    if isinstance(node, exp.Anonymous | exp.AnonymousAggFunc):
        return node.name
    return node.sql_name() if isinstance(node, exp.Func) else ""


def is_aggregate(node: exp.Expr) -> bool:
    """An aggregate function, or one with FILTER or WITHIN GROUP behind it."""
    if isinstance(node, exp.Filter | exp.WithinGroup):
        return is_aggregate(node.this)
    if isinstance(node, exp.Anonymous):
        return node.name.upper() in _AGGREGATES
    if isinstance(node, exp.Any):
        # ANY(condition), not `x = ANY (SELECT …)` nor LIKE ANY (…).
        return not isinstance(node.parent, exp.Binary) and not isinstance(node.this, exp.Query | exp.Tuple)
    if isinstance(node, exp.FirstValue | exp.LastValue):
        around = node.parent
        while isinstance(around, exp.IgnoreNulls | exp.RespectNulls | exp.Filter):
            around = around.parent
        return not isinstance(around, exp.Window)
    return isinstance(node, exp.AggFunc) and not isinstance(node, _RANKING)


_RANKING = (
    *(exp.RowNumber, exp.Rank, exp.DenseRank, exp.PercentRank, exp.CumeDist, exp.Ntile),
    *(exp.Lag, exp.Lead, exp.NthValue, exp.FirstValue, exp.LastValue),
)
"""Functions that need a window."""

_AGGREGATES = {
    *(f"KLL_{what}_AGG_{kind}" for what in ("SKETCH", "MERGE") for kind in ("BIGINT", "FLOAT", "DOUBLE")),
    *(f"THETA_{what}_AGG" for what in ("SKETCH", "UNION", "INTERSECTION")),
    *(
        f"TUPLE_{what}_AGG_{kind}"
        for what in ("SKETCH", "UNION", "INTERSECTION")
        for kind in ("DOUBLE", "INTEGER")
    ),
    "BITMAP_AND_AGG",
    "ANY",
    "SOME",
    "LISTAGG",
    "STRING_AGG",
    "MAX_BY",
    "MIN_BY",
    "PERCENTILE_CONT",
    "PERCENTILE_DISC",
    "BITMAP_OR_AGG",
    "BITMAP_CONSTRUCT_AGG",
    "COUNT_MIN_SKETCH",
    "HISTOGRAM_NUMERIC",
    "HLL_SKETCH_AGG",
    "HLL_UNION_AGG",
    "REGR_AVGX",
    "REGR_AVGY",
    "REGR_COUNT",
    "REGR_INTERCEPT",
    "REGR_R2",
    "REGR_SLOPE",
    "REGR_SXX",
    "REGR_SXY",
    "REGR_SYY",
    "SCHEMA_OF_JSON_AGG",
    "TRY_AVG",
    "TRY_SUM",
}
