"""Intervals, and units of time: dates plus or minus an interval, DATE_TRUNC, EXTRACT."""

from __future__ import annotations

from sqlglot import exp

from rollview.algebra.expression import Call, Expression, Literal, call
from rollview.algebra.functions import FUNCTIONS, Date, Timestamp
from rollview.errors import EvaluationError
from rollview.sql.place import mistake

_UNITS = {
    "DAY": ("PLUS DAYS", 1),
    "WEEK": ("PLUS DAYS", 7),
    "MONTH": ("PLUS MONTHS", 1),
    "YEAR": ("PLUS MONTHS", 12),
}
_TRUNCATIONS = {
    **dict.fromkeys(("YEAR", "YYYY", "YY"), "YEAR"),
    **dict.fromkeys(("MONTH", "MM", "MON"), "MONTH"),
    **dict.fromkeys(("DAY", "DD"), "DAY"),
    **{unit: unit for unit in ("QUARTER", "WEEK", "HOUR", "MINUTE", "SECOND")},
}
_PARTS = {"YEAR", "QUARTER", "MONTH", "DAY"}


def is_interval(node: exp.Expr) -> bool:
    """Whether an operand is an interval."""
    return isinstance(node.unnest() if isinstance(node, exp.Paren) else node, exp.Interval)


def is_simple_interval(node: exp.Expr) -> bool:
    """Whether an interval is a whole number of days, weeks, months or years."""
    interval = node.unnest() if isinstance(node, exp.Paren) else node
    amount, unit = interval.this, interval.args.get("unit")
    digits = amount.name if isinstance(amount, exp.Literal) else ""
    name = unit.name.upper().removesuffix("S") if isinstance(unit, exp.Var) else ""
    return name in _UNITS and digits.removeprefix("-").isdigit()


def plus_interval(value: Expression, node: exp.Expr, sign: int) -> Expression:
    """A date or timestamp plus (or with sign -1 minus) an interval; a constant date is moved at once."""
    interval = node.unnest() if isinstance(node, exp.Paren) else node
    digits = interval.this.name
    function, step = _UNITS[interval.args["unit"].name.upper().removesuffix("S")]
    if isinstance(value, Literal) and not isinstance(value.value, Date | None):
        message = f"an INTERVAL is added to {value.value!r}, which is not a date"
        raise mistake(interval, message, hint="write DATE '2024-01-31', or CAST it AS DATE")
    result = call(function, value, Literal(sign * step * int(digits)))
    try:
        return _folded(result)
    except EvaluationError as error:
        raise mistake(interval, error.message, subject=error.subject) from None


def _folded(result: Call) -> Expression:
    """The constant it is, if it is one; a timestamp moves by the session's calendar, so it stays a call."""
    value, amount = result.arguments
    if (
        not isinstance(value, Literal)
        or isinstance(value.value, Timestamp)
        or not isinstance(amount, Literal)
    ):
        return result
    return Literal(FUNCTIONS[result.function](value.value, amount.value))


def truncation_unit(node: exp.TimestampTrunc) -> str:
    """The unit of DATE_TRUNC; empty if Spark alone knows it."""
    unit = node.args["unit"]
    return _TRUNCATIONS.get(unit.name.upper(), "") if isinstance(unit, exp.Var | exp.Literal) else ""


def extracted_part(node: exp.Extract) -> str:
    """The function that EXTRACT(part FROM …) is; empty if Spark alone knows it."""
    part = node.name.upper().removesuffix("S")
    return part if part in _PARTS else ""
