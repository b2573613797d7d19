"""The consistency spectrum, measured: which level each algorithm reaches in each scenario on each network.

zhuge1996 Figure 2 draws such a picture from proofs. Here it comes from runs: every schedule of a few tiny
worlds, and seeded schedules of larger ones. A level that is not reached has a witness that can be run again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace

from rollview.algorithms.algorithm import Algorithm, Level, Scenario
from rollview.algorithms.registry import ALGORITHMS
from rollview.lab.simulator.campaign import Campaign, run_campaign, run_one, size_for
from rollview.lab.simulator.network import NETWORKS
from rollview.lab.simulator.schedule import Recorded


@dataclass(frozen=True)
class Effort:
    """How much to try per cell: seeded runs, tiny worlds, and schedules of each of those."""

    runs: int = 300
    worlds: int = 3
    schedules: int = 1_000


@dataclass(frozen=True)
class Cell:
    """One algorithm in one scenario on one network: the level that every run reached.

    `explored` counts the tiny worlds whose schedules were all tried. `reason` says why the next level is
    not reached, and `command` runs the witness again; both are empty for a complete one.
    """

    algorithm: str
    scenario: Scenario
    network: str
    level: Level
    runs: int
    explored: int = 0
    reason: str = ""
    command: str = ""

    @property
    def missed(self) -> Level | None:
        """The level above the one reached."""
        return None if self.level is Level.COMPLETE else Level(self.level + 1)


def measure_spectrum(
    algorithms: Iterable[str], effort: Effort, jobs: int = 1, progress: Callable[[int], None] = lambda _: None
) -> list[Cell]:
    """All cells, in order of algorithms, scenarios and networks."""
    wanted = [
        (name, scenario, network, effort)
        for name in algorithms
        for scenario in Scenario
        for network in NETWORKS
    ]
    cells = []
    for cell in _spread(wanted, jobs):
        cells.append(cell)
        progress(1)
    return cells


def _spread(wanted: list[tuple[str, Scenario, str, Effort]], jobs: int) -> Iterator[Cell]:
    if jobs == 1:
        yield from map(_measure, wanted)
        return
    with ProcessPoolExecutor(jobs or None) as pool:
        yield from pool.map(_measure, wanted)


def _measure(wanted: tuple[str, Scenario, str, Effort]) -> Cell:
    name, scenario, network, effort = wanted
    algorithm = ALGORITHMS[name]
    cell = Cell(name, scenario, network, Level.COMPLETE, 0)
    for campaign in _campaigns(algorithm, scenario, network, effort):
        tally = run_campaign(campaign)
        explored = campaign.exhaustive and tally.finished
        cell = replace(cell, runs=cell.runs + tally.runs, explored=cell.explored + explored)
        if tally.level < cell.level and tally.worst is not None:
            _, verdict = run_one(campaign, tally.worst.world, Recorded(tally.worst.choices))
            reason = "" if verdict.witness is None else verdict.witness.reason
            command = _command(campaign, tally.worst_seed or 0, Level(tally.level + 1))
            cell = replace(cell, level=tally.level, reason=reason, command=command)
    return cell


def _command(campaign: Campaign, seed: int, expected: Level) -> str:
    """The command that shows the witness."""
    size, extent = campaign.size, "--exhaustive" if campaign.exhaustive else "--runs 1"
    return (
        f"rollview simulate --algorithm {campaign.algorithm.name} --scenario {campaign.scenario} "
        f"--network {campaign.network.name} --relations {size.relations} "
        f"--transactions {size.transactions} --seed {seed} {extent} --expect {expected}"
    )


def _campaigns(algorithm: Algorithm, scenario: Scenario, network: str, effort: Effort) -> Iterator[Campaign]:
    large = size_for(algorithm, relations=3, transactions=6)
    yield Campaign(algorithm, NETWORKS[network], scenario, large, effort.runs)
    tiny = size_for(algorithm, relations=2, transactions=2)
    for seed in range(effort.worlds):
        yield Campaign(
            algorithm, NETWORKS[network], scenario, tiny, effort.schedules, seed=seed, exhaustive=True
        )
