"""All functions by name."""

from __future__ import annotations

import operator
from collections.abc import Callable

from rollview.algebra.functions import arithmetic, dates, text
from rollview.algebra.functions.averages import average_function, average_type
from rollview.algebra.functions.casts import cast_function, cast_type
from rollview.algebra.functions.comparison import COMPARISONS
from rollview.algebra.functions.null import Value, strict, strict_pair, strict_single

FUNCTIONS: dict[str, Callable[..., Value]] = {
    **COMPARISONS,
    **arithmetic.OPERATORS,
    "NEGATIVE": strict_single(operator.neg),
    "ABS": strict_single(abs),
    "ROUND": strict(arithmetic.rounded),
    "FLOOR": strict_single(arithmetic.floor),
    "CEIL": strict_single(arithmetic.ceiling),
    "NOT": strict_single(operator.not_),
    "IS NULL": lambda value: value is None,
    "LEAST": lambda *values: min((value for value in values if value is not None), default=None),
    "GREATEST": lambda *values: max((value for value in values if value is not None), default=None),
    "||": strict(text.concatenated),
    "LIKE": strict_pair(text.like),
    "UPPER": text.on_text(str.upper),
    "LOWER": text.on_text(str.lower),
    "LENGTH": text.on_text(len),
    "TRIM": text.on_text(text.trim),
    "LTRIM": text.on_text(text.trim_left),
    "RTRIM": text.on_text(text.trim_right),
    "SUBSTRING": strict(text.substring),
    "YEAR": strict_single(lambda value: dates.to_date(value).year),
    "QUARTER": strict_single(lambda value: (dates.to_date(value).month + 2) // 3),
    "MONTH": strict_single(lambda value: dates.to_date(value).month),
    "DAY": strict_single(lambda value: dates.to_date(value).day),
    "DATE_TRUNC": strict_pair(dates.truncated),
    "DATE_ADD": strict_pair(dates.date_add),
    "DATEDIFF": strict_pair(dates.date_difference),
    "PLUS DAYS": strict_pair(dates.plus_days),
    "PLUS MONTHS": strict_pair(dates.plus_months),
}


def function_named(name: str) -> Callable[..., Value]:
    """The function of that name; `CAST AS type` is the cast to that type, `AVERAGE AS type` an average."""
    if (kind := cast_type(name)) is not None:
        return cast_function(kind)
    return average_function(kind) if (kind := average_type(name)) is not None else FUNCTIONS[name]
