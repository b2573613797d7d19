"""One history: what sources committed, the order the warehouse gives it, and what an answer saw.

A source commits transactions 1, 2, 3 … (its source versions). The warehouse gives every transaction a
commit sequence number (csn) in one order that never contradicts a source's own; the parts of a global
transaction share one csn. What an answer saw is a set of transactions of its source, usually a prefix of
the source's order, but not always: a PostgreSQL snapshot can miss a transaction and see a later one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rollview.algebra.bag import MemoryBag
from rollview.algebra.expression import Column, Expression, Literal, Row, call
from rollview.errors import HistoryError, UnitSplit

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
    """What one source committed at once: its part, where the transaction is a global one.

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


@dataclass(slots=True)
class _Log:
    """The change log of one table: rows in csn order, csn kept apart for searching."""

    columns: tuple[str, ...]
    csns: list[int] = field(default_factory=list)
    rows: list[tuple[Row, int]] = field(default_factory=list)


class History:
    """Units of work in csn order, and for every table its change log. Append-only."""

    def __init__(self, tables: Mapping[str, tuple[str, ...]], sources: Iterable[str]) -> None:
        """`tables` gives each captured table's columns, by `source.table`."""
        self.units: list[UnitOfWork] = []
        self._logs = {table: _Log((*columns, CSN)) for table, columns in tables.items()}
        self._csns: dict[str, list[int]] = {source: [] for source in sources}

    @property
    def last_csn(self) -> int:
        """The newest csn; 0 for the state before all history."""
        return len(self.units)

    def append(self, unit: UnitOfWork) -> None:
        """Adds the next unit of work."""
        if unit.csn != self.last_csn + 1:
            raise HistoryError(f"csn {unit.csn} cannot follow csn {self.last_csn}")
        for part in unit.parts:
            csns = self._csns[part.source]
            if part.version != len(csns) + 1:
                raise HistoryError(
                    f"version {part.version} of source {part.source} cannot follow version {len(csns)}",
                    subject=part.source,
                )
            csns.append(unit.csn)
            for change in part.changes:
                log = self._logs.get(change.table)
                if log is not None:
                    log.csns.append(unit.csn)
                    log.rows.append(((*change.row, unit.csn), change.count))
        self.units.append(unit)

    def changes(self, table: str, after: int, upto: int) -> MemoryBag:
        """The table's change log for after < csn ≤ upto, with the column `_csn`."""
        log = self._logs[table]
        first, last = bisect_right(log.csns, after), bisect_right(log.csns, upto)
        return MemoryBag.of_pairs(log.columns, log.rows[first:last])

    def touched(self, table: str, after: int, upto: int) -> bool:
        """Whether the table has any change with after < csn ≤ upto."""
        csns = self._logs[table].csns
        return bisect_right(csns, after) < bisect_right(csns, upto)

    def relation_version_at(self, table: str, csn: int) -> int:
        """How many units of work up to a csn have changed the table: its relation version."""
        csns = self._logs[table].csns
        return len(set(csns[: bisect_right(csns, csn)]))

    def version_at(self, source: str, csn: int) -> int:
        """The source version that the warehouse's order has reached at a csn."""
        return bisect_right(self._csns[source], csn)

    def knows(self, source: str, seen: Seen) -> bool:
        """Whether everything that was seen has a csn."""
        return seen.upto <= len(self._csns[source])

    def in_csn(self, source: str, seen: Seen) -> Seen:
        """A set of source versions as a set of csn (valid for this source's tables)."""
        csns = self._csns[source]
        upto = csns[seen.upto - 1] if seen.upto else 0
        found = Seen(upto, frozenset(csns[hole - 1] for hole in seen.holes))
        if any((csn in found) != (version in seen) for version, csn in self._shared(source, found)):
            raise UnitSplit(f"an answer of {source} saw a part of a unit of work", subject=source)
        return found

    def _shared(self, source: str, seen: Seen) -> list[tuple[int, int]]:
        """The versions, each with its csn, that share the csn of the greatest one or of a hole."""
        csns = self._csns[source]
        return [
            (place + 1, csn)
            for csn in {seen.upto, *seen.holes} - {0}
            for place in range(bisect_left(csns, csn), bisect_right(csns, csn))
        ]

    def state(self, table: str, initial: MemoryBag, csn: int) -> MemoryBag:
        """The table after a csn: its initial rows plus the change log up to it."""
        log = self._logs[table]
        past = log.rows[: bisect_right(log.csns, csn)]
        return initial.plus(MemoryBag.of_pairs(initial.columns, ((row[:-1], count) for row, count in past)))
