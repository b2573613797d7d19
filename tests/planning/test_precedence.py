"""Operators bind as Spark has them: with our parentheses, an expression has the same value."""

from __future__ import annotations

from random import Random

import pytest
import sqlglot
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from sqlglot import exp

from rollview.sql.dialect import DIALECT
from servers.spark import shared_session

NUMBERS = ("1", "2", "3", "5", "6", "7", "-4", "~2", "+ 3", "- 9")
OPERATORS = ("|", "&", "^", "<<", ">>", ">>>", "+", "-", "*", "DIV", "%", "||")
COMPARISONS = ("=", "<", ">=", "<>", "<=>", "==", "!=", ">")
PREDICATES = ("IN (3, 6)", "NOT IN (1, 5)", "BETWEEN 2 AND 6", "IS NULL", "IS NOT NULL", "LIKE '3%'")


def _value(chance: Random) -> str:
    parts = [chance.choice(NUMBERS)]
    for _ in range(chance.randint(1, 4)):
        parts += [chance.choice(OPERATORS), chance.choice(NUMBERS)]
    return " ".join(parts)


def _condition(chance: Random) -> str:
    value = _value(chance)
    if chance.random() < 0.5:
        value += f" {chance.choice(COMPARISONS)} {_value(chance)}"
    if chance.random() < 0.4:
        value += f" {chance.choice(PREDICATES)}"
    return f"{chance.choice(('', '', 'NOT ', '! '))}{value}"


def _expression(chance: Random) -> str:
    if chance.random() < 0.5:
        return _value(chance)
    parts = [_condition(chance)]
    for _ in range(chance.randint(0, 2)):
        parts += [chance.choice(("AND", "OR")), _condition(chance)]
    return " ".join(parts)


def _in_parentheses(sql: str) -> str:
    """The expression as we read it, with nothing left to precedence."""
    tree = sqlglot.parse_one(f"SELECT {sql}", dialect=DIALECT).expressions[0]
    kinds = (exp.Binary, exp.Not, exp.Between, exp.In, exp.Neg, exp.BitwiseNot)
    wrapped = tree.transform(lambda node: exp.Paren(this=node) if isinstance(node, kinds) else node)
    return str(wrapped.sql("spark"))


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return shared_session({})


@pytest.mark.parametrize(
    "sql", ["7 & 6 >> 1", "1 | 6 & 3", "5 ^ 3 & 1", "1 | 2 ^ 3", "-8 >>> 60 + 1", "1 << 2 | 1"]
)
def test_operators_on_bits(spark: SparkSession, sql: str) -> None:
    whole, parted = spark.sql(f"SELECT {sql}, {_in_parentheses(sql)}").collect()[0]
    assert whole == parted, _in_parentheses(sql)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_random_expressions(spark: SparkSession, seed: int) -> None:
    chance, asked = Random(seed), []
    while len(asked) < 60:
        sql = _expression(chance)
        try:
            spark.sql(f"SELECT {sql}")
        except PySparkException:
            continue  # No expression to Spark, such as a number AND another one.
        asked.append(sql)
    for sql in asked:
        tried = f"SELECT {sql}, {_in_parentheses(sql)}"
        try:
            whole, parted = spark.sql(tried).collect()[0]
        except PySparkException:
            continue  # A text of digits and a sign that is no number, or one that is too large.
        assert whole == parted, (sql, _in_parentheses(sql))
