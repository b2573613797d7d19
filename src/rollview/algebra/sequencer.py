"""The sequencer: the single place where transactions from all sources become one history.

Messages may arrive twice, in any order, or never. The sequencer drops what it has had, holds back what
came too early, names the versions that are missing so that the source can be asked again (sze2000 report
§5: a version missing while later ones have arrived), joins the parts of a global transaction, and gives
each unit of work the next csn and a commit time from one clock that never runs backwards (beyer2000 §4.7).

Two sources may commit two global transactions in opposite orders. No order of the two is right then, but
both together are one step that every source has made: they become one unit of work, with all that lies
between them.

Only what it has returned needs to be kept: after a crash, `resume` from the kept history and ask every
source for all that follows. Messages held back at the time of the crash simply come again.
"""

from __future__ import annotations

from bisect import insort
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
        self._places: dict[str, dict[str, list[int]]] = {}

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
        is_new = version not in held
        if held.setdefault(version, transaction) != transaction:
            raise HistoryError(
                f"source {source} reported version {version} twice with different content",
                subject=source,
                hint="two programs may be reporting under one source name",
            )
        if transaction.global_id and is_new:
            insort(self._places.setdefault(transaction.global_id, {}).setdefault(source, []), version)
        # A local transaction behind all others of its source, which is not next, lets nothing go.
        closes_gap = version <= self._known[source]
        self.heard_of(source, version)
        is_next = version == self._positions[source] + 1
        return self._release(now) if is_next or closes_gap or transaction.global_id else []

    def heard_of(self, source: str, version: int) -> None:
        """Notes that a version exists, from an answer that saw it or from a heartbeat."""
        self._known[source] = max(self._known[source], version)

    def gaps(self) -> list[Gap]:
        """The missing versions, as ranges to request from the sources again."""
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
        """Global transactions that hold up a source, each with the sources whose part has not come.

        None of a crossing goes while one that lies between is not complete, so not only heads count.
        """
        found: dict[str, dict[str, None]] = {}
        for held in self._held.values():
            for each in held.values():
                if each.global_id:
                    absent = (name for name in each.participants if name not in self._places[each.global_id])
                    found.setdefault(each.global_id, {}).update(dict.fromkeys(absent))
        return {global_id: tuple(missing) for global_id, missing in found.items()}

    def present(self, global_id: str) -> tuple[str, ...]:
        """The sources of which a part has come that has no csn yet."""
        return tuple(sorted(self._places.get(global_id, ())))

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
            if not progress and (crossing := self._crossing()):
                units.append(self._sequence(crossing, now))
                progress = True
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
            self._forget_place(part)
        self._last_csn += 1
        self._last_commit_time = max(self._last_commit_time, now)
        return UnitOfWork(self._last_csn, self._last_commit_time, parts)

    def _forget_place(self, part: Transaction) -> None:
        """A part that has its csn is not waited for; another one may have the same id."""
        places = self._places.get(part.global_id, {})
        if versions := places.get(part.source):
            versions.remove(part.version)
            if not versions:
                del places[part.source]
        if not places:
            self._places.pop(part.global_id, None)

    def _crossing(self) -> tuple[Transaction, ...]:
        """The fewest transactions that can only go together, each source's in its own order; or none."""
        heads = [head for source in self._held if (head := self._head(source)) is not None]
        closed = [ends for head in heads if (ends := self._closed(head)) is not None]
        if not closed:
            return ()
        least = min(closed, key=lambda ends: sum(end - self._positions[name] for name, end in ends.items()))
        return tuple(
            self._held[source][version]
            for source, end in sorted(least.items())
            for version in range(self._positions[source] + 1, end + 1)
        )

    def _closed(self, head: Transaction) -> dict[str, int] | None:
        """Up to which version of each source all must go with the head; None while a part is missing.

        With a transaction go all before it at its source, and with a part all others of its transaction.
        """
        ends = {head.source: head.version}
        looked_at = dict(self._positions)
        while pending := [source for source, end in ends.items() if looked_at[source] < end]:
            source = pending[0]
            looked_at[source] += 1
            each = self._held[source].get(looked_at[source])
            if each is None:
                return None
            for other in each.participants if each.global_id else ():
                places = self._places[each.global_id].get(other)
                if places is None:
                    return None
                ends[other] = max(ends.get(other, 0), places[0])
        return ends


def _is_part(candidate: Transaction | None, of: Transaction) -> bool:
    return candidate is not None and candidate.global_id == of.global_id
