"""Campaigns: many runs of one kind, counted by the level they reached."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

from rollview.algorithms.algorithm import Algorithm, Level, Scenario
from rollview.errors import WorldError
from rollview.lab.simulator.checker import Verdict, check
from rollview.lab.simulator.generate import Size, generate
from rollview.lab.simulator.network import Network
from rollview.lab.simulator.schedule import Schedule, Scripted, Seeded, every_schedule
from rollview.lab.simulator.shrink import Failing
from rollview.lab.simulator.simulation import Outcome, simulate_run
from rollview.lab.simulator.world import World

_BATCH = 250


@dataclass(frozen=True)
class Campaign:
    """The runs of a campaign. Run number i uses seed + i for its world and its schedule.

    A given `world` replaces the generated ones. `exhaustive` tries all schedules of one world instead, and
    `steps` are the one schedule to follow.
    """

    algorithm: Algorithm
    network: Network
    scenario: Scenario
    size: Size = field(default_factory=Size)
    runs: int = 1000
    seed: int = 0
    required: Level = Level.COMPLETE
    exhaustive: bool = False
    world: World | None = None
    steps: tuple[str, ...] | None = None


@dataclass
class Tally:
    """The result of a campaign: how many runs reached which level, what they cost, and which to look at.

    `failing` is the first run that fell short of what was required, `worst` the first at the lowest level.
    """

    levels: Counter[Level] = field(default_factory=Counter)
    false_claims: int = 0
    transactions: int = 0
    questions: int = 0
    rows_shipped: int = 0
    failing_seed: int | None = None
    failing: Failing | None = None
    worst_seed: int | None = None
    worst: Failing | None = None
    finished: bool = True
    seconds: float = 0.0

    @property
    def runs(self) -> int:
        return sum(self.levels.values())

    @property
    def level(self) -> Level:
        """The level that every run reached."""
        return min(self.levels, default=Level.NONE)

    def add(self, outcome: Outcome, verdict: Verdict, run: Failing, seed: int) -> None:
        """Counts one run."""
        if self.worst is None or verdict.level < self.level:
            self.worst, self.worst_seed = run, seed
        self.levels[verdict.level] += 1
        self.false_claims += not verdict.claims_hold
        self.transactions += len(outcome.commits)
        self.questions += outcome.costs.questions
        self.rows_shipped += outcome.costs.rows_shipped

    def merge(self, other: Tally) -> None:
        """Adds another tally, of later seeds."""
        if self.worst is None or other.level < self.level:
            self.worst, self.worst_seed = other.worst, other.worst_seed
        self.levels += other.levels
        self.false_claims += other.false_claims
        self.transactions += other.transactions
        self.questions += other.questions
        self.rows_shipped += other.rows_shipped
        if self.failing is None:
            self.failing, self.failing_seed = other.failing, other.failing_seed


def size_for(algorithm: Algorithm, relations: int, transactions: int, views: int = 1) -> Size:
    """The size of worlds that the algorithm can serve: what its paper assumes holds in them."""
    return Size(
        relations,
        transactions,
        views,
        keyed=not algorithm.sequenced,
        snapshots=algorithm.sequenced,
        sources=1 if algorithm.single_source else 0,
    )


def run_one(campaign: Campaign, world: World, schedule: Schedule) -> tuple[Outcome, Verdict]:
    """One run and its verdict."""
    outcome = simulate_run(world, campaign.algorithm, campaign.network, schedule)
    return outcome, check(world, outcome.commits, outcome.publications, outcome.at_rest)


def seeded_run(campaign: Campaign, seed: int) -> tuple[World, Schedule]:
    """The world and the schedule of a seed, or those that are given."""
    generator = random.Random(seed)
    world = campaign.world or generate(generator, campaign.scenario, campaign.size)
    return world, Seeded(generator) if campaign.steps is None else Scripted(campaign.steps)


def run_campaign(
    campaign: Campaign, jobs: int = 1, progress: Callable[[int], None] = lambda runs: None
) -> Tally:
    """Runs a campaign; `progress` is called with how many more runs are done."""
    began = time.perf_counter()
    if campaign.exhaustive:
        tally = _explore(campaign, progress)
    else:
        tally = Tally()
        for part in _batches(campaign, jobs):
            tally.merge(part)
            progress(part.runs)
    tally.seconds = time.perf_counter() - began
    return tally


def _batches(campaign: Campaign, jobs: int) -> Iterator[Tally]:
    last = campaign.seed + campaign.runs
    starts = range(campaign.seed, last, _BATCH)
    spans = [(campaign, start, min(start + _BATCH, last)) for start in starts]
    if jobs == 1:
        yield from map(_seeds, spans)
        return
    with ProcessPoolExecutor(jobs or os.cpu_count()) as pool:
        yield from pool.map(_seeds, spans)


def _seeds(span: tuple[Campaign, int, int]) -> Tally:
    campaign, first, last = span
    tally = Tally()
    for seed in range(first, last):
        world, schedule = seeded_run(campaign, seed)
        outcome, verdict = run_one(campaign, world, schedule)
        if isinstance(schedule, Scripted) and schedule.left:
            raise WorldError(
                f"the run has ended, and `{schedule.left[0]}` is still in its schedule",
                subject=f"step {len(schedule.choices) + 1}",
            )
        run = Failing(world, tuple(schedule.choices))
        tally.add(outcome, verdict, run, seed)
        if falls_short(campaign, verdict) and tally.failing is None:
            tally.failing, tally.failing_seed = run, seed
    return tally


def falls_short(campaign: Campaign, verdict: Verdict) -> bool:
    """Below the required level, or a version claimed that was not shown."""
    return verdict.level < campaign.required or not verdict.claims_hold


def _explore(campaign: Campaign, progress: Callable[[int], None]) -> Tally:
    """All schedules of one world, at most `runs` of them."""
    tally = Tally()
    world, _ = seeded_run(campaign, campaign.seed)
    for schedule in every_schedule():
        if tally.runs == campaign.runs:
            tally.finished = False
            break
        outcome, verdict = run_one(campaign, world, schedule)
        run = Failing(world, tuple(schedule.choices))
        tally.add(outcome, verdict, run, campaign.seed)
        if falls_short(campaign, verdict) and tally.failing is None:
            tally.failing, tally.failing_seed = run, campaign.seed
        if tally.runs % _BATCH == 0:
            progress(_BATCH)
    progress(tally.runs % _BATCH)
    return tally
