"""`rollview simulate --algorithm all`: the consistency spectrum and the costs of all algorithms."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from rollview.algorithms.algorithm import Level, Scenario
from rollview.algorithms.registry import ALGORITHMS
from rollview.lab.commands.printing import level_text
from rollview.lab.simulator.network import NETWORKS
from rollview.lab.simulator.properties import ipda_spectrum
from rollview.lab.tables.measured_costs import CostTables, MeasuredCost, measure_tables, shows_every_state
from rollview.lab.tables.paper_claims import PaperClaim, paper_claims
from rollview.lab.tables.report import LIVE, MEASURES, Findings, disagreements, replace_costs, report
from rollview.lab.tables.spectrum import Cell, Effort, measure_spectrum


def compare_costs(console: Console, write: Path | None, as_json: bool) -> int:
    """Measures the costs of all algorithms alone, prints them, and replaces these tables on the page."""
    costs = measure_tables(list(ALGORITHMS))
    if write is not None:
        write.write_text(replace_costs(write.read_text(encoding="utf-8"), costs), encoding="utf-8")
    if as_json:
        click.echo(json.dumps(_cost_record(costs), ensure_ascii=False))
        return 0
    _print_costs(console, costs)
    if write is not None:
        console.print(f"written: {write}")
    return 0


def compare(console: Console, effort: Effort, jobs: int, write: Path | None, as_json: bool) -> int:
    """Measures all algorithms, prints the tables, and writes them as a page if asked to."""
    found = _measure(console, effort, jobs, as_json)
    if write is not None:
        live = write.read_text(encoding="utf-8").partition(LIVE)[2] if write.exists() else ""
        write.write_text(report(found) + LIVE + live, encoding="utf-8")
    if as_json:
        click.echo(json.dumps(_record(found), ensure_ascii=False))
    else:
        _print_levels(console, found.cells)
        _print_costs(console, found.costs)
        _print_claims(console, found.claims)
        if write is not None:
            console.print(f"written: {write}")
    below = disagreements(found.cells)
    for cell in below:
        what = f"{cell.algorithm}, {cell.scenario}, {cell.network}: {cell.level}"
        console.print(f"[red]below its claim[/red]: {what}\n  {cell.command}", soft_wrap=True)
    return 1 if below else 0


def _measure(console: Console, effort: Effort, jobs: int, as_json: bool) -> Findings:
    names = list(ALGORITHMS)
    total = len(names) * len(Scenario) * len(NETWORKS)
    with Progress(console=console, transient=True, disable=as_json or not console.is_terminal) as bar:
        task = bar.add_task("levels", total=total)
        cells = measure_spectrum(names, effort, jobs, lambda done: bar.advance(task, done))
        bar.add_task("costs", total=None)
        costs = measure_tables(names)
        bar.add_task("IPDA", total=None)
        return Findings(effort, cells, costs, paper_claims(), ipda_spectrum())


def _record(found: Findings) -> dict[str, object]:
    return {
        "levels": [
            {**asdict(cell), "scenario": str(cell.scenario), "level": str(cell.level)} for cell in found.cells
        ],
        **_cost_record(found.costs),
        "counted": [asdict(claim) for claim in found.claims],
        "ipda": {
            variant: {str(each): missed is None for each, missed in row.items()}
            for variant, row in found.ipda.items()
        },
    }


def _cost_record(costs: CostTables) -> dict[str, object]:
    return {
        "costs": [asdict(cost) for cost in costs.bursts],
        "streams": [asdict(cost) for cost in costs.streams],
        "rests": [asdict(rest) for rest in costs.rests],
        "batches": {str(least): [asdict(cost) for cost in each] for least, each in costs.batches.items()},
        "keyed": {str(scenario): [asdict(cost) for cost in each] for scenario, each in costs.keyed.items()},
    }


def _print_levels(console: Console, cells: Sequence[Cell]) -> None:
    found = {(cell.algorithm, cell.scenario, cell.network): cell for cell in cells}
    for scenario in Scenario:
        table = Table(title=f"level reached, {scenario}", title_justify="left")
        table.add_column("algorithm")
        for network in NETWORKS:
            table.add_column(network)
        for name in ALGORITHMS:
            table.add_row(name, *(level_text(found[name, scenario, network].level) for network in NETWORKS))
        console.print(table)


def _print_costs(console: Console, costs: CostTables) -> None:
    """For every table of costs and every row of it: the sweep, and the least that another algorithm needs."""
    rows: dict[str, list[MeasuredCost]] = {}
    for cost in costs.bursts:
        rows.setdefault(f"{cost.relations} relations, {cost.concurrent} concurrent", []).append(cost)
    rows["while others commit"] = list(costs.streams)
    rows |= {f"keys, {scenario}": list(each) for scenario, each in costs.keyed.items()}
    for measure, title in MEASURES.items():
        table = Table(title=title.lower(), title_justify="left")
        table.add_column("world")
        for heading in ("sweep", "least of other complete ones", "net-effect", "least of other weaker ones"):
            table.add_column(heading, justify="right")
        for name, found in rows.items():
            table.add_row(name, *_best_of(found, measure))
        console.print(table)


def _best_of(costs: Sequence[MeasuredCost], measure: str) -> Iterator[str]:
    """The default of each level beside the best of the others; the least of the two is marked."""
    for default, is_complete in (("sweep", True), ("net-effect", False)):
        found = {
            cost.algorithm: round(getattr(cost, measure), 2)
            for cost in costs
            if shows_every_state(cost.algorithm) is is_complete and _is_right(cost.algorithm)
        }
        own = found.pop(default)
        other = min(found, key=lambda name: found[name])
        least = min(own, found[other])
        for value, text in ((own, f"{own:.2f}"), (found[other], f"{other} {found[other]:.2f}")):
            yield f"[bold green]{text}[/]" if value == least else text


def _is_right(name: str) -> bool:
    """Whether an algorithm comes to the right state in the end; what is wrong is cheap."""
    return ALGORITHMS[name].claims[Scenario.SINGLE_UPDATE] is not Level.NONE


def _print_claims(console: Console, claims: Sequence[PaperClaim]) -> None:
    table = Table(title="counted claims of the papers", title_justify="left")
    for title in ("paper", "what", "says", "measured"):
        table.add_column(title)
    for claim in claims:
        table.add_row(
            claim.source, claim.what, claim.says, claim.measured, style="" if claim.holds else "bold red"
        )
    console.print(table)
