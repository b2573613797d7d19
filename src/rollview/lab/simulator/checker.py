"""The consistency checker: which level of zhuge1996 §4.2 a run reached, with a witness if it failed one.

It knows nothing of algorithms, schedules or networks: it reads the world, the commits in true order and
the states that were shown, and computes views from scratch.

A source state is a vector of source versions. It is *valid* if every global transaction is in it with all
parts or none. A serial schedule that is equivalent to the real execution keeps each source's own order,
so it is a chain of valid vectors in which each step adds one transaction. Then, for the states shown,

- convergence: the last one is the view at the final vector;
- weak: besides, each is the view at some vector, each source for itself at a state it had;
- strong: besides, each is the view at a valid vector, and along the states shown vectors never go back;
- complete: besides, some chain from the first to the final vector has every one of its vectors shown.

A state shown twice in a row counts once or twice, whichever helps (a repeated state is no new one). With
several views, a state is the contents of all of them together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from rollview.algebra.expression import Row
from rollview.algebra.history import Transaction
from rollview.algorithms.algorithm import Level
from rollview.lab.memory.bag import MemoryBag
from rollview.lab.memory.evaluate import evaluate
from rollview.lab.simulator.store import Publication
from rollview.lab.simulator.world import World

Vector = tuple[int, ...]
Contents = dict[str, MemoryBag]


@dataclass(frozen=True)
class Witness:
    """Why a level was missed: a state shown, what is wrong with it, and the closest source states."""

    missed: Level
    state: int
    reason: str
    shown: Contents
    closest: tuple[tuple[dict[str, int], Contents], ...] = ()


@dataclass(frozen=True)
class Verdict:
    """The level reached, whether every claimed version was true, and why not more."""

    level: Level
    claims_hold: bool
    witness: Witness | None = None


def check(
    world: World, commits: Sequence[Transaction], shown: Sequence[Publication], at_rest: bool
) -> Verdict:
    """Judges one run."""
    states = _States(world, commits)
    if not at_rest:
        last = len(shown) - 1
        return Verdict(
            Level.NONE, False, Witness(Level.CONVERGENCE, last, "it never came to rest", shown[-1].contents)
        )
    claims_hold, chain = _claims(states, shown)
    if chain:
        return Verdict(Level.COMPLETE, True)
    return _search(states, shown, claims_hold)


class _States:
    """Views over vectors of source versions, each computed once."""

    def __init__(self, world: World, commits: Sequence[Transaction]) -> None:
        self.world = world
        self.sources = world.sources
        self._scripts = {
            source: [transaction for transaction in commits if transaction.source == source]
            for source in world.sources
        }
        self.final: Vector = tuple(len(self._scripts[source]) for source in self.sources)
        self.first: Vector = (0,) * len(self.sources)
        self._views: dict[Vector, Contents] = {}
        self._parts: dict[str, list[tuple[int, int]]] = {}
        for position, source in enumerate(self.sources):
            for transaction in self._scripts[source]:
                if transaction.global_id:
                    part = (position, transaction.version)
                    self._parts.setdefault(transaction.global_id, []).append(part)
        self._rows: dict[str, dict[Row, int]] = {}
        self._at: Vector = self.first
        self._reset()

    def views_at(self, vector: Vector) -> Contents:
        """The contents of all views, computed from scratch."""
        known = self._views.get(vector)
        if known is None:
            self._move_to(vector)
            known = {view.name: evaluate(view.root, self._rows) for view in self.world.views}
            self._views[vector] = known
        return known

    def is_valid(self, vector: Vector) -> bool:
        """Whether every global transaction is in the vector with all its parts or none."""
        return all(
            len({vector[position] >= version for position, version in parts}) == 1
            for parts in self._parts.values()
        )

    def every_vector(self) -> Iterator[Vector]:
        """All vectors, smaller ones before larger ones."""
        return product(*(range(last + 1) for last in self.final))

    def successors(self, vector: Vector) -> Iterator[Vector]:
        """The valid vectors that one more transaction leads to."""
        for position, source in enumerate(self.sources):
            if vector[position] == self.final[position]:
                continue
            transaction = self._scripts[source][vector[position]]
            places = self._parts.get(transaction.global_id, [(position, transaction.version)])
            if min(places) != (position, transaction.version):
                continue  # A global transaction is stepped over once, from its first part.
            if all(vector[place] == version - 1 for place, version in places):
                step = list(vector)
                for place, version in places:
                    step[place] = version
                yield tuple(step)

    def _reset(self) -> None:
        self._at = self.first
        self._rows = {table.qualified: {} for table in self.world.tables}
        for name, rows in self.world.initial.items():
            for row in rows:
                self._rows[name][row] = self._rows[name].get(row, 0) + 1

    def _move_to(self, vector: Vector) -> None:
        if any(target < at for target, at in zip(vector, self._at, strict=True)):
            self._reset()
        for position, source in enumerate(self.sources):
            for transaction in self._scripts[source][self._at[position] : vector[position]]:
                for change in transaction.changes:
                    rows = self._rows[change.table]
                    total = rows.get(change.row, 0) + change.count
                    if total:
                        rows[change.row] = total
                    else:
                        del rows[change.row]
        self._at = vector


def _claims(states: _States, shown: Sequence[Publication]) -> tuple[bool, bool]:
    """Whether every claimed version is true, and whether the claims alone prove completeness.

    A true claim is a witness of the mapping that the definitions ask for, so nothing need be searched.
    """
    hold, chain = True, True
    previous: Vector | None = None
    for publication in shown:
        if publication.versions is None:
            chain = False
            continue
        vector = tuple(publication.versions[source] for source in states.sources)
        if any(v > last for v, last in zip(vector, states.final, strict=True)) or (
            states.views_at(vector) != publication.contents
        ):
            return False, False
        in_order = vector == states.first if previous is None else _follows(states, previous, vector)
        chain = chain and in_order
        previous = vector
    return hold, chain and previous == states.final


def _follows(states: _States, previous: Vector, vector: Vector) -> bool:
    return vector == previous or vector in states.successors(previous)


def _search(states: _States, shown: Sequence[Publication], claims_hold: bool) -> Verdict:
    """Looks for the mapping among all vectors, level by level."""
    contents = [publication.contents for publication in shown]
    last = len(contents) - 1

    def fail(reached: Level, state: int, reason: str) -> Verdict:
        missed = Level(reached + 1)
        witness = Witness(missed, state, reason, contents[state], _closest(states, contents[state]))
        return Verdict(reached, claims_hold, witness)

    if contents[last] != states.views_at(states.final):
        return fail(Level.NONE, last, "the final state is not the view at the final source state")
    vectors = list(states.every_vector())
    for state, content in enumerate(contents):
        if not any(states.views_at(vector) == content for vector in vectors):
            return fail(Level.CONVERGENCE, state, "it matches no combination of source states")
    valid = [vector for vector in vectors if states.is_valid(vector)]
    frontier = {states.first}
    for state, content in enumerate(contents):
        reachable = {
            vector
            for vector in valid
            if states.views_at(vector) == content and any(_is_behind(start, vector) for start in frontier)
        }
        if not reachable:
            reason = "it matches no source state that follows those of the states before it"
            return fail(Level.WEAK, state, reason)
        frontier = reachable
    furthest = _furthest_complete(states, contents)
    if furthest <= last:
        return fail(
            Level.STRONG, furthest, "a source state between it and the state before it was never shown"
        )
    return Verdict(Level.COMPLETE, claims_hold)


def _is_behind(start: Vector, vector: Vector) -> bool:
    return all(a <= b for a, b in zip(start, vector, strict=True))


def _furthest_complete(states: _States, contents: list[Contents]) -> int:
    """The first state at which no chain can have all its vectors shown; behind the last if one can."""
    at = {states.first} if contents[0] == states.views_at(states.first) else set()
    for state, content in enumerate(contents[1:], 1):
        following = {
            step for vector in at for step in states.successors(vector) if states.views_at(step) == content
        }
        staying = {vector for vector in at if states.views_at(vector) == content}
        if not following and not staying:
            return state
        at = following | staying
    return len(contents) if states.final in at else len(contents) - 1


def _closest(
    states: _States, content: Contents, most: int = 3
) -> tuple[tuple[dict[str, int], Contents], ...]:
    """The valid source states whose views differ least from what was shown."""

    def distance(vector: Vector) -> int:
        views = states.views_at(vector)
        return sum(
            abs(count)
            for name in content
            for count in content[name].plus(views[name].negate()).counts.values()
        )

    valid = [vector for vector in states.every_vector() if states.is_valid(vector)]
    nearest = sorted(valid, key=distance)[:most]
    return tuple(
        (dict(zip(states.sources, vector, strict=True)), states.views_at(vector)) for vector in nearest
    )
