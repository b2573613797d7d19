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
from rollview.simulator.network import NETWORKS
from rollview.simulator.price import Price, measure_prices
from rollview.simulator.report import disagreements, report
from rollview.simulator.spectrum import Cell, Effort, measure_spectrum

_RELATIONS = (2, 3, 4, 5, 6)
_CONCURRENT = (0, 1, 3, 10)


def compare(console: Console, effort: Effort, jobs: int, write: Path | None, as_json: bool) -> int:
    """Measures all algorithms, prints both tables, and writes them as a page if asked to."""
    names = list(ALGORITHMS)
    total = len(names) * len(Scenario) * len(NETWORKS)
    with Progress(console=console, transient=True, disable=as_json or not console.is_terminal) as bar:
        task = bar.add_task("levels", total=total)
        cells = measure_spectrum(names, effort, jobs, lambda done: bar.advance(task, done))
        bar.add_task("costs", total=None)
        prices = measure_prices(names, _RELATIONS, _CONCURRENT)
    if write is not None:
        write.write_text(report(cells, prices, effort), encoding="utf-8")
    if as_json:
        record = {"levels": [_record(cell) for cell in cells], "costs": [asdict(price) for price in prices]}
        click.echo(json.dumps(record, ensure_ascii=False))
    else:
        _print_levels(console, cells)
        _print_costs(console, prices)
        if write is not None:
            console.print(f"written: {write}")
    below = disagreements(cells)
    for cell in below:
        console.print(
            f"[red]below its claim[/red]: {cell.algorithm}, {cell.scenario}, {cell.network}: {cell.level}\n"
            f"  {cell.command}",
            soft_wrap=True,
        )
    return 1 if below else 0


def _record(cell: Cell) -> dict[str, object]:
    return {**asdict(cell), "scenario": str(cell.scenario), "level": str(cell.level)}


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


def _print_costs(console: Console, prices: Sequence[Price]) -> None:
    table = Table(title="cost per transaction, 3 relations", title_justify="left")
    table.add_column("algorithm")
    for title in ("concurrent", "queries", "sub-queries", "round trips", "rows shipped", "rows corrected"):
        table.add_column(title, justify="right")
    for price in prices:
        if price.relations == 3 and price.concurrent in (0, 10):
            measures = (
                price.queries,
                price.questions,
                price.rounds,
                price.rows_shipped,
                price.rows_compensated,
            )
            table.add_row(price.algorithm, str(price.concurrent), *(f"{value:.2f}" for value in measures))
    console.print(table)
