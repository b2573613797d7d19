"""AVG of decimals from a sum and a count, with the digits and the rounding that Spark's own AVG gives.

**Long decimals.** Spark's `/` between decimals rounds to a type that may have fewer digits than AVG has. So
the quotient is made by long division in whole numbers, which lose nothing. With c the count:

    whole part       q = (t - t % c) / c                     t is the sum without its sign
    next 17 digits   a = (t % c) · 10¹⁷;  n = a div c;  r = a % c
    further digits   the same once more, from r

The digits are put together as text, one is added where twice the last remainder reaches c (half up), and the
text is cast. A count has at most 13 digits here and the argument at most 23 behind the point, so that every
product fits the 38 digits that Spark has.

**Short decimals.** Of up to 11 digits Spark averages the unscaled values as doubles, divides by the power of
ten, and casts (its rule DecimalAggregates, wherever an average is used). 1322.94 / 320 is 4.134187 that way:
the two divisions give 4.1341874999999995. The sum of whole numbers that Spark makes is exact up to 2⁵³, and
so is the one here; beyond, Spark's own depends on the order of rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal

from rollview.algebra.dates import Value

MOST_DIGITS = 23
"""Of an argument, behind the point."""

_LONG, _SHORT = "AVERAGE AS ", "AVERAGE OF DOUBLES AS "
_ONE_STEP = 17
_ADDED_DIGITS = 4
_DIGITS_OF_DOUBLES = 15
"""Spark averages decimals as doubles if the average has no more digits than these have for sure."""
_DIGITS_OF_COUNT = 10
"""A sum has so many digits more than what is added up."""
_EXACT = Context(prec=120, rounding=ROUND_HALF_UP)


def average_of(precision: int, scale: int) -> str:
    """The name of the function that averages decimals of this type, from their sum and their number."""
    prefix = _SHORT if precision + _ADDED_DIGITS <= _DIGITS_OF_DOUBLES else _LONG
    return f"{prefix}DECIMAL({min(38, precision + _ADDED_DIGITS)},{min(38, scale + _ADDED_DIGITS)})"


def average_type(function: str) -> str | None:
    """The type that a function of that name gives; None for all other functions."""
    prefix = next((each for each in (_LONG, _SHORT) if function.startswith(each)), None)
    return None if prefix is None else function.removeprefix(prefix)


def average_function(function: str) -> Callable[[Value, Value], Value]:
    """Sum by number, rounded as Spark rounds it; NULL of NULL."""
    digits, is_long = _digits(function), function.startswith(_LONG)
    unit, scale = Decimal(1).scaleb(-digits), digits - _ADDED_DIGITS

    def average(total: Value, number: Value) -> Value:
        if total is None or number is None:
            return None
        if is_long:
            return _EXACT.divide(total, number).quantize(unit, context=_EXACT)
        of_doubles = float(total.scaleb(scale, context=_EXACT)) / float(number) / float(10**scale)
        return Decimal(repr(of_doubles)).quantize(unit, context=_EXACT)

    return average


def average_sql(function: str, total: str, number: str) -> str:
    """The same as Spark SQL."""
    kind, digits = average_type(function), _digits(function)
    if function.startswith(_SHORT):
        scale = digits - _ADDED_DIGITS
        # As a decimal of the sum's own digits, or the product could lose some.
        sum_type = f"DECIMAL({_DIGITS_OF_DOUBLES - _ADDED_DIGITS + _DIGITS_OF_COUNT},{scale})"
        unscaled = f"CAST(CAST(CAST({total} AS {sum_type}) * {10**scale}BD AS DECIMAL(38,0)) AS DOUBLE)"
        return f"CAST({unscaled} / CAST({number} AS DOUBLE) / {float(10**scale)!r}D AS {kind})"
    first, more = min(digits, _ONE_STEP), max(digits - _ONE_STEP, 0)
    count = f"CAST({number} AS DECIMAL(13,0))"
    remainder = f"(ABS({total}) % {count})"
    whole = f"CAST(CAST((ABS({total}) - {remainder}) / {count} AS DECIMAL(32,0)) AS STRING)"
    dividend = f"({remainder} * {10**first}BD)"
    text = f"{whole}, {_padded(f'{dividend} DIV {count}', first)}"
    remainder = f"({dividend} % {count})"
    if more:
        dividend = f"({remainder} * {10**more}BD)"
        text += f", {_padded(f'{dividend} DIV {count}', more)}"
        remainder = f"({dividend} % {count})"
    rounded = f"CAST(CONCAT({text}) AS DECIMAL(38,0)) + IF({remainder} * 2 >= {count}, 1BD, 0BD)"
    sign = f"IF({total} < 0, '-', '')"
    return f"CAST(CONCAT({sign}, CAST({rounded} AS STRING), 'E-{digits}') AS {kind})"


def _padded(number: str, digits: int) -> str:
    return f"LPAD(CAST({number} AS STRING), {digits}, '0')"


def _digits(function: str) -> int:
    """Of the average, behind the point."""
    found = re.search(r"DECIMAL\((\d+),(\d+)\)$", function)
    assert found is not None, function
    return int(found[2])
