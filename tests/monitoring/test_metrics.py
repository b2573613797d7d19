"""Metrics: what the catalog has, what events count, what the page lists; a scrape is cheap."""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from watched_project import add_views, catalog_of, commit, view_text, write_project

from rollview import events
from rollview.catalog import Fault, Materialized, Waiting
from rollview.catalog.step_bounds import ApplyStep, CsnRange
from rollview.events import Event
from rollview.maintain.retry import Stop
from rollview.monitoring import Monitor, metrics, metrics_text
from rollview.monitoring.metrics import Metric
from rollview.project.project import Project
from rollview.storage.lake_tables import TableSize

DECLARED = [each for each in vars(metrics).values() if isinstance(each, Metric)]
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"
LABELS = {name: each.labels for each in DECLARED if each.kind != "histogram" for name in each.sample_names}
MOST_SECONDS = 0.5

Samples = dict[tuple[str, tuple[str, ...]], float]


def _scrape(monitor: Monitor) -> Samples:
    """Every sample by its name and the values of its labels, as they are declared."""
    text = metrics_text(monitor).decode()
    return {
        (
            sample.name,
            tuple(sample.labels[label] for label in LABELS.get(sample.name, sample.labels)),
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def _show(project: Project, view: str, csn: int) -> None:
    """Says that a view shows a csn."""
    catalog = catalog_of(project)
    with catalog.lease("apply") as lease:
        step = catalog.steps.begin(lease, view, ApplyStep({view: CsnRange(0, csn)}, "test"))
        catalog.steps.finish(lease, step, Materialized(view, csn, 1, 0))


def test_a_view_that_does_not_show_all_lags(watched: Project) -> None:
    catalog, now = catalog_of(watched), time.time()
    commit(catalog, [now - 100, now - 60, now - 20])
    catalog.captured.note_looked(["crm", "shop"], now - 5)
    _show(watched, "sold", 2)
    found = _scrape(Monitor(watched))
    assert found["rollview_last_csn", ()] == 3
    assert found["rollview_view_csn", ("sold",)] == 2
    assert found["rollview_view_high_water_csn", ("sold",)] == 0
    assert found["rollview_view_lag_csn", ("sold",)] == 1
    assert found["rollview_view_lag_seconds", ("sold",)] == pytest.approx(20, abs=3)
    assert found["rollview_view_staleness_seconds", ("sold",)] == pytest.approx(20, abs=3)
    assert found["rollview_source_version", ("shop",)] == 3
    assert found["rollview_source_lag_seconds", ("crm",)] == pytest.approx(5, abs=3)
    assert found["rollview_view_info", ("sold", "deferred", "sweep", "")] == 1
    assert found["rollview_catalog_up", ()] == found["rollview_ready", ()] == 1


def test_a_view_that_shows_all_is_as_old_as_the_last_look(watched: Project) -> None:
    catalog, now = catalog_of(watched), time.time()
    commit(catalog, [now - 100])
    catalog.captured.note_looked(["shop"], now - 5)
    _show(watched, "sold", 1)
    first = _scrape(Monitor(watched))
    assert first["rollview_view_lag_seconds", ("sold",)] == 0
    assert ("rollview_view_staleness_seconds", ("sold",)) not in first, "crm was never looked at"
    catalog.captured.note_looked(["crm"], now - 50)
    found = _scrape(Monitor(watched))
    assert found["rollview_view_staleness_seconds", ("sold",)] == pytest.approx(50, abs=3)


def test_a_view_with_a_schedule_that_is_not_due_lags_and_is_not_late(watched: Project) -> None:
    catalog = catalog_of(watched)
    due = time.time() // 86_400 * 86_400
    commit(catalog, [due + 0.001])
    found = _scrape(Monitor(watched))
    assert found["rollview_view_lag_seconds", ("daily",)] == found["rollview_view_lag_seconds", ("sold",)] > 0
    assert (found["rollview_view_late", ("daily",)], found["rollview_view_late", ("sold",)]) == (0, 1)


def test_a_view_with_a_schedule_is_late_behind_what_was_due(watched: Project) -> None:
    due = time.time() // 86_400 * 86_400
    commit(catalog_of(watched), [due - 100])
    found = _scrape(Monitor(watched))
    assert found["rollview_view_lag_seconds", ("daily",)] == pytest.approx(time.time() - due + 100, abs=5)
    assert found["rollview_view_late", ("daily",)] == 1


def test_faults_are_reported(watched: Project) -> None:
    catalog = catalog_of(watched)
    before = _scrape(Monitor(watched))
    assert before["rollview_source_reachable", ("crm",)] == 1
    assert before["rollview_source_halted", ("crm",)] == before["rollview_view_halted", ("sold",)] == 0
    catalog.faults.note(Fault("site", "crm", "SourceUnavailable", "away"))
    catalog.faults.note(Fault("table", "shop.sales", "SourceChanged", "lost"))
    found = _scrape(Monitor(watched))
    assert found["rollview_source_reachable", ("crm",)] == 0
    assert found["rollview_source_halted", ("crm",)] == found["rollview_view_halted", ("sold",)] == 1
    assert found["rollview_source_tables_halted", ("shop",)] == 1
    assert found["rollview_source_reachable", ("shop",)] == 1
    assert found["rollview_ready", ()] == 0
    catalog.faults.note(Fault("site", "crm", "LogLost", "gone"))
    assert _scrape(Monitor(watched))["rollview_source_reachable", ("crm",)] == 1, "it answers, and says so"


def test_waiting_transactions_and_consumers(watched: Project) -> None:
    catalog = catalog_of(watched)
    assert _scrape(Monitor(watched))["rollview_global_transactions_waiting", ()] == 0
    catalog.global_transactions.wait_for([Waiting("t-1", ("crm",), ("shop",))])
    catalog.consumers.place("sold", "billing", 1, 0)
    found = _scrape(Monitor(watched))
    assert found["rollview_global_transactions_waiting", ()] == 1
    assert 0 <= found["rollview_global_transactions_waiting_seconds", ()] < 60
    assert found["rollview_consumer_csn", ("sold", "billing")] == 0
    assert ("rollview_consumer_lag_csn", ("sold", "billing")) in found


def test_a_catalog_that_cannot_be_read_is_reported(watched: Project) -> None:
    place = Path(watched._warehouse.project.catalog.removeprefix("sqlite:///"))
    watched._warehouse.catalog.close()
    place.write_bytes(b"this is not a database, whatever its name says" * 100)
    found = _scrape(Monitor(watched))
    assert found["rollview_catalog_up", ()] == found["rollview_ready", ()] == 0
    assert not [name for name, _ in found if name.startswith("rollview_view_")]


@pytest.mark.parametrize(
    ("event", "name", "labels", "value"),
    [
        (events.Captured(3, 5), "transactions_captured_total", (), 3),
        (
            events.Refreshed("v", "incremental", 5, 7, 0.1, "run"),
            "view_refreshes_total",
            ("v", "incremental"),
            1,
        ),
        (events.Refreshed("v", "full", 5, 7, 0.1, "run"), "view_refresh_rows_total", ("v", "full"), 7),
        (events.Retry("run", 1, 0.5, "away", "OSError"), "retries_total", ("run", "OSError"), 1),
        (events.Retry("run", 1, 0.5, "away", "OSError"), "errors_total", ("OSError",), 1),
        (events.Failed("run", "broken", "KeyError"), "errors_total", ("KeyError",), 1),
        (events.Halted("view", "v", "no", "EvaluationError"), "halts_total", ("view", "EvaluationError"), 1),
        (events.Verified("v", 5, 10, 2), "verify_different_rows_total", ("v",), 2),
        (events.Verified("v", 5, 10, 0), "verify_runs_total", ("v",), 1),
        (events.Maintained("t", "rows pruned", 9), "lake_maintenance_total", ("rows_pruned",), 9),
        (events.SparkStarted(2.0), "spark_starts_total", (), 1),
        (events.ClockJumped(3600.0), "clock_jumps_total", (), 1),
    ],
    ids=lambda value: value.name if isinstance(value, Event) else "",
)
def test_events_are_counted(
    watched: Project, event: Event, name: str, labels: tuple[str, ...], value: float
) -> None:
    monitor = Monitor(watched)
    with monitor.watching():
        watched._warehouse.events.emit(event)
        watched._warehouse.events.emit(events.Refreshed("v$0a", "incremental", 5, 7, 0.1, "run"))
    assert _scrape(monitor)[f"rollview_{name}", labels] == value
    assert not any("v$0a" in labels for _, labels in _scrape(monitor)), "stages are nobody's business"
    watched._warehouse.events.emit(event)
    assert _scrape(monitor)[f"rollview_{name}", labels] == value, "nobody watches any more"


def test_steps_are_counted_by_kind_and_phase(watched: Project) -> None:
    monitor = Monitor(watched)
    finished = events.StepFinished("apply", "v", 3, 0.7, {"write": 0.25, "commit": 0.05}, 12)
    object.__setattr__(finished, "lookups", 4)
    object.__setattr__(finished, "rows_found", 40)
    monitor._counters(finished)
    monitor._counters(events.StepFinished("apply", "v", 4, 0.1))
    found = _scrape(monitor)
    assert found["rollview_step_duration_seconds_count", ("apply",)] == 2
    assert found["rollview_step_duration_seconds_sum", ("apply",)] == pytest.approx(0.8)
    assert found["rollview_step_duration_seconds_bucket", ("apply", "0.5")] == 1
    assert found["rollview_step_phase_seconds_total", ("apply", "write")] == 0.25
    assert found["rollview_step_rows_total", ("apply",)] == 12
    assert found["rollview_source_lookups_total", ("apply",)] == 4
    assert found["rollview_source_lookup_rows_total", ("apply",)] == 40


def test_what_is_sampled(watched: Project) -> None:
    monitor = Monitor(watched, Stop())
    assert monitor.stop is not None
    monitor.sampler.last = type(monitor.sampler.last)(
        (TableSize("rows", "sold", 10, 2000, 2), TableSize("changes", "shop", 5, 700, 1)),
        {"crm": 123},
        {"sold": True},
    )
    monitor.stop.turn()
    found = _scrape(monitor)
    assert found["rollview_view_rows", ("sold",)] == 10
    assert found["rollview_view_stored_bytes", ("sold", "rows")] == 2000
    assert found["rollview_view_stored_files", ("sold", "rows")] == 2
    assert found["rollview_view_file_differs", ("sold",)] == 1
    assert found["rollview_change_log_bytes", ("shop",)] == 700
    assert found["rollview_source_log_kept_bytes", ("crm",)] == 123
    assert found["rollview_run_last_turn_timestamp_seconds", ()] == pytest.approx(time.time(), abs=5)


@pytest.fixture
def large(tmp_path: Path) -> Iterator[Project]:
    """200 views that are behind, over a history of 300,000 transactions."""
    with Project.open(write_project(tmp_path / "large")) as project:
        catalog = catalog_of(project)
        add_views(catalog, {f"view_{number}": view_text(f"view_{number}") for number in range(200)})
        with sqlite3.connect(project._warehouse.project.catalog.removeprefix("sqlite:///")) as connection:
            connection.executescript(
                "CREATE TEMP TABLE n AS WITH RECURSIVE n(i) AS"
                " (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300000) SELECT i FROM n;"
                "INSERT INTO unit_of_work SELECT i, i * 1.0 FROM n;"
                "INSERT INTO touch SELECT 'shop.sales', i, 1, i FROM n;"
                "UPDATE materialized_view SET materialized_csn = 299000 + rowid;"
            )
        connection.close()
        yield project


def test_a_scrape_of_200_views_is_cheap(large: Project) -> None:
    monitor = Monitor(large)
    found = _scrape(monitor)
    assert len([name for name, _ in found if name == "rollview_view_lag_seconds"]) == 200
    assert found["rollview_view_lag_seconds", ("view_7",)] > 1e9
    seconds = []
    for _ in range(5):
        started = time.perf_counter()
        metrics_text(monitor)
        seconds.append(time.perf_counter() - started)
    assert min(seconds) < MOST_SECONDS


# Names and the page.


def test_names_follow_the_conventions() -> None:
    for each in DECLARED:
        assert re.fullmatch(r"rollview_[a-z_]+", each.name), each
        assert each.help.endswith("."), each
        if each.kind == "counter":
            assert not each.name.endswith("_total"), each
        assert not re.search(r"_(ms|milliseconds|minutes|hours|kb|mb)(_|$)", each.name), each
        assert all(re.fullmatch("[a-z]+", label) for label in each.labels), each
    assert len({each.name for each in DECLARED}) == len(DECLARED)


def test_the_page_lists_every_metric() -> None:
    rows = re.findall(
        r"^\| `(rollview_\w+)` \| (\w+) \|([^|]*)\| (.*) \|$", PAGE.read_text("utf-8"), re.MULTILINE
    )
    listed = {
        name: (kind, tuple(re.findall(r"`(\w+)`", labels)), described)
        for name, kind, labels, described in rows
    }
    real = {
        f"{each.name}_total" if each.kind == "counter" else each.name: (each.kind, each.labels, each.help)
        for each in DECLARED
    }
    assert listed == real, "python tests/monitoring/metrics_page.py prints the tables"
    assert list(listed) == list(real)


def test_nothing_but_what_is_declared_is_shown(watched: Project) -> None:
    commit(catalog_of(watched), [1.0])
    declared = {name for each in DECLARED for name in each.sample_names}
    shown = {name for name, _ in _scrape(Monitor(watched)) if name.startswith("rollview_")}
    assert {name.removesuffix("_created") for name in shown} <= declared | {
        name.removesuffix("_total") for name in declared
    }
