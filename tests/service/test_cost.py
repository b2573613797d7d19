"""Spark jobs are the unit of cost: a step with few changes runs one per view, and writes each table once."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from shop import Shop

from rollview.service.project import Project

pytestmark = pytest.mark.slow


def test_a_small_step_is_one_job_per_view(shop: Shop, spark: SparkSession) -> None:
    for _ in range(20):
        shop.transact()
    with Project.open(shop.folder, spark) as project:
        project.setup()
        shop.begin()
        tracker = spark.sparkContext.statusTracker()
        for _ in range(3):
            for _ in range(4):
                shop.transact()
            project.capture()
            for view in project.views:
                delta = project._warehouse.delta_table(view)
                before = len(tracker.getJobIdsForGroup(None)), delta.version()
                project.propagate(view)
                jobs = len(tracker.getJobIdsForGroup(None)) - before[0]
                assert jobs <= 1, view
                assert delta.version() - before[1] <= 1, view
            before_apply = len(tracker.getJobIdsForGroup(None))
            versions = {view: project._warehouse.view_table(view).version() for view in project.views}
            csn = project.refresh(*project.views)
            assert len(tracker.getJobIdsForGroup(None)) - before_apply <= len(project.views)
            for view, version in versions.items():
                assert project._warehouse.view_table(view).version() - version <= 1
                assert project._warehouse.record(view).materialized_csn == csn
