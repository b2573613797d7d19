"""`run`, watched: metrics move with the views, a source that goes away is reported, and so is lineage."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).parents[1] / "service"))

from shop import Shop

from rollview.maintain.retry import Stop
from rollview.monitoring import Monitor, following_lineage, serving
from rollview.project.project import Project

pytestmark = pytest.mark.slow
WAIT_SECONDS = 60.0
VIEWS = {
    "sold": """SELECT s.sale_id, c.state, s.amount FROM shop.sales s
        JOIN crm.customer c ON s.cust_id = c.cust_id""",
    "by_state": "SELECT state, count(*) AS n, sum(amount) AS total FROM sold GROUP BY state",
}
OF_INTEREST = ("view", "source", "kind")
Samples = dict[tuple[str, str], float]


def _scrape(url: str) -> Samples:
    """Samples by name and the first label of interest."""
    with urlopen(f"{url}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    return {
        (
            each.name,
            each.labels.get("view") or each.labels.get("source") or each.labels.get("kind") or "",
        ): each.value
        for family in text_string_to_metric_families(text)
        for each in family.samples
    }


def _until(url: str, holds: Callable[[Samples], bool]) -> Samples:
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds(found := _scrape(url)):
        assert time.monotonic() < deadline, found
        time.sleep(0.3)
    return found


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path / "shop", VIEWS)
    made.write_project(openlineage="{file: lineage.jsonl}")
    crm, shop = made.connections["crm"], made.connections["shop"]
    crm.execute("INSERT INTO customer VALUES (1, 'a', 'x'), (2, 'b', 'y')")
    shop.execute("INSERT INTO sales VALUES (1, 1, 1, 10)")
    yield made
    made.close()


def test_metrics_follow_what_run_does(shop: Shop, spark: SparkSession) -> None:
    stop = Stop()
    with Project.open(shop.folder, spark) as project, following_lineage(project) as lineage:
        project.setup()
        monitor = Monitor(project, stop, lineage)
        with monitor.watching(), serving(monitor, "127.0.0.1", 0) as url:
            runs = threading.Thread(target=project.run, kwargs={"stop": stop})
            runs.start()
            try:
                _watch(shop, url, monitor)
            finally:
                stop.now()
                runs.join()
    lines = [json.loads(line) for line in (shop.folder / "lineage.jsonl").read_text("utf-8").splitlines()]
    loaded = [(line["job"]["name"], line["eventType"]) for line in lines[:4]]
    assert sorted(loaded) == sorted(
        (name, state) for name in ("shop.sold", "shop.by_state") for state in ("START", "COMPLETE")
    )
    assert len(lines) == 8, "two loads, and one transaction that changed both views"
    assert lineage is not None
    assert (lineage.sent, lineage.failed, lineage.dropped) == (8, 0, 0)


def _watch(shop: Shop, url: str, monitor: Monitor) -> None:
    shop.connections["shop"].execute("INSERT INTO sales VALUES (2, 2, 1, 5)")
    found = _until(url, lambda now: now.get(("rollview_view_csn", "by_state")) == 1)
    assert found["rollview_view_lag_seconds", "by_state"] == 0
    assert found["rollview_view_staleness_seconds", "sold"] < 30
    assert found["rollview_transactions_captured_total", ""] == 1
    assert found["rollview_step_duration_seconds_count", "apply"] >= 1
    assert found["rollview_run_last_turn_timestamp_seconds", ""] > time.time() - 60
    assert found["rollview_lineage_events_total", ""] >= 0
    monitor.sampler.poll()
    sized = _scrape(url)
    assert (sized["rollview_view_rows", "sold"], sized["rollview_view_rows", "by_state"]) == (2, 2)
    assert sized["rollview_view_stored_bytes", "sold"] > 0
    assert sized["rollview_change_log_bytes", "shop"] > 0
    crm = shop.folder / "crm.db"
    crm.rename(shop.folder / "away.db")
    gone = _until(url, lambda now: now["rollview_source_reachable", "crm"] == 0)
    assert gone["rollview_view_halted", "sold"] == 1
    assert gone["rollview_ready", ""] == 0
    assert gone["rollview_errors_total", "SourceMissing"] >= 1
    (shop.folder / "away.db").rename(crm)
    back = _until(url, lambda now: now["rollview_source_reachable", "crm"] == 1)
    assert (back["rollview_view_halted", "sold"], back["rollview_ready", ""]) == (0, 1)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_run_as_a_service(shop: Shop, spark: SparkSession) -> None:
    with Project.open(shop.folder, spark) as project:
        project.setup()
    port = _free_port()
    command = [sys.executable, "-c", "from rollview.cli import main; main()", "run"]
    options = ["--project", str(shop.folder), "--metrics", str(port), "--log-format", "json"]
    process = subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    try:
        _until_it_answers(f"http://127.0.0.1:{port}/readyz")
        second = subprocess.run(
            [*command, *options], capture_output=True, text=True, check=False, timeout=WAIT_SECONDS
        )
        assert second.returncode == 2
        assert f"cannot serve metrics at 127.0.0.1:{port}: Address already in use" in second.stderr
        shop.connections["shop"].execute("INSERT INTO sales VALUES (2, 2, 1, 5)")
        _until(f"http://127.0.0.1:{port}", lambda now: now.get(("rollview_view_csn", "by_state")) == 1)
    finally:
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == 0
    assert output == "stopped at csn 1\n", "the log takes the place of the lines"
    reported = [json.loads(line) for line in errors.splitlines()]
    assert reported[0]["message"] == f"metrics at http://127.0.0.1:{port}/metrics"
    assert [
        each["event"] for each in reported if each.get("event") in ("started", "captured", "stopped")
    ] == [
        "started",
        "captured",
        "stopped",
    ]
    assert {each["level"] for each in reported} == {"info"}


def _until_it_answers(url: str) -> dict[str, Any]:
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            with urlopen(url, timeout=60) as answer:
                found: dict[str, Any] = json.loads(answer.read())
                return found
        except URLError:
            assert time.monotonic() < deadline
            time.sleep(0.3)
