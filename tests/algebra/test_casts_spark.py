"""Differential: every value cast to every type, by us and by Spark; edge cases and nearly-right texts.

Spark's `try_cast` is NULL just where its cast is an error, so that one job finds values and errors.
"""

from __future__ import annotations

import math
import re
from datetime import date, datetime
from decimal import Decimal
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession
from spark_values import computed, frame, same

from rollview.algebra.expression import cast_to
from rollview.errors import EvaluationError
from rollview.lab.memory.functions import function_named

TYPES = [
    *("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "STRING", "BOOLEAN", "DATE", "TIMESTAMP"),
    *("DECIMAL(5,2)", "DECIMAL(38,6)", "DECIMAL(10,0)", "DECIMAL(2,2)"),
]
NUMBERS = [0, 1, -1, 127, 128, -129, 32768, 2**31 - 1, 2**31, -(2**31) - 1, 2**63 - 1, -(2**63), 99999, 999]
DOUBLES = [
    *(0.0, -0.0, 0.5, -0.5, 127.9, 128.0, -128.9, 2147483647.9, 2147483648.0, 9.3e18, 2.0**63, -(2.0**63)),
    *(
        1.005,
        999.994,
        999.995,
        999.996,
        0.001,
        0.00099,
        1e7,
        9999999.0,
        1.5e-10,
        123456.789,
        0.1,
        3.25,
        1e300,
    ),
    *(math.inf, -math.inf, math.nan),
]
DECIMALS = [
    "0",
    "0.5",
    "-0.005",
    "0.015",
    "999.994",
    "999.995",
    "-999.995",
    "127.9",
    "128",
    "1e12",
    "-1.5",
    "0.000001",
    "0.994",
    "0.995",
    "0.99",
]
TEXTS = [
    *("", " ", "0", "1", "-1", "+5", " 12 ", "1.5", "1.", ".5", "1e3", "1E-2", "12L", "1.5d", "1.5F", "0x10"),
    *(
        "inf",
        "-Infinity",
        "+inf",
        "nan",
        "NaN",
        "+nan",
        "true",
        " T ",
        "yes",
        "no",
        "N",
        "on",
        "1.005",
        "999.995",
    ),
    *(
        "2024",
        "2024-1",
        "2024-1-5",
        "2024-01-05 xx",
        "2024-01-05T",
        "2024-01-05x",
        "20240105",
        "24-01-05",
        "٣",
    ),
    *(
        "2024-02-30",
        "2024-01-05 10",
        "2024-01-05 10:11",
        "2024-01-05 10:11:12.",
        "2024-01-05T1:1:2.5",
        "1_000",
    ),
    *("2024-01-05 10:11:12.1234567", "2024-01-05 10:11:12Z", "2024-01-05 10:11:12 UTC", "02024-01-05", "300"),
    *("2024-01-05 10:11:12-2", "2024-01-05 10:11:12+0230", "2024-01-05 10:11+02:30", "2024-01-05 25:11:12"),
    *("2024-01-05 10:11:60", "\t2024-01-05\n", "2024-01-05  10:11:12", "+2024-01-05", "99999999999999999999"),
    *("2024-01-05 10:11:12+02:00", "40000"),
]
INPUTS: dict[str, list[Any]] = {
    "bigint": NUMBERS,
    "double": DOUBLES,
    "decimal(24,6)": [Decimal(text).quantize(Decimal("0.000001")) for text in DECIMALS],
    "boolean": [True, False],
    "date": [date(2024, 2, 29), date(1, 1, 1), date(9999, 12, 31), date(1969, 7, 20)],
    "timestamp": [
        *(
            datetime(1970, 1, 1),
            datetime(1969, 12, 31, 23, 59, 59, 500_000),
            datetime(2024, 2, 29, 12, 30, 1),
        ),
        *(datetime(2024, 2, 29, 12, 30, 1, 120_000), datetime(1900, 1, 1), datetime(1970, 1, 1, 0, 0, 0, 1)),
    ],
    "string": TEXTS,
}
FORBIDDEN = {
    "bigint": {"DATE"},
    "double": {"DATE"},
    "decimal(24,6)": {"DATE"},
    "boolean": {"DATE", "TIMESTAMP"},
    "date": {"TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "BOOLEAN", "DECIMAL"},
    "timestamp": {"BOOLEAN"},
}
"""Casts that ANSI mode has not got at all."""


def nearly_right(count: int) -> list[str]:
    """Texts with a letter or two changed, added or lost."""
    random = Random(5)
    made = []
    for _ in range(count):
        letters = list(random.choice(TEXTS))
        for _ in range(random.randint(1, 2)):
            place = random.randint(0, len(letters))
            letters[place : place + random.randint(0, 1)] = random.choice(["", *"0123456789.+-eE :TZ"])
        made.append("".join(letters))
    return made


def ours_cast(kind: str, value: Any) -> Any:
    try:
        return function_named(cast_to(kind))(value)
    except EvaluationError:
        return None


def spark_cast(target: str) -> str:
    """Years that Python has not got count as errors."""
    cast = f"TRY_CAST(v AS {target})"
    return (
        f"CASE WHEN YEAR({cast}) BETWEEN 1 AND 9999 THEN {cast} END"
        if target in ("DATE", "TIMESTAMP")
        else cast
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", INPUTS)
def test_differential_casts(spark_functions: SparkSession, kind: str) -> None:
    values = [None, *INPUTS[kind], *(nearly_right(1500) if kind == "string" else [])]
    forbidden = FORBIDDEN.get(kind, set())
    targets = [target for target in TYPES if target.partition("(")[0] not in forbidden]
    source = frame(spark_functions, {"v": kind}, [(value,) for value in values])
    theirs = computed(source, [spark_cast(target) for target in targets])
    wrong = []
    for target, column in zip(targets, theirs, strict=True):
        for value, expected in zip(values, column, strict=True):
            ours = ours_cast(target, value)
            if not same(ours, expected) and not is_time_of_today(target, value):
                wrong.append((target, value, ours, expected))
    assert not wrong, "\n".join(map(repr, wrong))


def is_time_of_today(target: str, value: Any) -> bool:
    """Spark takes a time alone for today's. No view should, so we refuse it."""
    return target == "TIMESTAMP" and re.match(r"\s*T?\d{1,2}(:|\s*$)", str(value)) is not None


@pytest.mark.parametrize("kind", FORBIDDEN)
def test_casts_that_do_not_exist_are_errors(kind: str) -> None:
    for target in TYPES:
        if target.partition("(")[0] in FORBIDDEN[kind]:
            for value in INPUTS[kind]:
                with pytest.raises(EvaluationError):
                    function_named(cast_to(target))(value)
