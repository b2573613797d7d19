"""One history: what sources committed, the order the warehouse gives it, and what an answer saw.

A source commits transactions 1, 2, 3 … (its source versions). The warehouse gives every transaction a
commit sequence number (csn) in one order that never contradicts a source's own; the parts of a global
transaction share one csn. What an answer saw is a set of transactions of its source, usually a prefix of
the source's order, but not always: a PostgreSQL snapshot can miss a transaction and see a later one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rollview.algebra.expression import Column, Expression, Literal, Row, call

CSN = "_csn"
"""The column that carries a row's commit sequence number."""


@dataclass(frozen=True, slots=True)
class Change:
    """One row of a table, inserted (count > 0) or deleted (count < 0). An update is one of each."""

    table: str
    row: Row
    count: int


@dataclass(frozen=True, slots=True)
class Transaction:
    """The changes that one source committed at once: its part of a global transaction.

    `version` is the source version after the commit. `participants` names the sources that take part
    in the global transaction `global_id`; both are empty for a local one.
    """

    source: str
    version: int
    changes: tuple[Change, ...]
    commit_time: float = 0.0
    global_id: str = ""
    participants: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UnitOfWork:
    """A transaction in the warehouse's order, with all its parts."""

    csn: int
    commit_time: float
    parts: tuple[Transaction, ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """A set of numbers: all from 1 to `upto` except `holes`.

    Over source versions it is what an answer saw; over csn it is the same set in the warehouse's order.
    """

    upto: int
    holes: frozenset[int] = frozenset()

    def __contains__(self, number: int) -> bool:
        return number <= self.upto and number not in self.holes

    def condition(self, column: str) -> Expression:
        """The set as a condition on a column."""
        within = call("<=", Column(column), Literal(self.upto))
        if not self.holes:
            return within
        holes = [Literal(hole) for hole in sorted(self.holes)]
        return call("AND", within, call("NOT", call("IN", Column(column), *holes)))


def seen_of(versions: Iterable[int]) -> Seen:
    """The smallest description of a finite set of versions."""
    present = set(versions)
    upto = max(present, default=0)
    return Seen(upto, frozenset(range(1, upto + 1)) - present)
