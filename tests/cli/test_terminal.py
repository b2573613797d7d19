"""How results and failures look: rows, values, traces; what machines get."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from io import StringIO
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from rollview.cli import main as main_group
from rollview.cli.answers import Page, print_page
from rollview.cli.failures import plain_line
from rollview.cli.main import COMMANDS
from rollview.cli.query import Duration
from rollview.cli.status import print_status
from rollview.cli.terminal import plain
from rollview.config.durations import seconds_of
from rollview.config.project_file import read_project_file
from rollview.errors import RollviewError
from rollview.observe.status import Status, UnfinishedStatus

JAVA = """An error occurred while calling o65.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure
\tat org.apache.spark.scheduler.DAGScheduler.runJob(DAGScheduler.scala:1063)
Caused by: java.io.IOException: outer
\tat somewhere
Caused by: java.nio.file.NoSuchFileException: /lake/part.parquet
\tat elsewhere
"""


def test_of_a_java_trace_the_innermost_cause_is_shown() -> None:
    assert plain_line(RuntimeError(JAVA)) == "java.nio.file.NoSuchFileException: /lake/part.parquet"
    short = "An error occurred.\n: org.apache.spark.SparkException: Job aborted\n\tat x"
    assert plain_line(RuntimeError(short)) == "org.apache.spark.SparkException: Job aborted"
    assert plain_line(ValueError("two\nlines")) == "ValueError: two"
    assert plain_line(AssertionError()) == "AssertionError"
    assert len(plain_line(ValueError("x" * 5000))) == 400


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (RuntimeError(JAVA), 1, "error: java.nio.file.NoSuchFileException: /lake/part.parquet"),
        (
            RollviewError("the thing broke", subject="x", hint="mend it"),
            1,
            "the thing broke\n  hint: mend it",
        ),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_failures(error: BaseException, code: int, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def failing() -> None:
        raise error

    monkeypatch.setitem(COMMANDS["Inspect"], "failing", ("test_terminal:_failing", ""))
    monkeypatch.setitem(globals(), "_failing", failing)
    result = CliRunner().invoke(main_group, ["failing"])
    assert result.exit_code == code
    assert said in result.stderr
    assert "Traceback" not in result.output
    if not said:
        assert result.output == ""
    elif code == 1:
        assert "Traceback" in CliRunner().invoke(main_group, ["failing", "--debug"]).stderr


def _printed(page: Page, width: int = 80) -> str:
    stream = StringIO()
    print_page(Console(file=stream, width=width, highlight=False), page)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())


def test_rows_read_well() -> None:
    rows = (("CA", 3, Decimal("182.40")), (None, 12, Decimal("9.00")))
    assert _printed(Page(("state", "n", "total"), rows, 7)).splitlines() == [
        "state    n    total",
        "───────────────────",
        "CA       3   182.40",
        "NULL    12     9.00",
        "… and 5 more",
    ]
    assert _printed(Page(("state",), (), 0)).endswith("no rows")


@given(st.lists(st.tuples(st.text(), st.none() | st.integers() | st.booleans() | st.binary()), max_size=5))
def test_no_row_breaks_the_table(rows: list[tuple[Any, ...]]) -> None:
    """Markup, control characters and long text stay inside the table's width, and nothing raises."""
    lines = _printed(Page(("[b]", "x"), tuple(rows), len(rows)), width=40).splitlines()
    assert all("\x1b" not in line for line in lines)


def test_values_as_json() -> None:
    values = {
        "d": Decimal("1.10"),
        "t": datetime(2026, 1, 31, 12, tzinfo=UTC),
        "day": date(2026, 1, 31),
        "b": b"\x00\xff",
        "nan": float("nan"),
        "rows": (1, None, True),
    }
    text = json.dumps(plain(values), allow_nan=False)
    assert json.loads(text) == {
        "d": "1.10",
        "t": "2026-01-31T12:00:00+00:00",
        "day": "2026-01-31",
        "b": "00ff",
        "nan": "nan",
        "rows": [1, None, True],
    }


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("0s", 0), ("500ms", 0.5), ("500 milliseconds", 0.5), ("90", 90), ("90s", 90), ("1 second", 1)),
        *(("1.5m", 90), ("5 minutes", 300), ("2h", 7200), ("1 hour", 3600), ("7d", 604800)),
        (" 2 days ", 172800),
    ],
)
def test_durations(text: str, seconds: float, tmp_path: Path) -> None:
    """The same in an option, in the project file and in a view."""
    assert seconds_of(text) == pytest.approx(seconds)
    assert Duration().convert(text, None, None) == pytest.approx(seconds)
    (tmp_path / "rollview.yml").write_text(
        f"name: p\nstep_seconds: '{text}'\nsources: {{s: {{type: sqlite, path: ./s.db}}}}\n"
    )
    assert read_project_file(tmp_path).step_seconds == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "soon", "-1s", "5 weeks", "1h30m", "5 ms s", "h"])
def test_what_is_no_duration(text: str) -> None:
    assert seconds_of(text) is None
    with pytest.raises(click.BadParameter, match="is not a valid duration"):
        Duration().convert(text, None, None)


def test_status_says_of_an_unfinished_step_who_finishes_it() -> None:
    steps = (
        UnfinishedStatus("capture"),
        UnfinishedStatus("apply v", "apply step 3 of v cannot be finished", "`rollview setup --reload v`"),
    )
    output = StringIO()
    found = Status("shop", 0, "", sources=(), views=(), unfinished=steps)
    print_status(Console(file=output, width=100), found)
    assert output.getvalue().splitlines()[-3:] == [
        "unfinished: capture; the next run finishes it",
        "unfinished: apply step 3 of v cannot be finished",
        "  hint: `rollview setup --reload v`",
    ]
