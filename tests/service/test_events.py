"""Events: stamped and handed on in one place, whatever subscribers do; documented; readable in the log."""

from __future__ import annotations

import dataclasses
import json
import logging
import re
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rollview import events
from rollview.errors import NotSetUp
from rollview.events import (
    Applied,
    Captured,
    Event,
    Events,
    Failed,
    Halted,
    Retry,
    StepBegun,
    StepFinished,
    Verified,
    Waiting,
)
from rollview.run.upkeep import BackgroundVerify
from rollview.runtime.event_log import log_event
from rollview.runtime.progress import StepTimer, timed_step
from rollview.upkeep.verify import Verification, VerifyDriver

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "events.md"
CLASSES = sorted(Event.__subclasses__(), key=lambda each: each.__name__)


def test_the_page_lists_every_event_with_its_fields() -> None:
    page = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \|([^|]*)\|", page, re.MULTILINE)
    listed = {name: (event, tuple(re.findall(r"`(\w+)`", fields))) for name, event, fields in rows}
    real = {
        each.__name__: (
            each.name.fget(each.__new__(each)),  # type: ignore[attr-defined]
            tuple(field.name for field in dataclasses.fields(each) if field.name != "time"),
        )
        for each in CLASSES
    }
    assert listed == real
    assert len(rows) == len(CLASSES)


def test_every_event_is_frozen_data() -> None:
    defined = {each for each in vars(events).values() if isinstance(each, type) and issubclass(each, Event)}
    assert defined == {Event, *CLASSES}
    assert all(each.__dataclass_params__.frozen for each in defined)  # type: ignore[attr-defined]


def test_a_record_is_json() -> None:
    record = StepFinished("apply", "v", 3, 0.5, {"write": 0.25}, None, time=12.3456).record()
    assert json.loads(json.dumps(record)) == record
    assert record == {
        "time": 12.346,
        "event": "step_finished",
        **{"kind": "apply", "subject": "v", "step": 3, "seconds": 0.5},
        **{"phases": {"write": 0.25}, "rows": None, "lookups": 0, "rows_found": 0},
    }
    assert Applied(("v", "w"), 12).record()["views"] == ["v", "w"]


def test_the_emitter_stamps_the_time_and_calls_everybody() -> None:
    emitter, one, other = Events(clock=iter([1.0, 2.0, 3.0]).__next__), [], []
    end = emitter.subscribe(one.append)
    emitter.subscribe(other.append)
    emitter.emit(Captured(1, 1))
    end()
    emitter.emit(Captured(2, 3))
    end()
    assert one == [Captured(1, 1, time=1.0)]
    assert other == [Captured(1, 1, time=1.0), Captured(2, 3, time=2.0)]


def test_a_subscriber_that_raises_is_logged_and_dropped(caplog: pytest.LogCaptureFixture) -> None:
    emitter, received, calls = Events(), [], []

    def broken(event: Event) -> None:
        calls.append(event)
        raise ValueError("broken")

    emitter.subscribe(broken)
    emitter.subscribe(received.append)
    emitter.emit(Captured(1, 1))
    emitter.emit(Captured(1, 2))
    assert (len(calls), len(received)) == (1, 2)
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "ValueError: broken" in caplog.text


def test_many_threads_are_heard_one_at_a_time_in_order() -> None:
    emitter, received, inside = Events(), [], []

    def subscriber(event: Event) -> None:
        inside.append(1)
        assert len(inside) == 1
        received.append(event)
        inside.pop()

    emitter.subscribe(subscriber)
    threads = [
        threading.Thread(target=lambda: [emitter.emit(Captured(1, csn)) for csn in range(200)])
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(received) == 1600, "nobody was dropped, so nobody was called while another was"
    assert [event.time for event in received] == sorted(event.time for event in received)


def test_a_subscriber_may_emit() -> None:
    emitter, received = Events(), []
    emitter.subscribe(lambda event: emitter.emit(Captured(1, 2)) if event.fields()["csn"] == 1 else None)
    emitter.subscribe(received.append)
    emitter.emit(Captured(1, 1))
    assert sorted(event.fields()["csn"] for event in received) == [1, 2]


# Steps


def test_a_step_is_begun_and_finished_with_its_phases() -> None:
    emitter, received = Events(), []
    emitter.subscribe(received.append)
    with timed_step(emitter, "apply", "v", 7) as timer:
        for name in ("write", "commit", "write"):
            with timer.phase(name):
                pass
        timer.rows = 3
    begun, finished = received
    assert (begun.name, begun.fields()) == ("step_begun", {"kind": "apply", "subject": "v", "step": 7})
    assert isinstance(finished, StepFinished)
    assert set(finished.phases) == {"write", "commit"}
    assert finished.rows == 3
    assert sum(finished.phases.values()) <= finished.seconds


def test_a_step_that_fails_is_not_finished() -> None:
    emitter, received = Events(), []
    emitter.subscribe(received.append)
    with (
        pytest.raises(ZeroDivisionError),
        timed_step(emitter, "apply", "v", 7) as timer,
        timer.phase("write"),
    ):
        _ = 1 / 0
    assert [type(event) for event in received] == [StepBegun]
    assert "write" in timer.phases


def test_phases_of_several_threads_add_up() -> None:
    timer = StepTimer()
    threads = [
        threading.Thread(target=lambda: [timer.add("lookups", 0.5) for _ in range(1000)]) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert timer.phases == {"lookups": 4000.0}


# The log


def test_events_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "rollview")
    log_event(Captured(2, 5, time=1.5))
    log_event(Applied(("v", "w"), 5))
    log_event(StepBegun("capture", "", 4))
    log_event(Retry("run", 3, 5.0, "crm is away", "SourceUnavailable", "crm", "wait = patience"))
    log_event(Failed("run", "1 / 0", "ZeroDivisionError", trace="Traceback\n  line\nZeroDivisionError\n"))
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "captured transactions=2 csn=5 merged=0"),
        ("INFO", 'applied views=["v", "w"] csn=5'),
        ("DEBUG", "step_begun kind=capture step=4"),
        (
            "WARNING",
            'retry what=run attempt=3 pause_seconds=5.0 message="crm is away" kind=SourceUnavailable '
            'subject=crm hint="wait = patience"',
        ),
        (
            "ERROR",
            'failed what=run message="1 / 0" kind=ZeroDivisionError\nTraceback\n  line\nZeroDivisionError',
        ),
    ]
    caplog.clear()
    log_event(Halted("view", "v", "division by zero", "EvaluationError"))
    log_event(Waiting("t-1", ("crm",), ("shop",)))
    log_event(Verified("v", 5, 10, 0))
    log_event(Verified("v", 5, 10, 2))
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING", "INFO", "ERROR"]


def test_the_log_has_the_event_as_data(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "rollview")
    log_event(Captured(2, 5, time=1.5))
    assert caplog.records[0].__dict__["event"] == Captured(2, 5, time=1.5).record()
    assert {record.name for record in caplog.records} == {"rollview.run"}


def test_what_a_wrong_view_makes_suspect_is_verified_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that cannot be verified is reported, and keeps the others from nothing."""
    verdicts = {
        "l": Verification("l", 5, 3, 1, (), (), None, ("m", "n", "o")),
        "m": Verification("m", 5, 3, 2, (), (), None, ("l", "n", "p")),
        "o": Verification("o", 5, 3, 0, (), ()),
        "p": Verification("p", 5, 3, 0, (), ()),
    }

    def run(_: VerifyDriver, name: str, fraction: float = 1.0, chance: object = None) -> Verification:
        if name not in verdicts:
            raise NotSetUp(f"view {name} is stopped")
        assert fraction == (0.5 if name == "l" else 1.0)
        return verdicts[name]

    class Asked:
        names = ("l", "m", "n", "o", "p")

        def named(self, name: str) -> Any:
            wanted = {"rollview.verify": "50% every 1s"} if name == "l" else {}
            return SimpleNamespace(properties=wanted)

    clock = iter((0.0, 10.0))
    timer = SimpleNamespace(monotonic=lambda: next(clock))
    monkeypatch.setattr("rollview.run.upkeep.time", timer)
    monkeypatch.setattr(VerifyDriver, "run", run)
    received: list[Event] = []
    emitted = Events()
    emitted.subscribe(received.append)
    nothing: Any = None
    driver = VerifyDriver(nothing, nothing, nothing, emitted)
    asked: Any = Asked()
    background = BackgroundVerify(asked, driver, emitted)
    background.poll()
    background.poll()
    background.close()
    assert [
        (each.view, each.different, each.suspects) if isinstance(each, Verified) else each.name
        for each in received
    ] == [("l", 1, ("m", "n", "o")), ("m", 2, ("l", "n", "p")), "failed", ("o", 0, ()), ("p", 0, ())]
    assert [each.view for each in driver.run_suspects([verdicts["l"], verdicts["m"]])] == ["o", "p"]
