"""Scalar expressions: three-valued logic, and the errors of ANSI mode."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Context, Decimal

import pytest

from rollview.algebra.expression import (
    TRUE,
    Call,
    Column,
    Expression,
    Literal,
    call,
    columns_of,
    conjunction,
    conjuncts,
    to_sql,
)
from rollview.errors import EvaluationError
from rollview.lab.memory.compiled import compile_expression

A, B = Column("a"), Column("b")


def value(expression: Expression, a: object = None, b: object = None) -> object:
    return compile_expression(expression, ("a", "b"))((a, b))


@pytest.mark.parametrize("left", [True, False, None])
@pytest.mark.parametrize("right", [True, False, None])
def test_three_valued_logic(left: bool | None, right: bool | None) -> None:
    false_wins = False if left is False or right is False else None if None in (left, right) else True
    true_wins = True if left is True or right is True else None if None in (left, right) else False
    assert value(call("AND", A, B), left, right) is false_wins
    assert value(call("OR", A, B), left, right) is true_wins
    assert value(call("NOT", A), left) is (None if left is None else not left)


def test_null_is_unknown() -> None:
    assert value(call("=", A, B), None, None) is None
    assert value(call("<=>", A, B), None, None) is True
    assert value(call("+", A, Literal(1)), None) is None
    assert value(call("IN", A, Literal(1), Literal(None)), 2) is None
    assert value(call("IN", A, Literal(1), Literal(None)), 1) is True
    assert value(call("COALESCE", A, Literal(7)), None) == 7
    assert [value(call("LEAST", A, B), *pair) for pair in ((2, 1), (None, 3), (None, None))] == [1, 3, None]
    assert value(call("IF", A, Literal(1), Literal(2)), None) == 2


def test_arithmetic_is_sparks() -> None:
    assert value(call("/", A, B), 7, 2) == 3.5
    assert value(call("%", A, B), -7, 3) == -1
    assert value(call("%", A, B), 7, -3) == 1
    for operator in "/%":
        with pytest.raises(EvaluationError, match="by zero"):
            value(call(operator, A, B), 1, 0)
    assert value(call("IF", call("=", B, Literal(0)), Literal(None), call("/", A, B)), 1, 0) is None


def test_true_and_one_are_different_literals() -> None:
    assert Literal(True) != Literal(1)
    assert Literal(1) != Literal(1.0)
    assert value(conjunction((TRUE, call("=", A, Literal(1)))), 1) is True


def test_literals_are_equal_only_if_their_types_are() -> None:
    """As keys of compiled code and of groups, equal literals must mean the same to Spark."""
    values = [True, 1, 1.0, Decimal("1"), Decimal("1.0"), "1", None, date(2024, 1, 1), datetime(2024, 1, 1)]
    literals = [*map(Literal, values), Literal(datetime(2024, 1, 1, tzinfo=UTC))]
    assert len(set(literals)) == len(literals)
    assert all(Literal(each.value) == each for each in literals)


def test_typed_literals_are_rendered_with_their_type() -> None:
    assert to_sql(Literal(date(99, 1, 2))) == "DATE '0099-01-02'"
    assert to_sql(Literal(datetime(2024, 1, 2, 3, 4, 5))) == "TIMESTAMP '2024-01-02 03:04:05'"
    moment = datetime(2024, 1, 2, 3, 4, 5, 500_000, tzinfo=timezone(timedelta(hours=2)))
    assert to_sql(Literal(moment)) == "TIMESTAMP '2024-01-02 03:04:05.500000+02:00'"
    assert to_sql(Literal(Decimal("1.50"))) == "1.50BD"
    assert to_sql(Literal(Decimal("1E+3"))) == "1000BD"


def test_a_moment_with_a_zone_is_compared_in_utc() -> None:
    moment = Literal(datetime(2024, 1, 2, 3, tzinfo=timezone(timedelta(hours=2))))
    assert value(call("=", A, moment), datetime(2024, 1, 2, 1)) is True
    assert value(call("<", call("PLUS DAYS", A, Literal(1)), moment), datetime(2024, 1, 1, 0)) is True
    assert value(call("=", moment, A), datetime(2024, 1, 2, 3)) is False


def test_coalesce_stops_early() -> None:
    assert value(call("COALESCE", A, call("/", A, B)), 1, 0) == 1
    assert value(call("COALESCE", A, B)) is None


def test_values_of_mixed_kinds_are_compared_as_spark_does() -> None:
    day, moment = date(2024, 1, 31), datetime(2024, 1, 31, 12)
    assert value(call("<", A, B), day, moment) is True
    assert value(call("=", A, B), day, datetime(2024, 1, 31)) is True
    assert value(call("<>", A, B), day, datetime(2024, 1, 31)) is False
    assert value(call("=", A, B), day, "2024-01-31") is True
    assert value(call("<=", A, B), 0.07, Decimal("0.07")) is True
    assert value(call("<=>", A, B), 0.07, Decimal("0.07")) is True
    assert value(call("IN", A, B, Literal(None)), 5, "5") is True
    assert value(call("IN", A, B, Literal(None)), 5, "6") is None
    with pytest.raises(EvaluationError, match="cannot be cast to BIGINT"):
        value(call("=", A, B), 5, "five")


def test_text_beside_a_number_is_a_number() -> None:
    assert value(call("+", A, B), "5", 1) == 6
    assert value(call("*", A, B), Decimal("1.5"), "2") == 3.0
    with pytest.raises(EvaluationError, match="two strings"):
        value(call("+", A, B), "1", "2")


def test_products_of_decimals_are_exact_to_38_digits() -> None:
    product = value(call("*", A, B), Decimal("1234567890123456.78"), Decimal("9876543210987654.32"))
    assert product == Decimal(123456789012345678 * 987654321098765432).scaleb(-4, Context(prec=60))


def test_a_conjunction_comes_apart_again() -> None:
    parts = (call("=", A, B), call("<", A, Literal(3)), call("IS NULL", B))
    assert conjuncts(conjunction(parts)) == parts
    assert conjuncts(TRUE) == ()
    assert list(columns_of(conjunction(parts))) == ["a", "b", "a", "b"]


def test_expressions_are_values() -> None:
    assert Column("a") is Column("a")
    assert Call("=", (A, B)) == call("=", A, B)
    assert hash(Call("=", (A, B))) == hash(call("=", A, B))


def test_a_decimal_beside_a_double_is_a_double() -> None:
    for operator, result in (("+", 4.0), ("-", 1.0), ("*", 3.75), ("/", 2.5 / 1.5)):
        assert value(call(operator, A, B), 2.5, Decimal("1.5")) == result
    assert value(call("+", A, B), Decimal("0.1"), Decimal("0.2")) == Decimal("0.3")


def test_expressions_travel_between_processes() -> None:
    """Hashes of strings differ between processes; what arrives must be found by what was made there."""
    script = (
        "import pickle, sys; from rollview.algebra.expression import *;"
        "sys.stdout.buffer.write(pickle.dumps(call('=', Column('a'), Literal('x'))))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "4711"}
    made = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, env=environment)
    arrived = pickle.loads(made.stdout)
    assert arrived in {call("=", Column("a"), Literal("x"))}


def test_sql_text() -> None:
    expression = call("AND", call("IN", A, Literal("o'x"), Literal(2)), call("NOT", call("IS NULL", B)))
    assert to_sql(expression) == "((`a` IN ('o\\'x', 2)) AND (NOT (`b` IS NULL)))"
    assert to_sql(Column("odd`name")) == "`odd``name`"
    assert to_sql(call("+", Literal(1.5), Literal(Decimal("2.5")))) == "(1.5D + 2.5BD)"
