"""Differential: every function and constant, computed by us and by Spark, must agree.

An expression is written in SQL (`fixtures/expressions.sql`) and goes three ways: Spark computes the text as
it was written, Spark computes what `to_sql` makes of the translated expression, and the compiled expression
is applied in Python. Rows are edge cases and random ones; one job computes all expressions.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from spark_values import computed, frame, same

from rollview.algebra.averages import average_of
from rollview.algebra.expression import Column, call, rename, to_sql
from rollview.algebra.relation import Table
from rollview.lab.memory.compiled import compile_expression
from rollview.lab.memory.functions import FUNCTIONS
from rollview.operators.aggregate import Aggregate
from rollview.planning import parse_view

COLUMNS = {
    "n": "int",
    "b": "bigint",
    "d": "double",
    "m": "decimal(15,2)",
    "s": "string",
    "flag": "boolean",
    "dt": "date",
    "ts": "timestamp",
}
EDGES: list[tuple[Any, ...]] = [
    (None,) * len(COLUMNS),
    (0, 0, 0.0, Decimal("0.00"), "", False, date(1970, 1, 1), datetime(1970, 1, 1)),
    (1, -1, 0.5, Decimal("0.05"), "a", True, date(2024, 2, 29), datetime(2024, 2, 29, 23, 59, 59, 999999)),
    (-1, 7, -2.5, Decimal("-0.07"), " ab% ", True, date(1999, 12, 31), datetime(1969, 12, 31, 23, 59, 59, 5)),
    (25, 10**15, 0.07, Decimal("0.07"), "aXb_c", False, date(2000, 1, 31), datetime(2000, 1, 31, 1, 2, 3)),
    (99999, -(10**15), 1e20, Decimal("99999999.99"), "it's\\n", None, date(1, 1, 31), datetime(1, 1, 1)),
    (-25, 3, 2.5, Decimal("-2.50"), "Straße äÖ😀", True, date(9998, 1, 31), datetime(2024, 5, 6, 12, 30)),
    (5, 5, 5.0, Decimal("5.00"), "5", True, date(2024, 1, 31), datetime(2024, 1, 31)),
]
EXPRESSIONS = [
    line
    for line in (Path(__file__).parent / "fixtures" / "expressions.sql").read_text("utf-8").splitlines()
    if not line.startswith("--")
]


def rows() -> list[tuple[Any, ...]]:
    """Edge cases and random rows, each value NULL now and then."""
    random = Random(11)
    made = list(EDGES)
    for _ in range(60):
        row = (
            random.randint(-30, 30),
            random.choice((random.randint(-9, 9), random.randint(-(10**14), 10**14))),
            random.choice(
                (random.randint(-40, 40) / 8, random.uniform(-1e6, 1e6), random.randint(0, 99) / 100)
            ),
            Decimal(random.randint(-(10**6), 10**6)).scaleb(-2),
            "".join(random.choice("aAb X%_é.") for _ in range(random.randint(0, 6))),
            random.random() < 0.5,
            date.fromordinal(random.randint(700_000, 740_000)),
            datetime(1980, 1, 1) + timedelta(microseconds=random.randint(0, 2 * 10**15)),
        )
        made.append(tuple(None if random.random() < 0.06 else value for value in row))
    return made


@pytest.mark.slow
def test_differential_expressions(spark_functions: SparkSession) -> None:
    table, values = Table("t", "t", tuple(COLUMNS)), rows()
    source = frame(spark_functions, COLUMNS, values)
    expressions = []
    for text in EXPRESSIONS:
        ((_, output),) = parse_view(f"SELECT {text} AS x FROM t.t", [table]).blocks[0].projection
        expressions.append(rename(output, lambda name: name.removeprefix("t.")))
    written = computed(source, EXPRESSIONS)
    rendered = computed(source, [to_sql(expression) for expression in expressions])
    wrong = []
    for text, expression, by_text, by_sql in zip(EXPRESSIONS, expressions, written, rendered, strict=True):
        compiled = compile_expression(expression, tuple(COLUMNS))
        for row, expected, again in zip(values, by_text, by_sql, strict=True):
            ours = compiled(row)
            if not same(again, expected) or not same(ours, expected):
                wrong.append((text, to_sql(expression), row, ours, again, expected))
    assert not wrong, "\n".join(map(repr, wrong))


@pytest.mark.slow
def test_differential_precedence(spark_functions: SparkSession) -> None:
    """Operators one after the other without parentheses: what belongs together is Spark's decision."""
    random = Random(7)
    columns = {"p": "boolean", "q": "boolean", "r": "boolean", "i": "int", "j": "int"}
    values = [
        (*(random.choice((True, False, None)) for _ in range(3)), random.randint(0, 9), random.randint(1, 5))
        for _ in range(40)
    ]
    texts = [_condition(random) for _ in range(200)] + [_sum(random) for _ in range(100)]
    table = Table("t", "t", tuple(columns))
    source = frame(spark_functions, columns, values)
    translated = []
    for text in texts:
        ((_, output),) = parse_view(f"SELECT {text} AS x FROM t.t", [table]).blocks[0].projection
        translated.append(rename(output, lambda name: name.removeprefix("t.")))
    written = computed(source, texts)
    rendered = computed(source, [to_sql(expression) for expression in translated])
    for text, expression, by_text, by_sql in zip(texts, translated, written, rendered, strict=True):
        assert by_text == by_sql, (text, to_sql(expression))
        if "||" not in text:
            compiled = compile_expression(expression, tuple(columns))
            assert [compiled(row) for row in values] == by_text, text


DECIMALS = [
    *(f"{digits},{digits * 2 // 5}" for digits in range(1, 13)),
    "3,3",
    "11,0",
    "11,11",
    "10,2",
    "15,2",
    "28,10",
    "34,4",
    "38,0",
    "38,10",
    "38,18",
    "38,23",
    "20,20",
]
_PREDICATES = (
    *("", "", " IN (TRUE)", " NOT IN (FALSE, NULL)", " BETWEEN p AND TRUE", " NOT BETWEEN FALSE AND q = r"),
    *(" IS NULL", " IS NOT NULL", " IS TRUE", " IS NOT FALSE", " IS DISTINCT FROM q = r"),
)


def _condition(random: Random) -> str:
    """Conditions over booleans; a predicate can end only a whole one."""
    parts = []
    for _ in range(random.randint(1, 3)):
        atoms = [random.choice(("p", "q", "r", "TRUE")) for _ in range(random.randint(1, 4))]
        text = atoms[0]
        for atom in atoms[1:]:
            text += f" {random.choice(('=', '<>', '<', '<=', '>', '>=', '<=>'))} {atom}"
        text += random.choice(_PREDICATES)
        parts.append(random.choice(("", "", "NOT ")) + text)
    text = parts[0]
    for part in parts[1:]:
        text += f" {random.choice(('AND', 'OR'))} {part}"
    return text


def _sum(random: Random) -> str:
    """Arithmetic and concatenation; what is concatenated can be read as a number again."""
    text = random.choice(("i", "j", "-i"))
    for _ in range(random.randint(1, 4)):
        text += f" {random.choice(('+', '-', '*', '%', '||', '||'))} {random.choice(('j', '2', '3'))}"
    return text


@pytest.mark.slow
@pytest.mark.parametrize("kind", DECIMALS)
def test_averages_have_sparks_digits(spark_functions: SparkSession, kind: str) -> None:
    """Sums and counts as they are stored; values with many digits, and such whose average is a tie."""
    random = Random(kind)
    precision, scale = map(int, kind.split(","))
    largest = 10 ** min(precision, 24)
    values = [
        (group, None if random.random() < 0.1 else Decimal(number).scaleb(-scale))
        for group in range(60)
        for number in [
            random.choice((random.randrange(1 - largest, largest), random.randint(-9, 9)))
            for _ in range(random.choice((1, 2, 3, 7, 8, 16, 32, 64, 320)))
        ]
    ]
    source = frame(spark_functions, {"g": "int", "x": f"decimal({kind})"}, values)
    sums = source.groupBy("g").agg(
        f.expr("avg(x) AS a"), f.expr("sum(x) AS t"), f.expr("count(x) AS n"), f.expr("min(_row) AS _row")
    )
    average = call(average_of(precision, scale), Column("t"), Column("n"))
    sql = f"IF(n = 0, NULL, {to_sql(average)})"
    native, ours, totals, counts = computed(sums, ["a", sql, "t", "n"])
    assert native == ours
    compiled = compile_expression(average, ("t", "n"))
    assert [compiled(row) if row[1] else None for row in zip(totals, counts, strict=True)] == native


@pytest.mark.slow
def test_averages_of_decimals_are_sparks_own(spark_functions: SparkSession) -> None:
    table = Table("t", "t", tuple(COLUMNS), types=tuple(COLUMNS.values()))
    root = parse_view("SELECT avg(m) AS a FROM t.t", [table]).root
    assert isinstance(root, Aggregate)
    source = frame(spark_functions, COLUMNS, rows()).selectExpr("m", "_row % 7 AS g")
    # Counts and sums come out of deltas as wider types than Spark's own sums have.
    sums = source.groupBy("g").agg(
        f.expr("avg(m) AS a"),
        f.expr("CAST(sum(m) AS DECIMAL(38,2)) AS sum_1"),
        f.expr("count(m) AS count_1"),
        f.expr("CAST(g AS INT) AS _row"),
    )
    average = to_sql(root.output[0][1])
    native, ours, kind = computed(sums, ["a", average, f"typeof({average})"])
    assert native == ours
    assert set(kind) == {"decimal(19,6)"}


def test_every_function_is_compared() -> None:
    table = Table("t", "t", tuple(COLUMNS))
    used = {
        word
        for text in EXPRESSIONS
        for word in _functions(parse_view(f"SELECT {text} AS x FROM t.t", [table]).blocks[0].projection[0][1])
    }
    assert set(FUNCTIONS) - used == set()


def _functions(expression: Any) -> set[str]:
    inner = getattr(expression, "arguments", ())
    return {expression.function, *(name for part in inner for name in _functions(part))} if inner else set()
