"""How contents, verdicts and stories look in a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rollview.algorithms.algorithm import Level
from rollview.lab.memory.bag import MemoryBag
from rollview.lab.simulator.checker import Verdict

LEVEL_STYLES = {
    Level.NONE: "bold red",
    Level.CONVERGENCE: "yellow",
    Level.WEAK: "yellow",
    Level.STRONG: "cyan",
    Level.COMPLETE: "bold green",
}


def level_text(level: Level) -> Text:
    """The level's name in its colour."""
    return Text(str(level), style=LEVEL_STYLES[level])


def contents_text(contents: dict[str, MemoryBag]) -> str:
    """The contents of all views, one line each."""
    if len(contents) == 1:
        return str(next(iter(contents.values())))
    return "\n".join(f"{name}: {bag}" for name, bag in contents.items())


def print_witness(console: Console, verdict: Verdict) -> None:
    """Why a level was missed: the state shown beside the closest source states."""
    witness = verdict.witness
    if witness is None:
        return
    console.print(
        Text.assemble(
            "missed ", (str(witness.missed), "bold red"), f" at state {witness.state}: {witness.reason}"
        )
    )
    table = Table(box=None, padding=(0, 2), show_header=False)
    table.add_row("shown", contents_text(witness.shown), style="red")
    for versions, contents in witness.closest:
        at = ", ".join(f"{source}:{version}" for source, version in versions.items())
        table.add_row(f"view at {at}", contents_text(contents))
    console.print(table)


def print_story(console: Console, story: Iterable[str]) -> None:
    """The steps of a run, numbered."""
    for number, line in enumerate(story, 1):
        console.print(Text(f"{number:4}  {line}"))
