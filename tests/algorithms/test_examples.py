"""Every example of the five papers, replayed: the paper's numbers beside ours, and the page of them."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from rollview.algorithms.registry import ALGORITHMS
from rollview.lab.examples.every import every_example
from rollview.lab.examples.example import Replay, agree
from rollview.lab.tables.papers import every_entry
from rollview.lab.tables.papers_page import papers_page, refused_on_spark, runs_on, unexplained

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "papers.md"
OURS = {"sweep", "net-effect"}
"""Algorithms that no paper has."""

LONG = {
    "beyer2000/1.2",
    "beyer2000/4.1",
    "beyer2000/4.3",
    "beyer2000/4.4",
    "beyer2000/4.6",
    "beyer2000/4.6-order",
    "zhuge1996/figure-2",
}
"""They run through all schedules, or through many worlds."""

KEYS = [pytest.param(key, marks=pytest.mark.slow) if key in LONG else key for key in every_example()]
TESTS = sorted({test for entry in every_entry() for test in entry.tests})


@cache
def _replayed(key: str) -> Replay:
    return every_example()[key].replay()


@pytest.mark.parametrize("key", KEYS)
def test_a_replay_agrees_with_its_paper(key: str) -> None:
    """Line by line it does, or the example names the design note that says why; no mark is needless."""
    example, replay = every_example()[key], _replayed(key)
    assert list(replay.values) == list(example.printed)
    assert set(example.differs) <= set(example.printed)
    for line in example.lines(replay):
        assert line.agrees is (line.difference is None), line


def test_what_agrees() -> None:
    assert agree("∅", "∅") and not agree("∅", "[1]")
    assert agree("at most 6", "6") and not agree("at most 6", "9")
    assert agree("at least strong", "complete") and not agree("at least strong", "weak")


@pytest.mark.slow
def test_the_page_is_what_the_command_writes() -> None:
    """`rollview simulate --example all --write docs/reference/papers.md` writes it again."""
    replays = {key: _replayed(key) for key in every_example()}
    assert list(unexplained(replays)) == []
    assert PAGE.read_text(encoding="utf-8") == papers_page(replays)


def test_the_page_has_every_example_with_what_the_paper_prints() -> None:
    """Without replaying the long ones: a changed example shows here."""
    text = PAGE.read_text(encoding="utf-8")
    for key, example in every_example().items():
        assert f"### {key.replace('/', ' ')}: {example.title}\n" in text
        assert all(f"| {what} | {paper} |" in text for what, paper in example.printed.items()), key


@pytest.mark.parametrize("test", TESTS)
def test_every_test_that_the_table_names_exists(test: str) -> None:
    file, _, name = test.partition("::")
    text = (ROOT / "tests" / file).read_text(encoding="utf-8")
    assert f"\ndef {name}(" in text if name else "\ndef test_" in text


def test_every_algorithm_and_every_example_is_in_the_table() -> None:
    named = {name for entry in every_entry() for name in entry.runs}
    assert named | OURS == set(ALGORITHMS)
    assert {entry.example for entry in every_entry() if entry.example} == set(every_example())


def test_servers_that_the_table_names_are_those_of_the_tests() -> None:
    """A server is only named where a test of the entry has one."""
    marks = {
        "PostgreSQL": "PostgresServer|def postgres|dsn",
        "MariaDB": "MariaDBServer",
        "SQLite": "sqlite|Shop",
        "Delta": "type: delta",
        "files": "type: files",
    }
    for entry in every_entry():
        files = {test.partition("::")[0] for test in entry.tests}
        text = "".join((ROOT / "tests" / file).read_text(encoding="utf-8") for file in files)
        for server in filter(None, entry.servers.split(", ")):
            assert re.search(marks[server], text), (entry.item, server)


def test_nothing_is_in_the_simulator_only_without_a_reason() -> None:
    """A reason is a property of the thing: the registry's refusal, or the entry's own."""
    for entry in every_entry():
        text = runs_on(entry)
        assert text != "simulator", entry
        assert "simulator only" not in text or entry.reason, entry


def test_no_algorithm_waits_for_drivers_that_serve_it() -> None:
    refusals = {name: refused_on_spark(algorithm) for name, algorithm in ALGORITHMS.items()}
    assert [name for name, reason in refusals.items() if "yet" in reason] == []


def test_the_readme_counts_published_algorithms() -> None:
    """The sweep and its net effect are ours; Figure 10 to the letter is not counted beside Figure 10."""
    words = dict(
        zip((16, 17, 18, 19, 20), ("Sixteen", "Seventeen", "Eighteen", "Nineteen", "Twenty"), strict=True)
    )
    count = len(set(ALGORITHMS) - OURS - {"rolling-as-printed"})
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.search(r"\*\*(\w+) published algorithms\*\*", text)[1] == words[count]  # type: ignore[index]
