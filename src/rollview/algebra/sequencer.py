"""The sequencer: the single place where transactions from all sources become one history.

Messages may arrive twice, in any order, or never. The sequencer drops what it has had, holds back what
came too early, names the versions that are missing so that the source can be asked again (sze2000 report
§5: a version missing while later ones have arrived), joins the parts of a global transaction, and gives
each unit of work the next csn and a commit time from one clock that never runs backwards (beyer2000 §4.7).

Only what it has returned needs to be kept: after a crash, `resume` from the kept history and ask every
source for all that follows. Messages held back at the time of the crash simply come again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rollview.algebra.history import Transaction, UnitOfWork
from rollview.errors import HistoryError


@dataclass(frozen=True, slots=True)
class Gap:
    """Versions `first` to `last` of a source that exist but have not arrived."""

    source: str
    first: int
    last: int


class Sequencer:
    """Gives csn in an order that never contradicts a source's own."""

    def __init__(
        self, positions: Mapping[str, int], last_csn: int = 0, last_commit_time: float = float("-inf")
    ) -> None:
        """`positions` names every source with the last version that already has a csn."""
        self._positions = dict(positions)
        self._last_csn = last_csn
        self._last_commit_time = last_commit_time
        self._held: dict[str, dict[int, Transaction]] = {source: {} for source in positions}
        self._known = dict(positions)

    @classmethod
    def resume(cls, sources: Iterable[str], units: Iterable[UnitOfWork]) -> Sequencer:
        """The sequencer that continues a kept history."""
        positions = dict.fromkeys(sources, 0)
        last_csn, last_commit_time = 0, float("-inf")
        for unit in units:
            last_csn, last_commit_time = unit.csn, unit.commit_time
            for part in unit.parts:
                positions[part.source] = part.version
        return cls(positions, last_csn, last_commit_time)

    def position(self, source: str) -> int:
        """The last version of a source that has a csn."""
        return self._positions[source]

    def receive(self, transaction: Transaction, now: float) -> list[UnitOfWork]:
        """Takes a message in; returns the units of work that it completes, in csn order."""
        source, version = transaction.source, transaction.version
        if version <= self._positions[source]:
            return []
        held = self._held[source]
        if held.setdefault(version, transaction) != transaction:
            raise HistoryError(
                f"source {source} reported version {version} twice with different content",
                thing=source,
                hint="two programs may be reporting under one source name",
            )
        self.heard_of(source, version)
        return self._release(now) if version == self._positions[source] + 1 else []

    def heard_of(self, source: str, version: int) -> None:
        """Notes that a version exists, from an answer that saw it or from a heartbeat."""
        self._known[source] = max(self._known[source], version)

    def gaps(self) -> list[Gap]:
        """What is missing, as ranges to ask the sources for again."""
        gaps = []
        for source, known in self._known.items():
            first = None
            for version in range(self._positions[source] + 1, known + 1):
                if version not in self._held[source]:
                    first = first or version
                elif first is not None:
                    gaps.append(Gap(source, first, version - 1))
                    first = None
            if first is not None:
                gaps.append(Gap(source, first, known))
        return gaps

    def waiting(self) -> dict[str, tuple[str, ...]]:
        """Global transactions that have begun to arrive, each with the sources whose part is not next yet."""
        heads = {source: self._head(source) for source in self._held}
        return {
            head.global_id: tuple(source for source in head.participants if not _is_part(heads[source], head))
            for head in heads.values()
            if head is not None
        }

    def _head(self, source: str) -> Transaction | None:
        return self._held[source].get(self._positions[source] + 1)

    def _release(self, now: float) -> list[UnitOfWork]:
        """Sequences heads of the sources' queues until none can go."""
        units: list[UnitOfWork] = []
        progress = True
        while progress:
            progress = False
            for source in self._held:
                while (head := self._head(source)) is not None:
                    parts = self._parts(head)
                    if parts is None:
                        break
                    units.append(self._sequence(parts, now))
                    progress = True
        self._refuse_crossing()
        return units

    def _parts(self, head: Transaction) -> tuple[Transaction, ...] | None:
        """All parts of the head's transaction if each is next at its source, else None."""
        if not head.global_id:
            return (head,)
        parts = []
        for source in sorted(head.participants):
            part = self._head(source)
            if part is None or not _is_part(part, head):
                return None
            parts.append(part)
        return tuple(parts)

    def _sequence(self, parts: tuple[Transaction, ...], now: float) -> UnitOfWork:
        for part in parts:
            del self._held[part.source][part.version]
            self._positions[part.source] = part.version
        self._last_csn += 1
        self._last_commit_time = max(self._last_commit_time, now)
        return UnitOfWork(self._last_csn, self._last_commit_time, parts)

    def _refuse_crossing(self) -> None:
        """Global transactions that two sources committed in opposite orders fit into no one order."""
        blocked = [head for source in self._held if (head := self._head(source)) is not None]
        waits_for = {
            head.global_id: {
                other.global_id
                for source in head.participants
                if (other := self._head(source)) is not None and other.global_id != head.global_id
            }
            for head in blocked
        }
        for start in waits_for:
            reached, frontier = set[str](), {start}
            while frontier:
                frontier = {after for name in frontier for after in waits_for.get(name, ())} - reached
                reached |= frontier
            if start in reached:
                names = ", ".join(sorted(reached))
                raise HistoryError(
                    f"global transactions {names} were committed in contradicting orders",
                    thing=start,
                    hint="the sources do not agree on one serial order, so no consistent view exists",
                )


def _is_part(candidate: Transaction | None, of: Transaction) -> bool:
    return candidate is not None and candidate.global_id == of.global_id
