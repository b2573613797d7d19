"""AVG of decimals from a sum and a count, with the digits and the rounding that Spark's own AVG gives.

Spark's `/` between decimals rounds to a type that may have fewer digits than AVG has. So the quotient is made
by long division in whole numbers, which lose nothing. With c the count:

    whole part       q = (t - t % c) / c                     t is the sum without its sign
    next 17 digits   a = (t % c) · 10¹⁷;  n = a div c;  r = a % c
    further digits   the same once more, from r

The digits are put together as text, one is added where twice the last remainder reaches c (half up), and the
text is cast. A count has at most 13 digits here and the argument at most 23 behind the point, so that every
product fits the 38 digits that Spark has.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal

from rollview.algebra.functions.null import Value, strict_pair

MOST_DIGITS = 23
"""Of an argument, behind the point."""

_PREFIX = "AVERAGE AS "
_ONE_STEP = 17
_ADDED_DIGITS = 4
_EXACT = Context(prec=120, rounding=ROUND_HALF_UP)


def average_of(precision: int, scale: int) -> str:
    """The name of the function that averages decimals of this type, from their sum and their number."""
    return f"{_PREFIX}DECIMAL({min(38, precision + _ADDED_DIGITS)},{min(38, scale + _ADDED_DIGITS)})"


def average_type(function: str) -> str | None:
    """The type that a function of that name gives; None for all other functions."""
    return function.removeprefix(_PREFIX) if function.startswith(_PREFIX) else None


def average_function(kind: str) -> Callable[..., Value]:
    """Sum by number, rounded once."""
    unit = Decimal(1).scaleb(-_digits(kind))
    return strict_pair(lambda total, number: _EXACT.divide(total, number).quantize(unit, context=_EXACT))


def average_sql(kind: str, total: str, number: str) -> str:
    """The same as Spark SQL."""
    digits = _digits(kind)
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


def _digits(kind: str) -> int:
    found = re.fullmatch(r"DECIMAL\((\d+),(\d+)\)", kind)
    assert found is not None, kind
    return int(found[2])
