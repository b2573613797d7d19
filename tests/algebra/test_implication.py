"""What is said to follow from conditions does follow: judged by all rows of small domains, with NULL."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from itertools import product
from random import Random
from typing import Any

import pytest

from rollview.algebra.expression import Call, Column, Expression, Literal, call
from rollview.algebra.implication import ANYTHING, Facts, truth_of
from rollview.lab.memory.compiled import compile_expression

TYPES = {"a": "bigint", "b": "bigint", "c": "int", "d": "decimal(10,1)", "t": "string", "u": "string"}
DOMAINS: dict[str, list[Any]] = {
    "a": [None, 0, 1, 2, 3, 4],
    "b": [None, 0, 1, 2, 3, 4],
    "c": [None, 1, 2, 3],
    "d": [None, Decimal("0.5"), Decimal("1.0"), Decimal("2.0"), Decimal("2.5")],
    "t": [None, "", "a", "b", "é"],
    "u": [None, "", "a", "b", "é"],
}
"""Around the constants that conditions name, on both sides of each."""
COMPARISONS = ("=", "<>", "<", "<=", ">", ">=", "<=>")


def _constant(chance: Random, column: str) -> Literal:
    if chance.random() < 0.1:
        return Literal(None)
    if column in "tu":
        return Literal(chance.choice(["a", "b"]))
    if chance.random() < 0.2:
        return Literal(chance.choice([Decimal("1.5"), Decimal("2.0"), Decimal("2.50")]))
    return Literal(chance.choice([1, 2, 3]))


def _atom(chance: Random, columns: str) -> Expression:
    column = chance.choice(columns)
    match chance.randint(0, 9):
        case 0:
            return call("IS NULL", Column(column))
        case 1:
            return call("NOT", call("IS NULL", Column(column)))
        case 2 | 3:
            constants = [_constant(chance, column) for _ in range(chance.randint(1, 3))]
            return call("IN", Column(column), *constants)
        case 4 | 5:
            alike = [each for each in columns if (each in "tu") == (column in "tu")]
            return call(chance.choice(COMPARISONS), Column(column), Column(chance.choice(alike)))
    sides = (Column(column), _constant(chance, column))
    return call(chance.choice(COMPARISONS), *(sides if chance.random() < 0.7 else sides[::-1]))


def _condition(chance: Random, columns: str, depth: int = 2) -> Expression:
    kind = chance.random() if depth else 1.0
    if kind < 0.15:
        return call("NOT", _condition(chance, columns, depth - 1))
    if kind < 0.4:
        parts = [_condition(chance, columns, depth - 1) for _ in range(2)]
        return call(chance.choice(["AND", "OR"]), *parts)
    return _atom(chance, columns)


def _rows_with(conditions: list[Expression], columns: str) -> list[tuple[Any, ...]]:
    """All rows of the domains for which all conditions are true."""
    rows = list(product(*(DOMAINS[each] for each in columns)))
    for condition in conditions:
        meets = compile_expression(condition, tuple(columns))
        rows = [row for row in rows if meets(row) is True]
    return rows


@pytest.mark.parametrize("seed", range(4))
def test_oracle_what_is_said_to_follow_holds_for_every_row(seed: int) -> None:
    chance = Random(seed)
    follows = seen = 0
    for _ in range(800):
        columns = "".join(chance.sample("abcdtu", 2 if chance.random() < 0.7 else 3))
        given = [_condition(chance, columns) for _ in range(chance.randint(1, 3))]
        wanted = _condition(chance, columns)
        rows = _rows_with(given, columns)
        holds = len(_rows_with([*given, wanted], columns)) == len(rows)
        said = Facts(frozenset(given), TYPES).implies(wanted)
        assert holds or not said, (given, wanted)
        if rows:
            follows, seen = follows + holds, seen + said
    # It finds most of what there is to find, so that a test of nothing is noticed.
    assert seen > 40 and seen > 0.45 * follows, (seen, follows)


def test_oracle_the_values_of_a_condition_are_those_for_which_it_is_true() -> None:
    chance = Random(5)
    for _ in range(1500):
        column = chance.choice("abcdtu")
        condition = _condition(chance, column)
        truth = truth_of(condition, TYPES)
        if truth is None:
            continue
        meets = compile_expression(condition, (column,))
        for value in DOMAINS[column]:
            is_value = (
                call("IS NULL", Column(column))
                if value is None
                else call("=", Column(column), Literal(value))
            )
            only = truth_of(is_value, TYPES)
            assert only is not None
            assert only.true.is_within(truth.true) is (meets((value,)) is True), (condition, value)
            assert only.true.is_within(truth.false) is (meets((value,)) is False), (condition, value)


X, Y = Column("a"), Column("b")
FOLLOWS = {
    "a higher bound": ([call(">", X, Literal(5))], call(">", X, Literal(2))),
    "whole numbers have gaps": ([call(">", X, Literal(2))], call(">=", X, Literal(3))),
    "a list within a range": ([call("IN", X, Literal(3), Literal(4))], call(">", X, Literal(2))),
    "a list that is shorter": ([call("IN", X, Literal(3))], call("IN", X, Literal(3), Literal(4))),
    "a comparison is never true of NULL": ([call("<", X, Y)], call("NOT", call("IS NULL", Y))),
    "nor is what is computed": (
        [call(">", call("+", X, Y), Literal(0))],
        call("NOT", call("IS NULL", X)),
    ),
    "equal columns have the same bounds": (
        [call("=", X, Y), call(">", Y, Literal(5))],
        call(">", X, Literal(2)),
    ),
    "equality goes on": (
        [call("=", X, Y), call("=", Y, Column("e"))],
        call("=", Column("e"), X),
    ),
    "the same constant": ([call("=", X, Literal(1)), call("=", Y, Literal(1))], call("=", X, Y)),
    "one side of an OR": ([call("=", X, Y)], call("OR", call("=", Y, X), call("<", X, Literal(0)))),
    "both sides of an OR": (
        [call("OR", call("=", X, Literal(3)), call("AND", call(">", X, Literal(7)), call("<", Y, X)))],
        call(">", X, Literal(2)),
    ),
    "what cannot be": ([call(">", X, Literal(2)), call("<", X, Literal(3))], call("=", Y, Literal(7))),
}
DOES_NOT = {
    "a lower bound": ([call(">", X, Literal(2))], call(">", X, Literal(5))),
    "NULL": ([call("IS NULL", X)], call("<>", X, Literal(1))),
    "a list with NULL is never false": (
        [call("NOT", call("IS NULL", X))],
        call("NOT", call("IN", X, Literal(1), Literal(None))),
    ),
    "text of another type": ([call("=", Column("t"), Literal(5))], call("=", Column("t"), Literal("5"))),
    "equality over a cast": (
        [call("=", Column("t"), Column("c")), call("=", Column("u"), Column("c"))],
        call("=", Column("t"), Column("u")),
    ),
    "numbers with a rounded constant": (
        [call(">", Column("f"), Literal(Decimal("0.1")))],
        call(">", Column("f"), Literal(0.1)),
    ),
    "a date as text": (
        [call("=", Column("day"), Literal("2020-01-01"))],
        call("=", Column("day"), Literal(date(2020, 1, 1))),
    ),
}
MORE = {**TYPES, "e": "bigint", "f": "double", "day": "date"}


@pytest.mark.parametrize(("given", "wanted"), FOLLOWS.values(), ids=FOLLOWS)
def test_what_follows(given: list[Call], wanted: Call) -> None:
    assert Facts(frozenset(given), MORE).implies(wanted)


@pytest.mark.parametrize(("given", "wanted"), DOES_NOT.values(), ids=DOES_NOT)
def test_what_does_not_follow(given: list[Call], wanted: Call) -> None:
    assert not Facts(frozenset(given), MORE).implies(wanted)


def test_zeros_of_floating_point_are_not_taken_for_one_another() -> None:
    """0.0 = -0.0 is true, and they are shown differently."""
    equal = frozenset([call("=", Column("f"), Column("g"))])
    facts = Facts(equal, {"f": "double", "g": "double"})
    assert facts.canonical(Column("f")) != facts.canonical(Column("g"))
    whole = Facts(frozenset([call("=", X, Y)]), TYPES)
    assert whole.canonical(X) == whole.canonical(Y) and whole.values("a") != ANYTHING
