"""One page of the papers: everything numbered in one table, and every example replayed, as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from rich.console import Console

from rollview.algorithms.algorithm import Algorithm
from rollview.algorithms.registry import ALGORITHMS
from rollview.lab.examples.every import every_example
from rollview.lab.examples.example import Example, Line, Replay
from rollview.lab.examples.strobe import example_world, transaction_world
from rollview.lab.tables.papers import Entry, every_entry

Replays = Mapping[str, Replay]

_HEAD = """\
# The papers, line by line

Written by `rollview simulate --example all --write docs/reference/papers.md`, not by hand. What a paper
prints is data of the example; what is ours was computed by running it.

## Everything in one table

*Runs on*: *Spark* means that the code that is simulated maintains views over any source, too (the test on
live servers has PostgreSQL and SQLite). Servers are named where more than an algorithm is meant: a policy, a
stored table, an answer. A *statement* says something of what runs elsewhere in the table. *Paper and ours*:
how many of the lines that the example prints are the same, and the others; the reasons are
[below](#the-examples). A ✓ alone: the tests try what has no number.

| paper | what | runs on | tests | paper and ours |
|---|---|---|---|---|
"""


def write_papers(console: Console, file: Path) -> int:
    """Replays every example and writes the page; the exit code is 1 if a difference has no explanation."""
    replays = {key: example.replay() for key, example in every_example().items()}
    file.write_text(papers_page(replays), encoding="utf-8")
    console.print(f"written: {file}")
    return 1 if list(unexplained(replays)) else 0


def unexplained(replays: Replays) -> Iterator[tuple[str, Line]]:
    """Lines that differ from the paper without a note that says why, or that are marked and do not differ."""
    for key, example in every_example().items():
        for line in example.lines(replays[key]):
            if line.agrees is (line.difference is not None):
                yield key, line


def papers_page(replays: Replays) -> str:
    """The whole page."""
    rows = "".join(f"{_row(entry, replays)}\n" for entry in every_entry())
    parts = (line for key, example in every_example().items() for line in _example(example, replays[key]))
    return f"{_HEAD}{rows}\n## The examples\n\n" + "\n".join(parts) + "\n"


def _row(entry: Entry, replays: Replays) -> str:
    tests = ", ".join(_test(test) for test in entry.tests)
    cells = (f"{entry.paper} {entry.item}", entry.what, runs_on(entry), tests, _numbers(entry, replays))
    return f"| {' | '.join(cells)} |"


def _test(test: str) -> str:
    file, _, name = test.partition("::")
    return f"[`{name or Path(file).stem}`](../../tests/{file})"


def runs_on(entry: Entry) -> str:
    """Where something runs: algorithms as the registry says, other things at the servers that are named."""
    if entry.reason:
        return f"simulator only: {entry.reason}"
    if not entry.runs:
        return f"simulator, {entry.servers}" if entry.servers else "a statement"
    places: dict[str, list[str]] = {}
    for name in entry.runs:
        place = f"simulator, {entry.servers}" if entry.servers else _place(ALGORITHMS[name])
        places.setdefault(place, []).append(f"`{name}`")
    return "; ".join(f"{', '.join(names)}: {place}" for place, names in places.items())


def _place(algorithm: Algorithm) -> str:
    if reason := refused_on_spark(algorithm):
        return f"simulator; not on Spark: {reason}"
    partly = next(filter(None, _live_refusals(algorithm)), "")
    return f"simulator, Spark (not every view: {partly})" if partly else "simulator, Spark"


def refused_on_spark(algorithm: Algorithm) -> str:
    """Why an algorithm maintains no view on live sources; empty if it maintains some."""
    reasons = _live_refusals(algorithm)
    return "" if "" in reasons else reasons[0]


def _live_refusals(algorithm: Algorithm) -> list[str]:
    """For a join and for a view of one relation."""
    views = (*example_world().views, *transaction_world().views)
    return [algorithm.live_refusal(view) for view in views]


def _numbers(entry: Entry, replays: Replays) -> str:
    if not entry.example:
        return "✓"
    example = every_example()[entry.example]
    lines = list(example.lines(replays[entry.example]))
    same = sum(line.agrees for line in lines)
    others = [f"{line.what}: {line.paper} / {line.ours}" for line in lines if not line.agrees]
    link = f"[{same} of {len(lines)}](#{_anchor(example)})"
    return "; ".join([link, *others])


def _heading(example: Example) -> str:
    return f"{example.key.replace('/', ' ')}: {example.title}"


def _anchor(example: Example) -> str:
    """The address that GitHub and MyST give to the heading."""
    kept = (each for each in _heading(example).lower() if each.isalnum() or each in " -_")
    return "".join(kept).replace(" ", "-")


def _example(example: Example, replay: Replay) -> Iterator[str]:
    yield f"### {_heading(example)}"
    yield ""
    yield "```text"
    yield from example.data
    yield "```"
    yield ""
    if example.play is not None and example.play.steps:
        play = example.play
        yield f"Schedule, on the network `{play.network}`: {', '.join(play.steps)}."
        yield ""
    yield "| | paper | ours | |"
    yield "|---|---|---|---|"
    lines = list(example.lines(replay))
    for line in lines:
        why = "✓" if line.agrees else "" if line.difference is None else line.difference.why
        yield f"| {_cell(line.what)} | {_cell(line.paper)} | {_cell(line.ours)} | {why} |"
    yield ""
    notes = dict.fromkeys(line.difference.note for line in lines if line.difference)
    if notes:
        links = ", ".join(f"[design note {note.lstrip('0')}](../design/{_NOTES[note]})" for note in notes)
        yield f"The differences: {links}."
        yield ""


_NOTES = {"006": "006-where-the-papers-err.md"}


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
