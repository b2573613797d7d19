"""OpenLineage: which runs are reported, what is in them, and that a collector never stops the work."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from watched_project import add_views, catalog_of, view_text, write_project

from rollview import imports
from rollview.config.project_file import read_project_file
from rollview.errors import MissingExtra, ProjectError
from rollview.events import Event, Failed, Halted, Refreshed, Retry, StepBegun
from rollview.monitoring import Monitor, following_lineage, lineage, lineage_events, metrics_text
from rollview.monitoring.lineage import LineageCounts
from rollview.project.project import Project
from rollview.sources.delta import DeltaSource
from rollview.sources.files import FileSource
from rollview.sources.mariadb import MariaDBSource
from rollview.sources.postgres import PostgresSource

KEY = "a key that nobody may read"
OVER = "CREATE MATERIALIZED VIEW by_state AS SELECT state, sum(amount) AS total FROM sold GROUP BY state"


class Collector:
    """An HTTP server that keeps what it is sent, and may refuse it."""

    def __init__(self) -> None:
        self.received: list[dict[str, Any]] = []
        self.requests: list[tuple[str, str]] = []
        self.code, self.seconds = 201, 0.0
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                time.sleep(collector.seconds)
                if collector.code < 300:
                    collector.received.append(json.loads(body))
                collector.requests.append((self.path, self.headers.get("Authorization", "")))
                self.send_response(collector.code)
                self.end_headers()

            def log_message(self, *arguments: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


@contextmanager
def _project(folder: Path, setting: str) -> Iterator[Project]:
    with Project.open(write_project(folder, openlineage=setting)) as project:
        add_views(catalog_of(project), {"sold": view_text("sold"), "by_state": OVER})
        yield project


def _sent(folder: Path, *events: Event) -> list[dict[str, Any]]:
    """What is written of events of a project."""
    with _project(folder, "{file: lineage.jsonl}") as project, following_lineage(project) as counts:
        for event in events:
            project._warehouse.events.emit(event)
    assert counts is not None
    file = folder / "lineage.jsonl"
    lines = [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []
    assert counts == LineageCounts(sent=len(lines))
    return lines


def _states(lines: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(line["job"]["name"], line["eventType"]) for line in lines]


APPLIED = Refreshed("sold", "incremental", 7, 3, 0.5, "run")


def test_a_roll_that_changed_rows_is_one_run(tmp_path: Path) -> None:
    begin, end = _sent(tmp_path / "p", APPLIED)
    assert _states([begin, end]) == [("watched.sold", "START"), ("watched.sold", "COMPLETE")]
    assert begin["run"]["runId"] == end["run"]["runId"]
    UUID(end["run"]["runId"])
    assert begin["eventTime"] < end["eventTime"]
    assert end["job"]["namespace"] == "rollview"
    assert end["job"]["facets"]["sql"]["query"].startswith("CREATE MATERIALIZED VIEW sold")
    assert [(each["namespace"], each["name"]) for each in end["inputs"]] == [
        ("file", f"{tmp_path}/p/shop.db/sales"),
        ("file", f"{tmp_path}/p/crm.db/customer"),
    ]
    assert end["inputs"][0]["facets"]["schema"]["fields"][0]["name"] == "sale_id"
    (output,) = end["outputs"]
    assert (output["namespace"], output["name"]) == ("file", f"{tmp_path}/p/lake/views/sold")
    assert [each["name"] for each in output["facets"]["schema"]["fields"]] == ["sale_id", "state", "amount"]
    assert output["facets"]["version"]["datasetVersion"] == "7"
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 3


def test_columns_have_their_lineage(tmp_path: Path) -> None:
    _, end = _sent(tmp_path / "p", APPLIED)
    facet = end["outputs"][0]["facets"]["columnLineage"]
    (origin,) = facet["fields"]["state"]["inputFields"]
    assert (origin["name"], origin["field"]) == (f"{tmp_path}/p/crm.db/customer", "state")
    (how,) = origin["transformations"]
    assert (how["type"], how["subtype"]) == ("DIRECT", "IDENTITY")
    decide = {(each["field"], each["transformations"][0]["subtype"]) for each in facet["dataset"]}
    assert decide == {("cust_id", "JOIN")}


def test_a_view_over_a_view_reads_its_table(tmp_path: Path) -> None:
    _, end = _sent(tmp_path / "p", Refreshed("by_state", "incremental", 7, 1, 0.5, "run"))
    (read,) = end["inputs"]
    assert (read["namespace"], read["name"]) == ("file", f"{tmp_path}/p/lake/views/sold")
    fields = end["outputs"][0]["facets"]["columnLineage"]["fields"]
    assert {name: each["inputFields"][0]["field"] for name, each in fields.items()} == {
        "state": "state",
        "total": "amount",
    }
    assert fields["total"]["inputFields"][0]["transformations"][0]["subtype"] == "AGGREGATION"


def test_what_changed_nothing_is_no_run(tmp_path: Path) -> None:
    nothing = Refreshed("sold", "incremental", 7, 0, 0.5, "run")
    stage = Refreshed("sold$0a", "incremental", 7, 4, 0.5, "run")
    step = Refreshed("sold", "recomputed", 7, 4, 0.5, "deltas would take longer")
    assert _sent(tmp_path / "p", nothing, stage, step, Retry("run", 1, 0.5, "away", "OSError")) == []
    many = Refreshed("sold", "incremental", 7, None, 0.5, "run")
    assert len(_sent(tmp_path / "q", many)) == 2, "too many to be counted is not none"


def test_a_load_is_reported_when_it_begins(tmp_path: Path) -> None:
    lines = _sent(tmp_path / "p", StepBegun("load", "sold", 1), Refreshed("sold", "full", 7, 9, 0.5, "new"))
    assert _states(lines) == [("watched.sold", "START"), ("watched.sold", "COMPLETE")]
    assert len({line["run"]["runId"] for line in lines}) == 1
    new = _sent(tmp_path / "q", StepBegun("load", "not_yet", 1))
    assert _states(new) == [("watched.not_yet", "START"), ("watched.not_yet", "FAIL")]
    assert new[0]["inputs"] == new[0]["outputs"] == []
    message = new[1]["run"]["facets"]["errorMessage"]["message"]
    assert message == "the process ended before it was loaded"


@pytest.mark.parametrize(
    "failure",
    [
        Halted("view", "sold", "division by zero", "EvaluationError"),
        Retry("load sold", 1, 0.5, "division by zero", "EvaluationError"),
        Failed("run", "division by zero", "EvaluationError"),
    ],
    ids=lambda event: event.name,
)
def test_a_load_that_fails(tmp_path: Path, failure: Event) -> None:
    again = (StepBegun("load", "sold", 2), Refreshed("sold", "full", 7, 9, 0.5, "new"))
    lines = _sent(tmp_path / "p", StepBegun("load", "sold", 1), failure, *again)
    assert [line["eventType"] for line in lines] == ["START", "FAIL", "START", "COMPLETE"]
    assert lines[1]["run"]["facets"]["errorMessage"]["message"] == "division by zero"
    assert lines[0]["run"]["runId"] == lines[1]["run"]["runId"] != lines[2]["run"]["runId"]


def test_a_view_that_stops_is_a_run_that_failed(tmp_path: Path) -> None:
    lines = _sent(tmp_path / "p", Halted("view", "sold", "division by zero", "EvaluationError"))
    assert [line["eventType"] for line in lines] == ["START", "FAIL"]
    assert _sent(tmp_path / "q", Halted("site", "crm", "away", "SourceUnavailable")) == []


# A collector.


def test_a_collector_gets_them(tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINEAGE_API_KEY", KEY)
    setting = f'{{url: "{collector.url}", api_key: "${{LINEAGE_API_KEY}}", namespace: team}}'
    with _project(tmp_path / "p", setting) as project, following_lineage(project) as counts:
        project._warehouse.events.emit(APPLIED)
        assert KEY not in repr(project.openlineage)
        assert KEY not in project.hide(f"the key is {KEY}")
    assert counts == LineageCounts(sent=2)
    assert [each["eventType"] for each in collector.received] == ["START", "COMPLETE"]
    assert collector.received[0]["job"] == {**collector.received[0]["job"], "namespace": "team"}
    assert collector.requests[0] == ("/api/v1/lineage", f"Bearer {KEY}")


def test_a_collector_that_is_away_never_stops_the_work(
    tmp_path: Path, collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rollview")
    with _project(tmp_path / "p", f'{{url: "{collector.url}"}}') as project:
        collector.code = 403
        with following_lineage(project) as counts:
            for _ in range(3):
                project._warehouse.events.emit(APPLIED)
            deadline = time.monotonic() + 20
            while counts is not None and counts.failed < 6 and time.monotonic() < deadline:
                time.sleep(0.05)
            collector.code = 201
            project._warehouse.events.emit(APPLIED)
            monitor = Monitor(project, lineage=counts)
        assert counts == LineageCounts(sent=2, failed=6)
        assert b'rollview_lineage_events_total{outcome="failed"} 6.0' in metrics_text(monitor)
    messages = [record.getMessage() for record in caplog.records if record.name == lineage.__name__]
    assert len(messages) == 2, "once that it fails, once that it works again"
    assert messages[0].startswith(f"lineage cannot be sent to {collector.url}, retrying: ")
    assert messages[1] == f"lineage can be sent to {collector.url} again"


def test_nobody_waits_for_a_collector_that_is_slow(
    tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lineage, "MOST_WAITING", 4)
    monkeypatch.setattr(lineage, "LAST_SECONDS", 0.5)
    collector.seconds = 3.0
    with _project(tmp_path / "p", f'{{url: "{collector.url}", timeout: 30s}}') as project:
        started = time.monotonic()
        with following_lineage(project) as counts:
            for _ in range(10):
                project._warehouse.events.emit(APPLIED)
            assert time.monotonic() - started < 1.0
        assert time.monotonic() - started < 2.5
        assert counts is not None
        assert counts.dropped >= 14


def test_where_nobody_listens_the_password_is_not_shown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    setting = '{url: "http://team:hunter2@127.0.0.1:1/"}'
    with _project(tmp_path / "p", setting) as project, following_lineage(project) as counts:
        project._warehouse.events.emit(APPLIED)
    assert counts == LineageCounts(failed=2)
    assert "lineage cannot be sent to http://team:***@127.0.0.1:1/" in caplog.text
    assert "hunter2" not in caplog.text


# Settings.


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("lineage.jsonl", "`openlineage` needs either a `file` or a `url`"),
        ("{}", "`openlineage` needs either a `file` or a `url`"),
        ("{file: a, url: http://b}", "`openlineage` needs either a `file` or a `url`"),
        ("{url: localhost:5000}", "`url` of openlineage must begin with http:// or https://"),
        ("{file: a, fiel: b}", "unknown setting of openlineage: `fiel`"),
        ("{file: [a]}", "`file` must be text"),
        ("{url: http://a, timeout: soon}", "`timeout`: 'soon' is not a valid duration"),
    ],
)
def test_wrong_settings(tmp_path: Path, setting: str, message: str) -> None:
    with pytest.raises(ProjectError, match=message.replace("?", r"\?")):
        read_project_file(write_project(tmp_path / "p", openlineage=setting))


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lineage_events._client.cache_clear()
    monkeypatch.setattr(imports, "_is_installed", lambda _: False)
    with (
        _project(tmp_path / "p", "{file: a}") as project,
        pytest.raises(MissingExtra, match="needs the extra `openlineage`") as caught,
        following_lineage(project),
    ):
        pass
    assert caught.value.hint == "pip install 'rollview[openlineage]'; or leave the setting out"


def test_a_project_without_the_setting_sends_nothing(watched: Project) -> None:
    with following_lineage(watched) as counts:
        assert counts is None


# Names of datasets.


@pytest.mark.parametrize(
    ("dsn", "options", "table", "place", "name"),
    [
        ("postgresql://u:secret@db.example/crm", {}, "customer", "db.example:5432", "crm.public.customer"),
        ("host=a,b port=5433,5434 dbname=x", {"schemas": "sales, hr"}, "t", "a:5433", "x.sales.t"),
        ("host=/run/pg dbname=x", {}, "hr.staff", "localhost:5432", "x.hr.staff"),
    ],
)
def test_datasets_of_postgresql(dsn: str, options: dict[str, str], table: str, place: str, name: str) -> None:
    assert PostgresSource("crm", dsn, options).dataset(table) == (f"postgres://{place}", name)


def test_datasets_of_a_postgresql_in_a_folder_and_of_mariadb(tmp_path: Path) -> None:
    embedded = PostgresSource("crm", f"embedded:{tmp_path}/pg")
    assert embedded.dataset("t") == ("file", f"{tmp_path}/pg/postgres.public.t")
    server = MariaDBSource("store", "mariadb://u:secret@db.example/store")
    assert server.dataset("item") == ("mysql://db.example:3306", "store.item")


def test_datasets_of_folders(tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    assert DeltaSource("lake", tmp_path).dataset("orders") == ("file", f"{tmp_path}/orders")
    assert FileSource("dumps", tmp_path).dataset("orders") == ("file", f"{tmp_path}/orders")
