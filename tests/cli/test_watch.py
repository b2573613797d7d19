"""`status --watch`, the live table of `run`, and progress: what is shown while something runs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from rich.console import Console

from rollview.cli.event_lines import duration_words, progress_words
from rollview.cli.run import LiveRun
from rollview.cli.status import watch
from rollview.errors import InputError, SourceUnavailable
from rollview.events import Event, Events, Failed, Progress, StepBegun, StepFinished
from rollview.observe.state import HaltStatus, ProjectState, SourceState, ViewState
from rollview.observe.status import Status
from rollview.runtime.progress import EVERY_SECONDS, ROWS, ProgressMeter, watching_files


def _statuses(*found: int | Exception) -> Callable[[], Status]:
    """One after the other; then whoever watches presses Ctrl-C."""
    left = list(found)

    def status() -> Status:
        if not left:
            raise KeyboardInterrupt
        each = left.pop(0)
        if isinstance(each, Exception):
            raise each
        return Status("shop", each, "", (), (), ())

    return status


def test_without_a_terminal_one_block_follows_the_other() -> None:
    page = StringIO()
    watch(Console(file=page, width=80), _statuses(1, SourceUnavailable("it is away"), 2), 0.001, False)
    text = page.getvalue()
    assert text.count("shop at csn 1") == 2, "the last one stays, with the reason"
    assert text.count("error: it is away") == 1
    assert text.count("shop at csn 2") == 1
    assert "\x1b" not in text


def test_as_json_there_is_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    watch(Console(file=StringIO()), _statuses(1, 2, 3), 0.001, True)
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["last_csn"] for line in lines] == [1, 2, 3]


def test_in_a_terminal_it_is_redrawn_in_place() -> None:
    page = StringIO()
    watch(Console(file=page, force_terminal=True, width=60, height=20), _statuses(1, 2), 0.001, False)
    text = page.getvalue()
    assert "q or Ctrl-C ends" in text
    assert "\x1b[1A" in text, "it goes up to the first line again"


def test_what_does_not_pass_ends_it() -> None:
    with pytest.raises(InputError):
        watch(Console(file=StringIO()), _statuses(1, InputError("gone")), 0.001, False)


def _drawn(live: LiveRun, height: int = 30) -> str:
    console = Console(file=StringIO(), width=140, highlight=False)
    with console.capture() as capture:
        console.print(live.drawn(height))
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def _halted(reason: str) -> HaltStatus | None:
    return HaltStatus(reason, "EvaluationError", "", 0, "") if reason else None


def _view(name: str, shown: int, high_water: int, lag: float, stopped: str = "") -> ViewState:
    state = "stopped" if stopped else "catching up" if lag else "running"
    known = (0, 42 - shown, lag, lag > 0, None, False, 1, "", 0.0, 0.0, None, (), ())
    return ViewState(name, "deferred", "sweep", state, _halted(stopped), (), shown, None, high_water, *known)


def _state(*views: ViewState) -> ProjectState:
    sources = (
        SourceState("crm", (), 1200, 0, 1.0, time.time() - 3, 0, 0, None),
        SourceState("shop", (), 0, 0, None, 0.0, 0, 0, _halted("it is away")),
    )
    return ProjectState(time.time(), 42, None, sources, views, (), 0.0, (), (), None)


def test_the_live_table() -> None:
    live = LiveRun("shop")
    assert "starting" in _drawn(live)
    live.show(
        _state(
            _view("sold", 40, 42, 75.0),
            _view("total", 42, 42, 0.0),
            _view("big", 0, 0, 0.0),
            _view("broken", 1, 1, 0.0, "a division by zero"),
        )
    )
    for event in (
        StepFinished("apply", "sold, total", 3, 0.42, {}, 1),
        StepBegun("load", "big"),
        Progress("load", "big", 30, 120, ROWS, 3.0, 9.0),
    ):
        live(event)
    text = _drawn(live)
    for line in (
        "shop at csn 42",
        "crm             1,200   3.0 s ago",
        "shop                0   nothing yet      it is away",
        "sold     catching up",
        "75 s   apply: 1 row, 0.4 s",
        "total    running",
        "loading 30 of about 120 rows (25 %), 9.0 s left",
        "stopped: a division by zero",
        "load big: 30 of about 120 rows (25 %), 9.0 s left; Ctrl-C stops",
    ):
        assert line in text, (line, text)
    live(Failed("run", "it broke", "ValueError"))
    assert "loading" not in _drawn(live)
    live.show(_state(), is_last=True)
    assert "Ctrl-C" not in _drawn(live)


def test_of_many_views_those_are_shown_that_need_a_look() -> None:
    live, fine = LiveRun("shop"), [_view(f"v{number}", 1, 1, 0.0) for number in range(200)]
    live.show(_state(*fine, _view("broken", 1, 1, 0.0, "why")))
    text = _drawn(live, height=24)
    assert "broken" in text
    assert "more" in text
    assert len(text.splitlines()) <= 24


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.04, "0.0 s"), (9.94, "9.9 s"), (45, "45 s"), (119, "119 s"), (200, "3 min"), (7500, "2 h 5 min")],
)
def test_durations_as_people_say_them(seconds: float, words: str) -> None:
    assert duration_words(seconds) == words


def test_progress_without_a_total() -> None:
    assert progress_words(Progress("load", "v", 1200, None, ROWS, 1.0, None)) == "1,200 rows"
    assert progress_words(Progress("load", "v", 0, 0, "transactions", 1.0, None)) == "0 of 0 transactions"


class _Received:
    def __init__(self) -> None:
        self.events: list[Any] = []
        self.emitter = Events()
        self.emitter.subscribe(self._take)

    def _take(self, event: Event) -> None:
        self.events.append(event)


def test_progress_is_reported_once_a_second_with_what_is_left() -> None:
    received, now = _Received(), [0.0]
    meter = ProgressMeter(received.emitter, "load", "v", ROWS, clock=lambda: now[0])
    for step in range(41):
        now[0] = step / 10
        meter.at(step * 10, 1000)
    assert [(each.done, each.total) for each in received.events] == [
        (100, 1000),
        (200, 1000),
        (300, 1000),
        (400, 1000),
    ]
    assert [round(each.left_seconds, 6) for each in received.events] == [9.0, 8.0, 7.0, 6.0]
    assert received.events[0].seconds == 1.0


def test_rows_in_finished_files_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollview.runtime.progress.EVERY_SECONDS", 0.02)
    received = _Received()
    (tmp_path / "unfinished.parquet").write_bytes(b"PAR1")
    with watching_files(ProgressMeter(received.emitter, "load", "v", ROWS), tmp_path, lambda: 50):
        for number in range(3):
            parquet.write_table(pa.table({"a": range(20)}), tmp_path / f"{number}.parquet")
            time.sleep(0.2)
    assert [each.done for each in received.events][-1] == 60
    assert received.events[-1].total == 60, "an estimate that was too low grows"
    assert {each.total for each in received.events if each.done < 50} == {50}
    assert EVERY_SECONDS == 1.0


def test_what_is_quick_is_not_watched(tmp_path: Path) -> None:
    asked: list[int] = []
    received = _Received()
    with watching_files(
        ProgressMeter(received.emitter, "load", "v", ROWS), tmp_path, lambda: asked.append(1)
    ):
        pass
    assert (asked, received.events) == ([], [])
