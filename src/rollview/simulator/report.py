"""The two tables of the literature, as Markdown: levels reached and costs, as they were measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rollview.algebra.levels import Level, Scenario
from rollview.algorithms.registry import ALGORITHMS
from rollview.simulator.ipda.checker import Property, Witness
from rollview.simulator.measured_costs import STREAM_RATES, STREAM_TRANSACTIONS, MeasuredCost
from rollview.simulator.network import NETWORKS
from rollview.simulator.paper_claims import PaperClaim
from rollview.simulator.spectrum import Cell, Effort

_SCENARIO_TITLES = {
    Scenario.SINGLE_UPDATE: "Single-update transactions",
    Scenario.SOURCE_LOCAL: "Source-local transactions",
    Scenario.GLOBAL: "Global transactions",
}
LIVE = "## On live servers\n"
"""What follows on the page is measured elsewhere (`benchmarks/algorithms.py`), and is kept."""

_MEASURES = {
    "queries": "Queries per transaction",
    "questions": "Sub-queries sent per transaction",
    "rounds": "Round trips per transaction",
    "rows_shipped": "Rows shipped per transaction",
    "rows_compensated": "Rows corrected per transaction",
}


@dataclass(frozen=True)
class Findings:
    """All that was measured."""

    effort: Effort
    cells: Sequence[Cell]
    costs_measured: Sequence[MeasuredCost]
    streams: Sequence[MeasuredCost]
    claims: Sequence[PaperClaim]
    ipda: Mapping[str, Mapping[Property, Witness | None]]


def report(found: Findings) -> str:
    """The whole page."""
    parts = [
        _head(found),
        _spectrum(found.cells),
        _prices(found.costs_measured),
        _streams(found.streams),
        _claims(found.claims),
        _ipda(found.ipda),
        _witnesses(found.cells),
    ]
    return "\n".join(line for part in parts for line in part)


_HEAD = """\
# The algorithms, compared by machine

Written by `rollview simulate --algorithm all --write docs/reference/algorithms.md`, not by hand.

Every cell of the spectrum: {runs:,} seeded runs over 3 relations and 6 transactions, and up to {schedules:,}
schedules, in lexical order, of each of {worlds} tiny worlds (2 relations, 2 transactions). The level is what
*every* run reached (zhuge1996 §4.2; how it is read: [design note 4](../design/004-consistency-levels.md)).
Worlds have what the algorithm's paper assumes: keys in the view, one source, answers that see a prefix of
the source's commits, where it assumes them. {total:,} runs in all; {explored} of {tiny} explorations of a
tiny world came to the end of its schedules.
"""

_PRICES = """\
## What a transaction costs

Chains of relations, each at its own source (one source for algorithms that know only one), a fifo network,
insertions and deletions of single rows. *Concurrent*: how many other transactions are committed and reported
before the first question is answered. Averages over 20 worlds. A *query* is one evaluation of the join;
it takes several sub-queries where the relations are at several sources.
"""


def _head(found: Findings) -> Iterator[str]:
    effort = found.effort
    yield _HEAD.format(
        runs=effort.runs,
        schedules=effort.schedules,
        worlds=effort.worlds,
        total=sum(cell.runs for cell in found.cells),
        explored=sum(cell.explored for cell in found.cells),
        tiny=effort.worlds * len(found.cells),
    )


def _spectrum(cells: Sequence[Cell]) -> Iterator[str]:
    yield "## Levels reached"
    yield ""
    yield "**Bold**: what the algorithm claims. ⚠: measured below the claim."
    yield ""
    found = {(cell.algorithm, cell.scenario, cell.network): cell for cell in cells}
    names = list(dict.fromkeys(cell.algorithm for cell in cells))
    for scenario, title in _SCENARIO_TITLES.items():
        yield f"### {title}"
        yield ""
        yield "| algorithm | claim | " + " | ".join(NETWORKS) + " |"
        yield "|---|---|" + "---|" * len(NETWORKS)
        for name in names:
            levels = [_level(found[name, scenario, network]) for network in NETWORKS]
            yield f"| {name} | {ALGORITHMS[name].claims[scenario]} | " + " | ".join(levels) + " |"
        yield ""


def _level(cell: Cell) -> str:
    algorithm = ALGORITHMS[cell.algorithm]
    claim = algorithm.claims[cell.scenario]
    promised = cell.network in algorithm.networks
    if promised and cell.level < claim:
        return f"⚠ {cell.level}"
    return f"**{cell.level}**" if promised else str(cell.level)


def _witnesses(cells: Sequence[Cell]) -> Iterator[str]:
    yield "## Witnesses"
    yield ""
    yield "Why the level above was not reached; the command shows the run, shrunk to its core."
    yield ""
    yield "| algorithm | scenario | network | missed | why | command |"
    yield "|---|---|---|---|---|---|"
    for cell in cells:
        if cell.missed is not None:
            yield (
                f"| {cell.algorithm} | {cell.scenario} | {cell.network} | {cell.missed} | {cell.reason} "
                f"| `{cell.command}` |"
            )
    yield ""


def _prices(costs_measured: Sequence[MeasuredCost]) -> Iterator[str]:
    yield _PRICES
    names = list(dict.fromkeys(cost.algorithm for cost in costs_measured))
    columns = list(dict.fromkeys((cost.relations, cost.concurrent) for cost in costs_measured))
    found = {(cost.algorithm, cost.relations, cost.concurrent): cost for cost in costs_measured}
    for measure, title in _MEASURES.items():
        yield f"### {title}"
        yield ""
        yield "| relations / concurrent | " + " | ".join(f"{n} / {k}" for n, k in columns) + " |"
        yield "|---|" + "--:|" * len(columns)
        for name in names:
            values = [f"{getattr(found[name, *column], measure):.2f}" for column in columns]
            yield f"| {name} | " + " | ".join(values) + " |"
        yield ""


def _streams(costs: Sequence[MeasuredCost]) -> Iterator[str]:
    yield "### While others commit"
    yield ""
    rates = " : ".join(map(str, STREAM_RATES))
    number = len(STREAM_RATES)
    yield f"{number} relations that change at rates of {rates}; {STREAM_TRANSACTIONS} transactions."
    yield "Commits, messages, questions and new intervals take turns, so that answers see what is not known"
    yield "yet. Averages per transaction over 20 worlds."
    yield ""
    yield (
        "| algorithm | " + " | ".join(title.split(" per ")[0].lower() for title in _MEASURES.values()) + " |"
    )
    yield "|---|" + "--:|" * len(_MEASURES)
    for cost in costs:
        yield f"| {cost.algorithm} | " + " | ".join(f"{getattr(cost, each):.2f}" for each in _MEASURES) + " |"
    yield ""


def _claims(claims: Sequence[PaperClaim]) -> Iterator[str]:
    yield "## Counted claims"
    yield ""
    yield "| paper | what | says | measured | |"
    yield "|---|---|---|---|---|"
    for claim in claims:
        mark = "✓" if claim.holds else "✗"
        yield f"| {claim.source} | {claim.what} | {claim.says} | {claim.measured} | {mark} |"
    yield ""


def _ipda(found: Mapping[str, Mapping[Property, Witness | None]]) -> Iterator[str]:
    yield "## Immediate propagate, deferred apply"
    yield ""
    yield "The six properties of beyer2000 §3 over all schedules of its examples, in one database. ✗: some"
    yield "schedule violates it. Algorithm 1 is there to learn from; it is never used."
    yield ""
    yield "| variant | " + " | ".join(Property) + " |"
    yield "|---|" + "---|" * len(Property)
    for variant, row in found.items():
        marks = ["✓" if row[each] is None else "✗" for each in Property]
        yield f"| {variant} | " + " | ".join(marks) + " |"
    yield ""


def disagreements(cells: Sequence[Cell]) -> list[Cell]:
    """Cells in which an algorithm was measured below what it claims on a network that it claims it for."""
    return [
        cell
        for cell in cells
        if cell.network in ALGORITHMS[cell.algorithm].networks
        and cell.level < ALGORITHMS[cell.algorithm].claims[cell.scenario]
        and cell.level < Level.COMPLETE
    ]
