"""An example of a paper: what is given, what the paper prints, and a replay that finds the same things.

A replay gives a value for every line that the paper prints. They agree if both are the same text; where the
paper states a bound (`at most 6`, `at least strong`), if the value keeps it. Where they do not agree, the
example names the design note that says why; a mark where they do agree is a mistake, as much as none where
they do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from rollview.algebra.bag import keep
from rollview.algebra.history import Change
from rollview.algorithms.algorithm import Algorithm, Level
from rollview.algorithms.effects import Process, Spawn
from rollview.algorithms.registry import ALGORITHMS
from rollview.lab.memory.bag import MemoryBag
from rollview.lab.simulator.checker import Verdict, check
from rollview.lab.simulator.network import NETWORKS
from rollview.lab.simulator.schedule import Scripted
from rollview.lab.simulator.simulation import Outcome, simulate_run
from rollview.lab.simulator.world import World


@dataclass(frozen=True)
class Difference:
    """Why ours is not what the paper prints, and the design note that explains it."""

    note: str
    why: str


@dataclass(frozen=True)
class Replay:
    """The results of a replay: a value for every line that the paper prints, and the steps that happened."""

    values: Mapping[str, str]
    story: tuple[str, ...] = ()


@dataclass(frozen=True)
class Line:
    """One thing that the paper prints, and ours."""

    what: str
    paper: str
    ours: str
    agrees: bool
    difference: Difference | None


@dataclass(frozen=True)
class Example:
    """An example, a figure or a counted claim; `key` is the paper and the number that it has there."""

    key: str
    title: str
    data: tuple[str, ...]
    printed: Mapping[str, str]
    replay: Callable[[], Replay]
    differs: Mapping[str, Difference] = field(default_factory=dict)
    play: Play | None = None
    """The run to write as a trace, if it is one of the simulator's."""

    @property
    def paper(self) -> str:
        return self.key.partition("/")[0]

    def lines(self, replay: Replay) -> Iterator[Line]:
        """The lines that the paper prints, each beside the value that a replay found."""
        for what, paper in self.printed.items():
            ours = replay.values[what]
            yield Line(what, paper, ours, agree(paper, ours), self.differs.get(what))


def agree(paper: str, ours: str) -> bool:
    """Whether a value is what the paper prints, or keeps the bound that it states."""
    if paper.startswith("at most "):
        return int(ours) <= int(paper.removeprefix("at most "))
    if paper.startswith("at least "):
        return Level[ours.upper()] >= Level[paper.removeprefix("at least ").upper()]
    return paper == ours


@dataclass(frozen=True)
class Play:
    """A world, an algorithm and a schedule: one run."""

    world: World
    algorithm: Algorithm
    steps: Sequence[str] = ()
    network: str = "fifo"

    def run(self, schedule: Scripted | None = None) -> Played:
        """Runs it to its end; a schedule of the same steps may be given that looks at something."""
        chosen = schedule or Scripted(self.steps)
        outcome = simulate_run(self.world, self.algorithm, NETWORKS[self.network], chosen, narrated=True)
        verdict = check(self.world, outcome.commits, outcome.publications, outcome.at_rest)
        return Played(outcome, verdict)

    def by(self, algorithm: str) -> Play:
        """The same with another algorithm."""
        return replace(self, algorithm=ALGORITHMS[algorithm])

    def watched(self, seen: list[tuple[object, object]]) -> Play:
        """The same, with every effect of the algorithm and its result written down as it happens."""
        true = self.algorithm.processes

        def processes(view: Any) -> Iterator[Process]:
            return (_watched(process, seen) for process in true(view))

        return replace(self, algorithm=replace(self.algorithm, processes=processes))

    def describe(self) -> tuple[str, ...]:
        """The view, the relations with their first rows, and what each source commits, in its order."""
        views = (f"{view.name} = {view.sql}" for view in self.world.views)
        tables = (
            f"{table.qualified}({', '.join(table.columns)}): {MemoryBag.of(table.columns, rows)}"
            for table in self.world.tables
            for rows in [self.world.initial[table.qualified]]
        )
        commits = (
            f"{source} commits: {', '.join(map(_change, transaction.changes))}"
            for source, script in self.world.scripts.items()
            for transaction in script
        )
        return (*views, *tables, *commits)


def _change(change: Change) -> str:
    return f"{change.count:+d} {change.table}[{', '.join(map(str, change.row))}]"


@dataclass(frozen=True)
class Played:
    """A run that was played, and the checker's verdict."""

    outcome: Outcome
    verdict: Verdict

    @property
    def level(self) -> Level:
        return self.verdict.level

    @property
    def states(self) -> list[MemoryBag]:
        """The states of the view that readers saw, in order."""
        return [shown.contents["v"] for shown in self.outcome.publications]

    def course(self, text: Callable[[MemoryBag], str] = str) -> str:
        """The states that follow each other, without those that repeat the one before."""
        return " → ".join(state for state, _ in groupby(map(text, self.states)))


def counted(bag: MemoryBag) -> str:
    """Rows as sze2000 prints them: the values and, last, the count."""
    return "; ".join(",".join(map(str, (*row, count))) for row, count in bag.items()) or "∅"


def values_of(bag: MemoryBag, *columns: str) -> str:
    """Rows without counts, by some of the columns."""
    chosen = bag.project(keep(columns)) if columns else bag
    return "; ".join(",".join(map(str, row)) for row, _ in chosen.items()) or "∅"


def _watched(process: Process, seen: list[tuple[object, object]]) -> Process:
    value: Any = None
    while True:
        try:
            effect = process.send(value)
        except StopIteration:
            return
        if isinstance(effect, Spawn):
            effect = replace(effect, process=_watched(effect.process, seen))
        value = yield effect
        seen.append((effect, value))
