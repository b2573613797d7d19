"""`rollview simulate --example zhuge1996/5` and `--list`: a paper's numbers beside those of a replay."""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table

from rollview.errors import OptionError
from rollview.lab.commands.printing import print_story
from rollview.lab.examples.every import every_example
from rollview.lab.examples.example import Example, Line, Replay
from rollview.lab.simulator.trace import trace_lines


def list_examples(console: Console, as_json: bool) -> int:
    """Names all examples."""
    examples = every_example()
    if as_json:
        click.echo(json.dumps({key: example.title for key, example in examples.items()}, ensure_ascii=False))
        return 0
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("example", style="bold", no_wrap=True)
    table.add_column("what it is about")
    for key, example in examples.items():
        table.add_row(key, example.title)
    console.print(table)
    return 0


def replay_example(console: Console, key: str, trace: Path | None, as_json: bool) -> int:
    """Replays one example; the exit code is 1 if it does not agree with the paper, and no note says why."""
    example = _example(key)
    if trace is not None:
        _write_trace(example, trace)
    replay = example.replay()
    lines = list(example.lines(replay))
    if as_json:
        click.echo(json.dumps(_record(example, replay, lines), ensure_ascii=False))
    else:
        _print(console, example, replay, lines)
        if trace is not None:
            console.print(f"trace: {trace}")
    return 1 if any(not line.agrees and line.difference is None for line in lines) else 0


def _example(key: str) -> Example:
    examples = every_example()
    if key not in examples:
        close = difflib.get_close_matches(key, examples, n=3)
        hint = f"did you mean {', '.join(close)}?" if close else "rollview simulate --list names all"
        raise OptionError(f"there is no example `{key}`", subject=key, hint=hint)
    return examples[key]


def _write_trace(example: Example, file: Path) -> None:
    play = example.play
    if play is None:
        raise OptionError(
            f"{example.key} has no trace: it is not a run of a world with sources and messages",
            subject=example.key,
            hint="leave --trace out",
        )
    played = play.run()
    header = {"algorithm": play.algorithm.name, "network": play.network, "seed": None}
    text = "".join(f"{line}\n" for line in trace_lines(play.world, played.outcome, played.verdict, header))
    file.write_text(text, encoding="utf-8")


def _record(example: Example, replay: Replay, lines: list[Line]) -> dict[str, Any]:
    return {
        "example": example.key,
        "title": example.title,
        "data": list(example.data),
        "schedule": [] if example.play is None else list(example.play.steps),
        "lines": [
            {
                "what": line.what,
                "paper": line.paper,
                "ours": line.ours,
                "agrees": line.agrees,
                "note": None if line.difference is None else line.difference.note,
                "why": None if line.difference is None else line.difference.why,
            }
            for line in lines
        ],
        "story": list(replay.story),
    }


_MARKS = {
    (True, False): "[green]✓[/green]",
    (False, True): "[yellow]differs[/yellow]",
    (False, False): "[red]✗[/red]",
    (True, True): "[red]marked, and the same[/red]",
}
"""By whether ours is what the paper prints, and whether a note explains a difference."""


def _print(console: Console, example: Example, replay: Replay, lines: list[Line]) -> None:
    console.print(f"{example.key}: {example.title}", style="bold", markup=False)
    for given in example.data:
        console.print(f"  {given}", markup=False, soft_wrap=True)
    if replay.story:
        console.print("\nwhat happens", style="bold")
        print_story(console, replay.story)
    console.print()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in ("", "the paper", "ours", ""):
        table.add_column(name, overflow="fold")
    for line in lines:
        mark = (
            "[green]✓[/green]"
            if line.agrees
            else "[yellow]differs[/yellow]"
            if line.difference
            else "[red]✗[/red]"
        )
        table.add_row(line.what, line.paper, line.ours, mark)
    console.print(table)
    for why in dict.fromkeys(line.difference for line in lines if line.difference):
        console.print(f"\ndesign note {why.note}: {why.why}", markup=False, soft_wrap=True)
