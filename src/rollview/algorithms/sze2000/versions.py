"""The view site: its version numbers, and the ordered intake of update messages.

**Source.** sze2000 report §3 (the six version numbers), §5 (lost messages, Theorem 2).
**Symbols.**

| the paper's version number | here |
|---|---|
| base relation | the place of an update in `Captured` |
| data source | `Transaction.version`; `ViewSite.arrived` is the last one in order |
| highest processing | `Captured.highest` |
| initial, α | `Sent.initial` |
| queried, β | `Captured.queried`, from the data source version that an answer saw |
| refreshed | `ViewSite.refreshed`; by source `ViewSite.shown` |

**Deviations.** An answer states the data source version that it saw; the base relation versions follow from
the update messages, so the sources need not keep them. A base relation version counts updates: a
transaction's deletions, modifications and insertions are one each. Counting starts again when the view site
starts, at what the stored view shows; data source versions are never renumbered. There is no clock, so a
version is asked for again as soon as a later one is known, and then whenever time has passed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rollview.algebra.bag import Bag
from rollview.algebra.history import Transaction
from rollview.algebra.node import Block
from rollview.algebra.view import View
from rollview.algorithms.effects import Effect
from rollview.algorithms.sze2000.irrelevant import in_order, relevant
from rollview.algorithms.sze2000.update_types import Counted, Update, updates_of

T = TypeVar("T")
Refresh = Callable[[Bag], Bag]
"""The effect of an update on the stored view, once all updates before it have been applied."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A step cannot continue before a data source's version has arrived in order."""

    source: str
    version: int


Steps = Generator[Effect | Arrival, Any, T]


@dataclass(frozen=True)
class Sent:
    """An update sent for incremental computation.

    `initial` holds, for every relation of the block, the version that its computation must see. `rows` are
    those that can affect the view.
    """

    update: Update
    initial: tuple[int, ...]
    rows: tuple[Counted, ...]


@dataclass(frozen=True)
class Transit:
    """A transaction whose updates were sent; `number` is its place in the order of sending."""

    number: int
    source: str
    version: int
    updates: tuple[Sent, ...]


@dataclass
class Captured:
    """The updates of one relation in the order of their versions, as far back as they can be needed."""

    updates: list[Update] = field(default_factory=list)
    forgotten: int = 0

    @property
    def highest(self) -> int:
        """The version of the latest update that was sent."""
        return self.forgotten + len(self.updates)

    def queried(self, version: int) -> int:
        """The version of the relation in an answer that saw this version of its data source."""
        return self.forgotten + bisect_right(self.updates, version, key=lambda update: update.version)

    def between(self, after: int, upto: int) -> list[Update]:
        """The updates with after < version ≤ upto."""
        return self.updates[after - self.forgotten : upto - self.forgotten]

    def forget(self, upto: int) -> None:
        """Drops what the stored view shows already: every computation needs at least that."""
        del self.updates[: upto - self.forgotten]
        self.forgotten = upto


@dataclass(frozen=True)
class Computation:
    """The incremental computation of one update."""

    site: ViewSite
    sent: Sent

    @property
    def block(self) -> Block:
        return self.site.view.blocks[self.sent.update.block]


class ViewSite:
    """The knowledge of the view site, shared by the processes of one view."""

    def __init__(self, view: View) -> None:
        self.view = view
        # Sources that the view does not read may report, too: then the view shows another state of them.
        self.shown = defaultdict(int, {table.source: 0 for table in view.tables})
        self.arrived = self.shown.copy()
        self.finished: dict[int, tuple[Transit, tuple[Refresh, ...]]] = {}
        self.refreshing = False
        self.waiting: list[tuple[Arrival, Steps[None]]] = []
        self._captured = {
            (number, position): Captured()
            for number, block in enumerate(view.blocks)
            for position in range(len(block.relations))
        }
        self._refreshed = dict.fromkeys(self._captured, 0)
        self._held: defaultdict[str, dict[int, Transaction]] = defaultdict(dict)
        self._known = self.shown.copy()
        self._sent = 0
        self._applied = 0

    def resume(self, shown: dict[str, int]) -> None:
        """Begins at the data source versions that the stored view shows."""
        self.shown.update(shown)
        self.arrived.update(shown)
        self._known.update(shown)

    def captured(self, block: int, position: int) -> Captured:
        return self._captured[block, position]

    def refreshed(self, block: int, position: int) -> int:
        """The version of a relation that the stored view shows."""
        return self._refreshed[block, position]

    def heard_of(self, source: str, version: int) -> list[tuple[int, int]]:
        """Notes that a version exists; the versions now known to be lost or late, as ranges to ask for."""
        before, self._known[source] = self._known[source], max(self._known[source], version)
        return [(max(first, before + 1), last) for first, last in self.lost(source) if last > before]

    def lost(self, source: str) -> list[tuple[int, int]]:
        """Ranges of versions that exist but have not arrived."""
        ranges: list[tuple[int, int]] = []
        for version in range(self.arrived[source] + 1, self._known[source] + 1):
            if version in self._held[source]:
                continue
            if ranges and ranges[-1][1] == version - 1:
                ranges[-1] = (ranges[-1][0], version)
            else:
                ranges.append((version, version))
        return ranges

    def known(self, source: str) -> int:
        """The highest version of a source that is known to exist."""
        return self._known[source]

    def take(self, transaction: Transaction) -> Iterator[Transit]:
        """Takes a message in; transactions are sent in the order of their data source versions."""
        source = transaction.source
        if transaction.version > self.arrived[source]:
            self._held[source][transaction.version] = transaction
        while (following := self._held[source].pop(self.arrived[source] + 1, None)) is not None:
            self.arrived[source] += 1
            yield self._send(following)

    def has_arrived(self, arrival: Arrival) -> bool:
        """Whether all messages up to a version have come."""
        return arrival.version <= self.arrived[arrival.source]

    def next_finished(self) -> tuple[Transit, tuple[Refresh, ...]] | None:
        """The result that is to be applied next, if it is there (Theorem 2)."""
        return self.finished.pop(self._applied + 1, None)

    def claim(self, transit: Transit) -> tuple[tuple[str, int], ...]:
        """The data source versions that the view shows once this transaction is applied."""
        return tuple({**self.shown, transit.source: transit.version}.items())

    def was_applied(self, transit: Transit) -> None:
        """The stored view shows one more transaction."""
        self._applied += 1
        self.shown[transit.source] = transit.version
        for sent in transit.updates:
            place = (sent.update.block, sent.update.position)
            self._refreshed[place] += 1
            self._captured[place].forget(self._refreshed[place])

    def _send(self, transaction: Transaction) -> Transit:
        """Gives every update of a transaction its initial version numbers, one update after another."""
        self._sent += 1
        sent: list[Sent] = []
        for number, block in enumerate(self.view.blocks):
            updates = in_order(block, list(updates_of(number, block, transaction)))
            for place, update in enumerate(updates):
                self._captured[number, update.position].updates.append(update)
                sent.append(Sent(update, self._highest(number, block), relevant(block, updates, place)))
        return Transit(self._sent, transaction.source, transaction.version, tuple(sent))

    def _highest(self, number: int, block: Block) -> tuple[int, ...]:
        return tuple(self._captured[number, position].highest for position in range(len(block.relations)))
