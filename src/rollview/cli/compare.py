"""`rollview simulate --algorithm all`: the consistency spectrum and the costs of all algorithms."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from rollview.algebra.levels import Scenario
from rollview.algorithms.registry import ALGORITHMS
from rollview.cli.tables import level_text
from rollview.simulator.ipda.checker import ipda_spectrum
from rollview.simulator.measured_costs import MeasuredCost, measure_costs, measure_stream
from rollview.simulator.network import NETWORKS
from rollview.simulator.paper_claims import PaperClaim, paper_claims
from rollview.simulator.report import LIVE, Findings, disagreements, report
from rollview.simulator.spectrum import Cell, Effort, measure_spectrum

_RELATIONS = (2, 3, 4, 5, 6)
_CONCURRENT = (0, 1, 3, 10)


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
        _print_costs(console, found.costs_measured)
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
        costs_measured = measure_costs(names, _RELATIONS, _CONCURRENT)
        streams = [measure_stream(name) for name in names]
        bar.add_task("IPDA", total=None)
        return Findings(effort, cells, costs_measured, streams, paper_claims(), ipda_spectrum())


def _record(found: Findings) -> dict[str, object]:
    return {
        "levels": [
            {**asdict(cell), "scenario": str(cell.scenario), "level": str(cell.level)} for cell in found.cells
        ],
        "costs": [asdict(cost) for cost in found.costs_measured],
        "streams": [asdict(cost) for cost in found.streams],
        "counted": [asdict(claim) for claim in found.claims],
        "ipda": {
            variant: {str(each): missed is None for each, missed in row.items()}
            for variant, row in found.ipda.items()
        },
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


def _print_costs(console: Console, costs_measured: Sequence[MeasuredCost]) -> None:
    table = Table(title="cost per transaction, 3 relations", title_justify="left")
    table.add_column("algorithm")
    for title in ("concurrent", "queries", "sub-queries", "round trips", "rows shipped", "rows corrected"):
        table.add_column(title, justify="right")
    for cost in costs_measured:
        if cost.relations == 3 and cost.concurrent in (0, 10):
            measures = (
                cost.queries,
                cost.questions,
                cost.rounds,
                cost.rows_shipped,
                cost.rows_compensated,
            )
            table.add_row(cost.algorithm, str(cost.concurrent), *(f"{value:.2f}" for value in measures))
    console.print(table)


def _print_claims(console: Console, claims: Sequence[PaperClaim]) -> None:
    table = Table(title="counted claims of the papers", title_justify="left")
    for title in ("paper", "what", "says", "measured"):
        table.add_column(title)
    for claim in claims:
        table.add_row(
            claim.source, claim.what, claim.says, claim.measured, style="" if claim.holds else "bold red"
        )
    console.print(table)
