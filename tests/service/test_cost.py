"""Spark jobs are the unit of cost: a step with few changes runs one per view, and writes each table once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from shop import Shop, shown
from sqlalchemy import event

from rollview.bags import arrow_ops
from rollview.project.project import Project

pytestmark = pytest.mark.slow


def test_a_small_step_is_one_job_per_view(shop: Shop, spark: SparkSession) -> None:
    for _ in range(20):
        shop.transact()
    with Project.open(shop.folder, spark) as project:
        project.setup()
        shop.begin()
        tracker = spark.sparkContext.statusTracker()
        _check_that_jobs_are_counted(spark)
        for _ in range(3):
            for _ in range(4):
                shop.transact()
            project.capture()
            for view in project.views:
                delta = project._warehouse.tables.of_view(view, 1).deltas
                before = len(tracker.getJobIdsForGroup(None)), delta.version()
                with _statements(project) as statements:
                    project.propagate(view)
                _check_that_definitions_are_compared_once(statements)
                jobs = len(tracker.getJobIdsForGroup(None)) - before[0]
                assert jobs <= 1, view
                assert delta.version() - before[1] <= 1, view
            before_apply = len(tracker.getJobIdsForGroup(None))
            versions = {
                view: project._warehouse.tables.of_view(view, 1).rows.version() for view in project.views
            }
            csn = project.refresh(*project.views).csn
            assert len(tracker.getJobIdsForGroup(None)) - before_apply <= len(project.views)
            for view, version in versions.items():
                assert project._warehouse.tables.of_view(view, 1).rows.version() - version <= 1
                assert project._warehouse.views.record(view).materialized_csn == csn


@contextmanager
def _statements(project: Project) -> Iterator[list[str]]:
    """The statements by which the catalog is read and written."""
    said: list[str] = []

    def note(*call: Any) -> None:
        said.append(call[2])

    engine = project._warehouse.catalog._database.engine
    event.listen(engine, "before_cursor_execute", note)
    try:
        yield said
    finally:
        event.remove(engine, "before_cursor_execute", note)


def _check_that_definitions_are_compared_once(statements: list[str]) -> None:
    """For each state of the catalog: one more than it was written."""
    written = sum(each.startswith("BEGIN IMMEDIATE") for each in statements)
    digests = [each for each in statements if "digest" in each and "sql_text" not in each]
    assert written
    assert 0 < sum(each.startswith("SELECT") for each in digests) <= written + 1


def _check_that_jobs_are_counted(spark: SparkSession) -> None:
    """Spark forgets old jobs when there are many; then a difference of counts would say nothing."""
    tracker = spark.sparkContext.statusTracker()
    before, deadline = len(tracker.getJobIdsForGroup(None)), time.monotonic() + 30
    spark.range(3).count()
    while len(tracker.getJobIdsForGroup(None)) == before:
        assert time.monotonic() < deadline, "a job was run and is not counted"
        time.sleep(0.02)


def test_keys_that_change_all_the_time_do_not_multiply(shop: Shop, spark: SparkSession) -> None:
    """Hundreds of changes to a handful of keys: what a row meets is what was true at its moment, not all."""
    for _ in range(20):
        shop.transact()
    most = 0
    join = arrow_ops.join

    def measured(left: pa.Table, right: pa.Table, *how: Any) -> pa.Table | None:
        nonlocal most
        joined = join(left, right, *how)
        most = max(most, 0 if joined is None else joined.num_rows)
        return joined

    with Project.open(shop.folder, spark) as project, pytest.MonkeyPatch.context() as patch:
        project.setup()
        for _ in range(400):
            shop.transact(4)
        assert project.capture().transactions
        patch.setattr(arrow_ops, "join", measured)
        patch.setattr(arrow_ops, "MOST_PAIRS", 200_000)
        project.refresh()
        assert 0 < most < 200_000
        for view in project.views:
            assert shown(project, view) == shop.expected_now(view)


def test_a_backlog_does_not_multiply_with_the_changes_of_a_key(shop: Shop, spark: SparkSession) -> None:
    """A step of twenty transactions meets as many pairs of rows, however far it is behind."""
    shop.views = {
        "sold": f"""CREATE MATERIALIZED VIEW sold TBLPROPERTIES ('rollview.interval' = '20') AS
            {shop.views["sold"]}"""
    }
    shop.write_project()
    join, most = arrow_ops.join, 0

    def measured(left: pa.Table, right: pa.Table, on: Any, condition: Any) -> pa.Table | None:
        nonlocal most
        if on:
            most = max(most, arrow_ops._pairs(left, right, on))
        return join(left, right, on, condition)

    pairs = []
    with Project.open(shop.folder, spark) as project, pytest.MonkeyPatch.context() as patch:
        project.setup()
        patch.setattr(arrow_ops, "join", measured)
        for number in (60, 600):
            for _ in range(number):
                shop.transact(4)
            assert project.capture().transactions
            most = 0
            project.refresh()
            pairs.append(most)
            assert shown(project, "sold") == shop.expected_now("sold")
    # The tables have grown meanwhile, so there is more to meet; ten times as much would be the backlog.
    assert 0 < pairs[1] <= 5 * pairs[0], pairs
