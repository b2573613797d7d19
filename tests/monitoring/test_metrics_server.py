"""`/metrics`, `/healthz`, `/readyz` over HTTP: what each answers, and when it says no."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from click.testing import CliRunner
from watched_project import catalog_of, write_project

from rollview.catalog import Fault
from rollview.cli import main
from rollview.cli.ui import parse_address
from rollview.errors import OptionError
from rollview.events import StepBegun, StepFinished
from rollview.maintain.retry import Stop
from rollview.monitoring import Monitor, health, ready, serving
from rollview.monitoring.monitor import IDLE_SECONDS, STEP_SECONDS
from rollview.project.project import Project


def _get(url: str, method: str = "GET") -> tuple[int, str, str]:
    """Code, type and body of an answer."""
    try:
        with urlopen(Request(url, method=method), timeout=60) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


def test_what_is_served(watched: Project) -> None:
    with serving(Monitor(watched), "127.0.0.1", 0) as url:
        code, kind, text = _get(f"{url}/metrics?x=1")
        assert (code, kind.partition(";")[0]) == (200, "text/plain")
        assert "# HELP rollview_view_csn The csn that the stored view shows.\n" in text
        assert 'rollview_view_csn{view="sold"} 0.0\n' in text
        assert "process_resident_memory_bytes " in text
        code, kind, text = _get(f"{url}/readyz")
        assert (code, kind) == (200, "application/json")
        assert json.loads(text) == {
            **{"ready": True, "views": 2, "csn": 0},
            **{"stopped_views": [], "stopped_sources": []},
        }
        assert _get(f"{url}/healthz")[0] == 200
        assert _get(f"{url}/metrics", "HEAD")[2] == ""
        assert _get(f"{url}/nothing")[0] == 404
        assert _get(f"{url}/metrics", "POST")[0] == 501
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=60).close()


@pytest.mark.parametrize(
    "path",
    [
        "/views/sold/rows",
        "/query?sql=SELECT+1",
        "/metrics/../lake/catalog.db",
        "/%2e%2e/rollview.yml",
        "//evil.com/metrics",
        "/metrics;/etc/passwd",
    ],
)
def test_nothing_else_is_served_and_nothing_is_started(watched: Project, path: str) -> None:
    """No rows, no files; neither Spark nor a source, which is not even there, is asked."""
    with serving(Monitor(watched), "127.0.0.1", 0) as url:
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=60) as client:
            client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert client.recv(1000).split(b" ")[1] == b"404"
        assert [_get(f"{url}{known}")[0] for known in ("/metrics", "/healthz", "/readyz")] == [200] * 3
    assert watched._warehouse.session._spark is None
    assert "sources" not in watched._warehouse.sites.__dict__


def test_an_answer_that_fails_is_an_error_and_ends_nothing(
    watched: Project, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monitor = Monitor(watched)
    with serving(monitor, "127.0.0.1", 0) as url:
        monkeypatch.setattr(Project, "is_new", property(lambda _: 1 / 0))
        code, _, text = _get(f"{url}/readyz")
        assert code == 500
        assert "ZeroDivisionError" not in text
        assert "ZeroDivisionError" in caplog.text
        monkeypatch.undo()
        assert _get(f"{url}/readyz")[0] == 200


def test_a_port_in_use_is_reported(watched: Project) -> None:
    with (
        serving(Monitor(watched), "127.0.0.1", 0) as url,
        pytest.raises(
            OptionError, match=r"cannot serve metrics at 127.0.0.1:\d+: Address already in use"
        ) as caught,
        serving(Monitor(watched), "127.0.0.1", int(url.rpartition(":")[2])),
    ):
        pass
    assert caught.value.hint == "choose another port, or end the program that listens there"


# Ready.


def test_not_ready_while_every_view_has_stopped(watched: Project) -> None:
    catalog = catalog_of(watched)
    catalog.faults.note(Fault("view", "sold", "EvaluationError", "division by zero"))
    assert ready(Monitor(watched)).ok
    assert ready(Monitor(watched)).body["stopped_views"] == ["sold"]
    catalog.faults.note(Fault("site", "crm", "SourceUnavailable", "away"))
    found = ready(Monitor(watched))
    assert not found.ok
    assert found.body["reason"] == "every view has stopped: `rollview status` says why"
    assert found.body["stopped_sources"] == ["crm"]


def test_not_ready_without_views(tmp_path: Path) -> None:
    with Project.open(write_project(tmp_path / "new")) as project:
        found = ready(Monitor(project))
        assert (found.ok, found.body) == (
            False,
            {"ready": False, "reason": "the project was never set up: run `rollview setup`"},
        )
        assert not (tmp_path / "new" / "lake").exists(), "asking leaves no catalog behind"
        catalog_of(project)
        assert ready(Monitor(project)).body["reason"] == "no view is set up: run `rollview setup`"


def test_not_ready_without_a_catalog(watched: Project) -> None:
    place = Path(watched._warehouse.project.catalog.removeprefix("sqlite:///"))
    catalog_of(watched).close()
    place.write_bytes(b"this is not a database, whatever its name says" * 100)
    found = ready(Monitor(watched))
    assert not found.ok
    assert "file is not a database" in found.body["reason"]
    assert "views" not in found.body


# Healthy.


def _asleep(monitor: Monitor, seconds: float) -> dict[str, Any]:
    """What is said after a time without a sign of life."""
    assert monitor.stop is not None
    monitor.life.seen_at = time.time() - seconds
    monitor.stop.turned_at = monitor.life.seen_at - 1
    monitor.life._running.update(dict.fromkeys(monitor.life._running, monitor.life.seen_at))
    found = health(monitor)
    assert found.ok == found.body["healthy"]
    return found.body


def test_a_loop_that_does_not_move_is_not_healthy(watched: Project) -> None:
    monitor = Monitor(watched, Stop())
    assert health(monitor).ok, "it has just begun"
    assert _asleep(monitor, IDLE_SECONDS - 10)["healthy"]
    answer = _asleep(monitor, IDLE_SECONDS + 10)
    assert not answer["healthy"]
    assert answer["reason"] == "the loop has not moved for 130 s and no step is under way; the limit is 120 s"
    assert monitor.stop is not None
    monitor.stop.wait(0)
    assert health(monitor).ok


def test_a_step_may_take_its_time(watched: Project) -> None:
    monitor = Monitor(watched, Stop())
    monitor.life(StepBegun("load", "sold", 1))
    answer = _asleep(monitor, IDLE_SECONDS + 10)
    assert (answer["healthy"], answer["under_way"]) == (True, ["load sold"])
    assert "while load sold is under way" in _asleep(monitor, STEP_SECONDS + 10)["reason"]
    monitor.life(StepFinished("load", "sold", 1, 5.0))
    assert not _asleep(monitor, IDLE_SECONDS + 10)["healthy"]


def test_a_step_that_failed_is_over_when_the_loop_comes_around(watched: Project) -> None:
    monitor = Monitor(watched, Stop())
    assert monitor.stop is not None
    monitor.life(StepBegun("load", "sold", 1))
    monitor.life(StepBegun("verify", "sold"))
    assert health(monitor).body["under_way"] == ["load sold"], "nothing waits for verification"
    monitor.stop.turn()
    assert "under_way" not in health(monitor).body


def test_a_process_without_a_loop_is_healthy(watched: Project) -> None:
    assert health(Monitor(watched)).ok


# The option.


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("9464", "127.0.0.1", 9464),
        ("0.0.0.0:80", "0.0.0.0", 80),
        ("metrics.local:0", "metrics.local", 0),
        ("[::1]:9464", "::1", 9464),
    ],
)
def test_addresses(text: str, host: str, port: int) -> None:
    assert parse_address(text, "--metrics") == (host, port)


@pytest.mark.parametrize("text", ["", "x", "70000", "::1:9464", "host:", ":80", "a:b:1", "1:2:x", "-1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="is not an address to listen on"):
        parse_address(text, "--metrics")


def test_run_refuses_a_wrong_address_first(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["run", "--metrics", "here", "--project", str(tmp_path / "none")])
    assert result.exit_code == 2
    assert "--metrics: `here` is not an address to listen on" in result.output
