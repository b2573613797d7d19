"""The operators that views are made of, in the order in which they are asked whether a query is theirs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rollview.operators.aggregate import Aggregate
from rollview.operators.block import SelectProjectJoin
from rollview.operators.first_rows import FirstRows
from rollview.operators.generate import Generate
from rollview.operators.multiset import Multiset
from rollview.operators.recomputed import Recomputed
from rollview.operators.translation import Operator
from rollview.operators.union_all import UnionAll
from rollview.operators.window import Window
from rollview.sql.grammar import Syntax, whole_syntax

OPERATORS: list[Operator] = [
    Recomputed,
    Generate,
    FirstRows,
    Window,
    Aggregate,
    Multiset,
    UnionAll,
    SelectProjectJoin,
]


def whole_grammar() -> Syntax:
    """The SQL that these operators know, with what is taken apart before they see it."""
    return whole_syntax(operator.syntax for operator in OPERATORS)


@contextmanager
def added(operator: Operator) -> Iterator[None]:
    """One more operator, asked before all others, for as long as the block lasts."""
    OPERATORS.insert(0, operator)
    try:
        yield
    finally:
        OPERATORS.remove(operator)
