"""The loop that repeats work: what is retried, for how long, and what comes out."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable

import pytest

from rollview.errors import InputError, RollviewError
from rollview.events import Event, Events, Failed, Retry
from rollview.maintain.retry import PAUSE_SECONDS, Stop, follow, keep_trying
from rollview.runtime.event_log import log_event


class _Passing(RollviewError):
    retryable = True


class _Lasting(RollviewError):
    retryable = False


class _MissingFile(InputError):
    retryable = True


class _Patient(Stop):
    """Does not sleep, and remembers how long it should have."""

    def __init__(self) -> None:
        super().__init__()
        self.waited: list[float] = []

    def wait(self, seconds: float) -> None:
        self.waited.append(seconds)


def _failing(*errors: Exception) -> Callable[[], bool]:
    """Raises these one after the other, then succeeds."""
    left = list(errors)

    def action() -> bool:
        if left:
            raise left.pop(0)
        return True

    return action


def _subscribed() -> tuple[Events, list[Event]]:
    events, received = Events(), []
    events.subscribe(received.append)
    return events, received


@pytest.mark.parametrize("error", [ConnectionError(), RuntimeError(), _Passing("")])
def test_an_error_without_a_message_is_retried(error: Exception) -> None:
    events, received = _subscribed()
    assert keep_trying(_Patient(), "run", _failing(error), events)
    assert [event.kind for event in received if isinstance(event, Retry)] == [type(error).__name__]
    assert isinstance(error, RollviewError) or received[0].fields()["message"] == type(error).__name__


def test_an_attempt_that_succeeds_costs_next_to_nothing() -> None:
    tracemalloc.start()
    try:
        assert keep_trying(_Patient(), "run", lambda: True, Events())
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_pauses_grow_and_then_stay() -> None:
    events, received = _subscribed()
    stop = _Patient()
    assert keep_trying(stop, "run", _failing(*[_Passing("away", subject="crm", hint="wait")] * 1000), events)
    assert stop.waited == [*PAUSE_SECONDS, *[PAUSE_SECONDS[-1]] * (1000 - len(PAUSE_SECONDS))]
    assert [event.attempt for event in received if isinstance(event, Retry)] == list(range(1, 1001))
    known = {"message": "away", "kind": "_Passing", "subject": "crm", "hint": "wait", "trace": ""}
    assert received[3].fields() == {"what": "run", "attempt": 4, "pause_seconds": 5, **known}


def test_a_programming_error_comes_out_at_the_third_time_in_a_row() -> None:
    events, received = _subscribed()
    with pytest.raises(ZeroDivisionError):
        keep_trying(_Patient(), "run", lambda: bool(1 // 0), events)
    assert len(received) == 2
    assert all("test_retry.py" in event.fields()["trace"] for event in received)
    mixed = [ZeroDivisionError(), KeyError("k"), _Passing("away"), ZeroDivisionError(), ZeroDivisionError()]
    assert keep_trying(_Patient(), "run", _failing(*mixed), events)
    with pytest.raises(KeyError):
        keep_trying(_Patient(), "run", _failing(*mixed, KeyError("k")), events)


def test_an_error_that_lasts_comes_out_at_once() -> None:
    events, received = _subscribed()
    with pytest.raises(_Lasting):
        keep_trying(_Patient(), "run", _failing(_Lasting("corrupt")), events)
    assert received == []


def test_bad_input_comes_out_of_the_first_round_only() -> None:
    events, received = _subscribed()
    with pytest.raises(_MissingFile):
        keep_trying(_Patient(), "run", _failing(_MissingFile("no such file")), events, first=True)
    assert received == []
    assert keep_trying(_Patient(), "run", _failing(_MissingFile("no such file")), events)
    assert keep_trying(_Patient(), "run", _failing(_Passing("away")), events, first=True)


def test_nothing_is_retried_for_one_who_wants_to_stop() -> None:
    stop, (events, received) = _Patient(), _subscribed()
    events.subscribe(lambda _: stop.now())
    assert keep_trying(stop, "run", _failing(_Passing("away")), events) is False
    with pytest.raises(_Passing):
        keep_trying(stop, "run", _failing(_Passing("away")), events)
    assert len(received) == 1


def test_following_waits_when_there_is_nothing_to_do_and_reports_how_it_failed() -> None:
    stop, (events, received) = _Patient(), _subscribed()
    done = iter([True, False, True])

    def action() -> bool:
        try:
            return next(done)
        except StopIteration:
            raise _Lasting("corrupt", subject="v") from None

    with pytest.raises(_Lasting):
        follow(stop, "capture", action, events)
    assert len(stop.waited) == 1
    assert [event.fields()["subject"] for event in received if isinstance(event, Failed)] == ["v"]


def test_the_traceback_of_a_retry_is_for_those_who_look_for_it(caplog: pytest.LogCaptureFixture) -> None:
    events = Events(hide=lambda text: text.replace("hunter2", "***"))
    events.subscribe(log_event)
    for level, lines in (("INFO", 1), ("DEBUG", 2)):
        caplog.clear()
        caplog.set_level(level, "rollview")
        keep_trying(_Patient(), "capture crm", _failing(ConnectionError("no hunter2 here")), events)
        messages = [record.getMessage() for record in caplog.records]
        assert len(messages) == lines
        assert messages[0].startswith(
            'retry what="capture crm" attempt=1 pause_seconds=0.5 message="no *** here"'
        )
    assert messages[1].startswith("traceback of the error in capture crm:\nTraceback (most recent call last)")
    assert messages[1].endswith("ConnectionError: no *** here")


def test_a_programming_error_has_one_traceback(caplog: pytest.LogCaptureFixture) -> None:
    events = Events()
    events.subscribe(log_event)
    caplog.set_level("DEBUG", "rollview")
    keep_trying(_Patient(), "run", _failing(KeyError("k")), events)
    assert caplog.text.count("Traceback (most recent call last)") == 1


def test_a_loop_says_when_it_came_around() -> None:
    stop, turns = Stop(), []

    def action() -> bool:
        turns.append(stop.turned_at)
        if len(turns) == 3:
            stop.now()
        return True

    before = time.time()
    follow(stop, "run", action, Events())
    assert before <= turns[0] <= turns[1] <= turns[2] <= time.time()
