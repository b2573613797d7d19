"""One history in memory: units of work in csn order, and for every table its change log."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rollview.algebra.expression import Row
from rollview.algebra.history import CSN, Seen, UnitOfWork
from rollview.errors import HistoryError, UnitSplit
from rollview.lab.memory.bag import MemoryBag


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
