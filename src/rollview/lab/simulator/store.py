"""The warehouse's store: it survives a crash, and readers see its states.

Every write is atomic. A crash can be armed to strike just before or just after the next write, which is
how the simulator reaches the moments between two durable steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rollview.algebra.bag import column_getter
from rollview.algebra.expression import Row
from rollview.algebra.history import CSN, UnitOfWork
from rollview.algorithms.algorithm import Algorithm
from rollview.algorithms.effects import ForwardQuery, Interval
from rollview.lab.memory.bag import MemoryBag
from rollview.lab.memory.evaluate import evaluate_blocks
from rollview.lab.memory.history import History
from rollview.lab.simulator.world import World, first_state


class WarehouseCrash(Exception):
    """The warehouse stops here; only what the store holds survives."""


@dataclass(frozen=True, slots=True)
class Publication:
    """A state that readers saw: every view's rows, and the source versions it claims to show."""

    contents: dict[str, MemoryBag]
    versions: dict[str, int] | None
    csn: int | None = None


class Store:
    """History, view deltas with positions, stored views with their materialization time."""

    def __init__(self, world: World, algorithm: Algorithm, show: Callable[[Publication], None]) -> None:
        """`show` is called with every state that readers get to see, the first one included."""
        self._show = show
        self.views = {view.name: view for view in world.views}
        self.sources = world.sources
        self.history = History({table.qualified: table.columns for table in world.tables}, world.sources)
        self.positions = {query: 0 for view in world.views for query in algorithm.positions(view)}
        self.controls: dict[str, Any] = {}
        self.materialized = 0
        self.armed = ""
        self.initial = first_state(world.initial)
        self.states = {
            view.name: view.root.state_of(evaluate_blocks(view.root, self.initial)) for view in world.views
        }
        self._deltas: dict[tuple[str, int], MemoryBag] = {}
        self._unshown: set[int] = set()
        show(Publication(self._contents(), dict.fromkeys(world.sources, 0), 0))

    def append(self, unit: UnitOfWork) -> None:
        with self._write():
            self.history.append(unit)

    def publish(
        self,
        moves: tuple[tuple[ForwardQuery, int], ...],
        delta: MemoryBag,
        control: Any,
        as_one: Interval | None = None,
    ) -> None:
        """Keeps a piece of a view's timed delta together with the new positions."""
        view = moves[0][0].view
        with self._write():
            if as_one is not None:
                self._unshown.update(range(as_one.after + 1, as_one.upto))
            columns = self.states[view].columns
            stored, at = column_getter(delta.columns, columns), delta.columns.index(CSN)
            pieces: dict[int, dict[Row, int]] = {}
            for row, count in delta.counts.items():
                pieces.setdefault(row[at], {})[stored(row)] = count
            for csn, counts in pieces.items():
                piece, known = MemoryBag(columns, counts), self._deltas.get((view, csn))
                self._deltas[view, csn] = piece if known is None else known.plus(piece)
            self.positions.update(moves)
            self.controls[view] = control

    def skip(self, queries: Iterable[ForwardQuery], upto: int) -> None:
        """Moves the positions of queries whose relations have not changed."""
        with self._write():
            self.positions.update(dict.fromkeys(queries, upto))

    def high_water_mark(self) -> int:
        """The csn up to which the deltas of all views are complete."""
        return min(self.positions.values(), default=0)

    def known(self, view: str) -> int:
        """The csn up to which the delta of a view is complete."""
        return min(position for query, position in self.positions.items() if query.view == view)

    def state_at(self, view: str, csn: int) -> MemoryBag:
        """The state of a view at a csn that is not before the one it is shown at."""
        state, root = self.states[view], self.views[view].root
        for each in range(self.materialized + 1, csn + 1):
            delta = self._deltas.get((view, each))
            state = state if delta is None else root.roll(state, delta)
        return state

    def apply(self) -> None:
        """Rolls all views together, csn by csn, to the high-water mark, and shows what is to be shown."""
        mark = self.high_water_mark()
        while self.materialized < mark:
            with self._write():
                self.materialized += 1
                for name, view in self.views.items():
                    delta = self._deltas.get((name, self.materialized))
                    if delta is not None:
                        self.states[name] = view.root.roll(self.states[name], delta)
                if self.materialized in self._unshown:
                    continue
                versions = {
                    source: self.history.version_at(source, self.materialized) for source in self.sources
                }
                self._show(Publication(self._contents(), versions, self.materialized))

    def install(self, view: str, state: MemoryBag, versions: dict[str, int] | None) -> None:
        """Replaces a view's state, for algorithms that keep no view delta."""
        if versions is not None:
            # A source that the algorithm never heard of is still where it began.
            versions = {**dict.fromkeys(self.sources, 0), **versions}
        with self._write():
            self.states[view] = state
            self.controls[view] = versions
            self._show(Publication(self._contents(), versions))

    def _contents(self) -> dict[str, MemoryBag]:
        return {name: view.root.present(self.states[name]) for name, view in self.views.items()}

    @contextmanager
    def _write(self) -> Iterator[None]:
        armed, self.armed = self.armed, ""
        if armed == "before":
            raise WarehouseCrash
        yield
        if armed == "after":
            raise WarehouseCrash
