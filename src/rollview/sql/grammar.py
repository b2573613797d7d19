"""The part of Spark SQL that can be maintained: a list of constructs; everything else is refused.

The parser accepts far more than we translate, and silently keeps what it does not know as one more
argument of a node. So the whole tree is checked before anything is translated: every node must be of a
class listed here and may carry only the arguments listed for it. Nothing can be ignored by accident.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlglot import exp

from rollview.sql.cast import check_cast
from rollview.sql.dialect import DIALECT
from rollview.sql.errors import NodeError, beyond, refusal
from rollview.sql.functions import FUNCTIONS, IGNORED, unstable_hint
from rollview.sql.names.ctes import is_recursive
from rollview.sql.tree import is_parenthesised

_BINARY = ("this", "expression")

Syntax = Mapping[type[exp.Expr], tuple[str, ...]]
"""Nodes of the syntax tree, and the arguments that each may carry."""

SCALARS: Syntax = {
    # Names and constants.
    exp.Column: ("this", "table", "db", "catalog"),
    exp.Identifier: ("this", "quoted"),
    exp.Star: ("except_",),
    exp.Literal: ("this", "is_string"),
    exp.Boolean: ("this",),
    exp.Null: (),
    # 1.5D, 3L and DATE '2024-01-31' arrive as casts of constants.
    **dict.fromkeys((exp.Cast, exp.TryCast), ("this", "to")),
    exp.DataType: ("this", "nested", "expressions"),
    exp.DataTypeParam: ("this",),
    exp.Interval: ("this", "unit"),
    exp.Var: ("this",),
    # Operators.
    **dict.fromkeys((exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE), _BINARY),
    **dict.fromkeys((exp.NullSafeEQ, exp.NullSafeNEQ, exp.And, exp.Or), _BINARY),
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul, exp.Mod), _BINARY),
    # Our own expressions decide about a zero divisor: an error, as in ANSI mode.
    exp.Div: (*_BINARY, "typed", "safe"),
    exp.DPipe: (*_BINARY, "safe"),
    **dict.fromkeys((exp.Neg, exp.Paren), ("this",)),
    exp.Is: (*_BINARY, "negate"),
    exp.In: ("this", "expressions"),
    exp.Between: ("this", "low", "high"),
    exp.Like: (*_BINARY, "negate"),
    # Functions.
    exp.Case: ("this", "ifs", "default"),
    exp.If: ("this", "true", "false"),
    exp.Nullif: _BINARY,
    exp.Trim: ("this", "position"),
    exp.Extract: _BINARY,
    exp.TimestampTrunc: ("this", "unit"),
    exp.TsOrDsToDate: ("this", "safe"),
    **{kind: (*arguments, *IGNORED.get(kind, ())) for kind, (_, arguments) in FUNCTIONS.items()},
}
"""Scalar expressions that rollview reads itself; the operators add what belongs to queries."""

LAYERS: Syntax = {
    exp.Select: ("distinct", "having", "order", "limit", "offset", "windows"),
    **dict.fromkeys(
        (exp.Union, exp.Intersect, exp.Except), (*_BINARY, "distinct", "order", "limit", "offset")
    ),
    exp.Distinct: ("expressions",),
    exp.Having: ("this",),
    exp.Order: ("expressions",),
    exp.Ordered: ("this", "desc", "nulls_first"),
    exp.Limit: ("expression",),
    exp.Offset: ("expression",),
    exp.Exists: ("this",),
    exp.Group: ("rollup", "cube", "grouping_sets"),
    **dict.fromkeys((exp.Rollup, exp.Cube, exp.GroupingSets), ("expressions",)),
    exp.Tuple: ("expressions",),
    exp.In: ("query",),
    exp.Table: ("pivots",),
    exp.Subquery: ("pivots",),
    exp.Pivot: (
        *("expressions", "fields", "unpivot", "include_nulls", "alias", "columns"),
        *("identify_pivot_strings", "prefixed_pivot_columns", "pivot_column_naming", "value_columns_first"),
    ),
    exp.PivotAlias: ("this", "alias"),
}
"""Constructs that passes resolve before an operator sees them (`rollview.sql.passes`)."""

_CLAUSES = {
    "order": "ORDER BY",
    "limit": "LIMIT",
    "offset": "OFFSET",
    "qualify": "QUALIFY",
    "windows": "WINDOW",
    "sample": "TABLESAMPLE",
    "locks": "FOR UPDATE",
    "into": "SELECT INTO",
    "version": "VERSION AS OF",
    "when": "TIMESTAMP AS OF",
    "columns": "a list of column aliases after a relation",
    "by_name": "UNION BY NAME",
    "totals": "WITH TOTALS",
    "symmetric": "BETWEEN SYMMETRIC",
    "format": "a format of dates",
}
_CONSTRUCTS: dict[type[exp.Expr], str] = {
    exp.Window: "a window function (OVER)",
    exp.Filter: "FILTER after an aggregate",
    exp.Values: "VALUES",
    exp.Lateral: "LATERAL",
    exp.Tuple: "a row value",
    exp.Collate: "COLLATE",
    exp.Escape: "ESCAPE after LIKE",
    exp.ILike: "ILIKE",
    exp.RegexpLike: "RLIKE",
    exp.IntDiv: "the operator DIV",
    exp.QueryTransform: "TRANSFORM",
}


def whole_syntax(parts: Iterable[Syntax]) -> Syntax:
    """The grammar of scalar expressions and of these parts, all arguments of a node taken together."""
    whole: dict[type[exp.Expr], tuple[str, ...]] = dict(SCALARS)
    for kind, arguments in (entry for part in (LAYERS, *parts) for entry in part.items()):
        whole[kind] = (*whole.get(kind, ()), *arguments)
    return whole


def check_supported(query: exp.Expr, syntax: Syntax) -> None:
    """Refuses the first construct that is not listed, if there is one."""
    for node in query.walk(bfs=False, prune=is_recursive):
        if is_recursive(node):
            check_stable(node)
            continue
        if isinstance(node, exp.Subquery) and node.alias:
            _check_alias(node)
        if isinstance(node, exp.Cast):
            check_cast(node)
        if _passes_to_spark(node):
            continue
        allowed = syntax.get(type(node))
        if allowed is None:
            raise _refused(node)
        if isinstance(node, exp.Join):
            _check_join(node)
        for name, value in node.args.items():
            if name == "joins" and is_parenthesised(node):
                continue
            if value and name not in allowed:
                raise _refused_argument(node, name, value)


def check_stable(query: exp.Expr) -> None:
    """Refuses what gives another answer each time, in a query that is left to Spark as it is."""
    for node in query.walk(bfs=False):
        if hint := unstable_hint(_function_name(node)):
            raise refusal(node, _construct(node), hint=hint)
        if isinstance(node, exp.TableSample | exp.QueryTransform):
            raise refusal(node, _construct(node))


def is_read(node: exp.Expr) -> bool:
    """Whether a scalar construct is one that rollview reads itself, used in a way that it knows."""
    allowed = SCALARS.get(type(node))
    return allowed is not None and not any(value and name not in allowed for name, value in node.args.items())


def _passes_to_spark(node: exp.Expr) -> bool:
    """Whether a node is part of a scalar or aggregate expression that Spark is left to understand."""
    if isinstance(node, exp.Query | exp.Window | exp.Lateral | exp.Collate):
        return False
    if isinstance(node, exp.UDTF):
        # As an item of FROM they are tables, which nobody captures.
        return not isinstance(node.parent, exp.From | exp.Join | exp.Table)
    if unstable_hint(_function_name(node)):
        return False
    if isinstance(node, exp.Func) and isinstance(node.parent, exp.Table):
        return False
    return isinstance(node, (exp.Func, *_PASSED_KINDS))


_PASSED_KINDS = (
    *(exp.Condition, exp.DataType, exp.DataTypeParam, exp.Interval, exp.IntervalSpan, exp.Var),
    *(exp.Lambda, exp.Kwarg, exp.Identifier, exp.Filter, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls),
)
"""Of which all arguments may be given; queries inside of them are checked for themselves."""


def _check_alias(node: exp.Subquery) -> None:
    if is_parenthesised(node):
        raise beyond(node.args["alias"], "an alias of joined relations")
    if not isinstance(node.parent, exp.From | exp.Join):
        raise refusal(node.args["alias"], "an alias of a query inside parentheses")


def _check_join(join: exp.Join) -> None:
    words = [str(join.args.get(part) or "") for part in ("method", "side", "kind")]
    if words[0] not in ("", "NATURAL") or words[2] not in ("", "INNER", "CROSS", "OUTER", "SEMI", "ANTI"):
        kind = " ".join(word for word in words if word)
        raise refusal(join, f"{kind} JOIN")


def _refused_argument(node: exp.Expr, name: str, value: object) -> NodeError:
    parts = value if isinstance(value, list) else [value]
    at = next((part for part in parts if isinstance(part, exp.Expr)), node)
    if isinstance(node, exp.Count) and name == "expressions":
        return refusal(node, "COUNT of several arguments")
    construct = _CLAUSES.get(name, f"{name.strip('_').upper()} in {type(node).__name__.upper()}")
    return refusal(at, construct)


def _refused(node: exp.Expr) -> NodeError:
    # The first words of a set operation are its left side; the right side is nearer to the operator.
    at = node.expression if isinstance(node, exp.SetOperation) else node
    if isinstance(node, exp.Collate):
        return beyond(node, _construct(node))
    return refusal(at, _construct(node), hint=unstable_hint(_function_name(node)))


def _construct(node: exp.Expr) -> str:
    """The name of the node for users."""
    if isinstance(node, exp.Distinct) and isinstance(node.parent, exp.AggFunc):
        return f"{node.parent.sql_name()}(DISTINCT)"
    if type(node) in _CONSTRUCTS:
        return _CONSTRUCTS[type(node)]
    if isinstance(node, exp.Func):
        name = _function_name(node)
        kind = "aggregate function" if isinstance(node, exp.AggFunc) else "function"
        return f"the {'table function' if isinstance(node.parent, exp.Table) else kind} {name}"
    sql = node.sql(dialect=DIALECT)
    return f"`{sql if len(sql) <= 60 else sql[:57] + '...'}`"


def _function_name(node: exp.Expr) -> str:
    """The name of a function; empty for what is none."""
    if isinstance(node, exp.Anonymous):
        return node.name
    return node.sql_name() if isinstance(node, exp.Func) else ""
