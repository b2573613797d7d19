"""Starting Spark: quiet when it works, an error when it does not; Ctrl-C stays with whoever had it."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from rollview.cli.event_lines import sentence
from rollview.cli.project_context import quiet_start, silent_start
from rollview.config.project_file import read_project_file
from rollview.errors import JavaMissing, SparkFailed, SparkUnavailable
from rollview.events import Event, Events, Failed, Retry
from rollview.maintain.retry import Stop, follow
from rollview.retryable import is_retryable
from rollview.runtime.session import Session


@pytest.mark.parametrize("debug", [False, True])
def test_ctrl_c_is_taken_back(debug: bool) -> None:
    """As PySpark does it: whoever makes a context in the main thread loses the handler."""
    before = signal.getsignal(signal.SIGINT)
    with silent_start(debug):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGINT) is before


def test_what_java_says_is_kept_aside(capfd: pytest.CaptureFixture[str]) -> None:
    with silent_start(debug=False):
        os.write(1, b"to stdout\n")
        os.write(2, b"WARN to stderr\n")
    sys.stderr.write("afterwards\n")
    assert capfd.readouterr() == ("", "afterwards\n")
    with silent_start(debug=True):
        os.write(2, b"WARN to stderr\n")
    assert capfd.readouterr() == ("", "WARN to stderr\n")


def test_a_start_that_fails_says_why(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SparkFailed) as caught, silent_start(debug=False):
        os.write(2, b"WARN something\njava.lang.UnsupportedClassVersionError: too old\n\tat line\n")
        raise RuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited")
    assert caught.value.message == "Spark did not start: java.lang.UnsupportedClassVersionError: too old"
    assert "--debug" in caught.value.hint
    with pytest.raises(SparkFailed, match="Spark did not start: no reason at all"), silent_start(debug=False):
        raise RuntimeError("no reason at all\nmore of it")
    assert capfd.readouterr() == ("", "")


class _Starts:
    """A Spark that starts after some attempts, or never."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, errors: list[Exception]) -> None:
        self.errors, self.ended = errors, 0
        self.waited: list[float] = []
        monkeypatch.setattr("rollview.runtime.session.open_session", self._open)
        monkeypatch.setattr("rollview.runtime.session.end_process", self._end)
        monkeypatch.setattr("rollview.runtime.session.java_process", lambda: None)
        monkeypatch.setattr("rollview.runtime.session.register", lambda *_: None)
        monkeypatch.setattr("rollview.runtime.session.time.sleep", self.waited.append)

    def _open(self, *_: object) -> object:
        if self.errors:
            raise self.errors.pop(0)
        return self

    def _end(self) -> None:
        self.ended += 1


def _session(tmp_path: Path) -> tuple[Session, list[Event]]:
    project = tmp_path / "rollview.yml"
    project.write_text("name: x\nsources: {a: {type: sqlite, path: ./a.db}}\n")
    seen: list[Event] = []
    events = Events()
    events.subscribe(seen.append)
    return Session(read_project_file(project), events, None, lambda settings: silent_start(False)), seen


def test_spark_is_started_again_on_a_busy_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = [ConnectionRefusedError(111, "Connection refused") for _ in range(2)]
    starts = _Starts(monkeypatch, [*refused])
    session, seen = _session(tmp_path)
    assert session.spark is starts  # type: ignore[comparison-overlap]
    assert (starts.ended, starts.waited) == (2, [2.0, 5.0]), "no process is left behind"
    lines = [sentence(each) for each in seen if isinstance(each, Retry)]
    refusal = "Spark did not start: [Errno 111] Connection refused"
    assert lines == [
        f"error, retrying in 2 s (attempt 1): {refusal}",
        f"error, retrying in 5 s (attempt 2): {refusal}",
    ]


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError(111, "Connection refused"),
        TimeoutError("timed out"),
        RuntimeError("java.net.BindException: Address already in use: bind"),
        RuntimeError("UNAVAILABLE: failed to connect to all addresses"),
    ],
    ids=str,
)
def test_a_start_on_a_busy_machine_can_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """`run` and `deltas --follow` do; whoever starts Spark once hears that trying again may help."""
    _Starts(monkeypatch, [error] * 9)
    with pytest.raises(SparkUnavailable, match="Spark did not start: ") as caught:
        _ = _session(tmp_path)[0].spark
    assert is_retryable(caught.value)
    assert str(error) in caught.value.message and "try again" in caught.value.hint
    starts = _Starts(monkeypatch, [RuntimeError("java.lang.UnsupportedClassVersionError: too old")] * 9)
    with pytest.raises(SparkFailed, match="too old") as other:
        _ = _session(tmp_path)[0].spark
    assert not is_retryable(other.value) and starts.waited == []


def test_run_keeps_trying_to_start_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `deltas --follow` does: each round has its own attempts, and no failure of them is the end."""
    starts = _Starts(monkeypatch, [ConnectionRefusedError(111, "Connection refused") for _ in range(7)])
    session, seen = _session(tmp_path)
    stop = Stop()
    monkeypatch.setattr(stop, "wait", starts.waited.append)

    def step() -> bool:
        assert session.spark is not None
        stop.now()
        return True

    follow(stop, "deltas of v", step, session._events)
    rounds = [each for each in seen if isinstance(each, Retry) and each.what == "deltas of v"]
    assert [(each.attempt, each.kind) for each in rounds] == [
        (1, "SparkUnavailable"),
        (2, "SparkUnavailable"),
    ]
    assert not [each for each in seen if isinstance(each, Failed)]


def test_java_is_needed_unless_spark_runs_elsewhere(no_java: None) -> None:
    with pytest.raises(JavaMissing), quiet_start({"master": "local[2]"}, debug=False):
        raise AssertionError("it was started")
    with quiet_start({"remote": "sc://host"}, debug=False):
        pass
