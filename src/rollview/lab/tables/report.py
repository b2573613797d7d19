"""The two tables of the literature, as Markdown: levels reached and costs, as they were measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rollview.algorithms.algorithm import Level, Scenario
from rollview.algorithms.registry import ALGORITHMS
from rollview.lab.simulator.network import NETWORKS
from rollview.lab.simulator.properties import Property, Witness
from rollview.lab.tables.measured_costs import (
    KEYED_TRANSACTIONS,
    KEYED_WORLDS,
    REST_RATES,
    REST_RELATIONS,
    REST_TRANSACTIONS,
    REST_WORLDS,
    STREAM_RATES,
    STREAM_TRANSACTIONS,
    CostTables,
    MeasuredCost,
    MeasuredRest,
    are_least,
)
from rollview.lab.tables.paper_claims import PaperClaim
from rollview.lab.tables.spectrum import Cell, Effort

_SCENARIO_TITLES = {
    Scenario.SINGLE_UPDATE: "Single-update transactions",
    Scenario.SOURCE_LOCAL: "Source-local transactions",
    Scenario.GLOBAL: "Global transactions",
}
LIVE = "## On live servers\n"
"""The rest of the page is measured elsewhere (`benchmarks/algorithms.py`), and is kept."""

_CLAIMS = "## Counted claims"

_LEVELS = """\
### What a lower level saves

The same stream, propagated in intervals of so many transactions at least. `complete` uses the sweep, all
lower levels use its net effect. Longer intervals save sub-queries and round trips at every level; the net
effect saves rows, those that join what comes and goes inside of an interval. `conventional` is there as the
other extreme: it corrects nothing, is often wrong, and takes messages one by one. Correcting asks no source,
so `weak` and `convergence` would save no look-up by leaving it out.
"""

MEASURES = {
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
    costs: CostTables
    claims: Sequence[PaperClaim]
    ipda: Mapping[str, Mapping[Property, Witness | None]]


def report(found: Findings) -> str:
    """The whole page."""
    parts = [
        _head(found),
        _spectrum(found.cells),
        cost_lines(found.costs),
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

_COSTS = "## What a transaction costs\n"
_PRICES = f"""\
{_COSTS}
Chains of relations, each at its own source (one source for algorithms that know only one), a fifo network,
insertions and deletions of single rows. *Concurrent*: how many other transactions are committed and reported
before the first question is answered. Averages over 20 worlds. A *query* is one evaluation of the join;
it takes several sub-queries where the relations are at several sources. What several forward queries of a
step want from one source at the same time is one sub-query.

**Bold**: the least among the algorithms that are complete for updates of single rows. `ipda` is not
compared: its price is paid by the writers, who join at the source, and that is not counted. Rows corrected
are work at the warehouse, which no source notices; no best is marked there.
"""

REST = """\
### While transactions keep coming

{relations} relations, {transactions} transactions of one row each, {worlds} worlds. In every round of
look-ups so many transactions are committed; the answers see them, and the messages arrive before the answers.
Before the slash: how many states are shown for 100 transactions before the last one is committed. Behind it:
how many of 100 transactions pass at most without a state; 100 means that nothing is shown until the writers
stop. What needs no rest falls behind where it answers one update after the other, and shows the states later.
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


def has_costs(page: str) -> bool:
    """Whether a page has tables of costs, and something behind them."""
    return _COSTS in page and _CLAIMS in page.partition(_COSTS)[2]


def replace_costs(page: str, costs: CostTables) -> str:
    """A page with its tables of costs measured again."""
    before, _, rest = page.partition(_COSTS)
    return before + "\n".join(cost_lines(costs)) + "\n" + _CLAIMS + rest.partition(_CLAIMS)[2]


def cost_lines(costs: CostTables) -> Iterator[str]:
    """The tables of costs."""
    yield from _prices(costs.bursts)
    yield from _streams(costs.streams)
    if costs.rests:
        yield from rest_section(costs.rests)
    yield from _keyed(costs.keyed)
    yield from _levels(costs.batches)


def _prices(costs: Sequence[MeasuredCost]) -> Iterator[str]:
    yield _PRICES
    names = list(dict.fromkeys(cost.algorithm for cost in costs))
    columns = list(dict.fromkeys((cost.relations, cost.concurrent) for cost in costs))
    found = {(cost.algorithm, cost.relations, cost.concurrent): cost for cost in costs}
    for measure, title in MEASURES.items():
        yield f"### {title}"
        yield ""
        yield "| relations / concurrent | " + " | ".join(f"{n} / {k}" for n, k in columns) + " |"
        yield "|---|" + "--:|" * len(columns)
        least = {column: _least([found[name, *column] for name in names], measure) for column in columns}
        for name in names:
            values = [_figure(found[name, *column], measure, least[column]) for column in columns]
            yield f"| {name} | " + " | ".join(values) + " |"
        yield ""


def _least(costs: Sequence[MeasuredCost], measure: str) -> frozenset[str]:
    return frozenset() if measure == "rows_compensated" else are_least(costs, measure)


def _figure(cost: MeasuredCost, measure: str, least: frozenset[str]) -> str:
    text = f"{getattr(cost, measure):.2f}"
    return f"**{text}**" if cost.algorithm in least else text


def _streams(costs: Sequence[MeasuredCost]) -> Iterator[str]:
    yield "### While others commit"
    yield ""
    rates = " : ".join(map(str, STREAM_RATES))
    number = len(STREAM_RATES)
    yield f"{number} relations that change at rates of {rates}; {STREAM_TRANSACTIONS} transactions."
    yield "Commits, messages, questions and new intervals take turns, so that answers see what is not known"
    yield "yet. Averages per transaction over 20 worlds."
    yield ""
    yield from _one_table(costs)


def _keyed(found: Mapping[Scenario, Sequence[MeasuredCost]]) -> Iterator[str]:
    for scenario, costs in found.items():
        yield f"### Keys and foreign keys, {_SCENARIO_TITLES[scenario].lower()}"
        yield ""
        yield "Up to five tables at up to three sources, views that show some of the columns;"
        yield f"{KEYED_TRANSACTIONS} transactions while others commit, averages over {KEYED_WORLDS} worlds."
        yield "Algorithms that need every key in the view, or a single source, cannot serve these."
        yield ""
        yield from _one_table(costs)


def _levels(found: Mapping[int, Sequence[MeasuredCost]]) -> Iterator[str]:
    """What a lower level saves, by the length of intervals."""
    yield _LEVELS
    for measure in ("questions", "rounds", "rows_shipped", "rows_compensated"):
        names = [cost.algorithm for cost in next(iter(found.values()))]
        yield f"| {MEASURES[measure].lower()} | " + " | ".join(map(str, found)) + " |"
        yield "|---|" + "--:|" * len(found)
        for number, name in enumerate(names):
            yield (
                f"| {name} | "
                + " | ".join(f"{getattr(c[number], measure):.2f}" for c in found.values())
                + " |"
            )
        yield ""


def _one_table(costs: Sequence[MeasuredCost]) -> Iterator[str]:
    titles = [title.split(" per ")[0].lower() for title in MEASURES.values()]
    yield "| algorithm | " + " | ".join(titles) + " |"
    yield "|---|" + "--:|" * len(MEASURES)
    least = {measure: _least(costs, measure) for measure in MEASURES}
    for cost in costs:
        values = [_figure(cost, measure, least[measure]) for measure in MEASURES]
        yield f"| {cost.algorithm} | " + " | ".join(values) + " |"
    yield ""


def rest_section(rests: Sequence[MeasuredRest]) -> Iterator[str]:
    """How often algorithms show a state while transactions keep coming."""
    yield REST.format(relations=REST_RELATIONS, transactions=REST_TRANSACTIONS, worlds=REST_WORLDS)
    yield "| transactions per round | " + " | ".join(f"{rate:g}" for rate in REST_RATES) + " |"
    yield "|---|" + "--:|" * len(REST_RATES)
    found = {(each.algorithm, each.per_round): each for each in rests}
    for name in dict.fromkeys(each.algorithm for each in rests):
        cells = [found[name, rate] for rate in REST_RATES]
        needs = " (needs rest)" if ALGORITHMS[name].needs_rest else ""
        shown = " | ".join(f"{100 * each.shown:.0f} / {100 * each.longest_wait:.0f}" for each in cells)
        yield f"| {name}{needs} | {shown} |"
    yield ""


def _claims(claims: Sequence[PaperClaim]) -> Iterator[str]:
    yield _CLAIMS
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
