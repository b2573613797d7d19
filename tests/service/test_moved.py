"""A project that was moved or copied asks before it captures: a copy must not take what is the original's."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from shop import VIEWS, Shop, shown, transact

from pages.what_if import what_if
from rollview.errors import ProjectMoved
from rollview.service.project import Project

pytestmark = pytest.mark.slow


@what_if(
    "all sources",
    "the project is moved or copied",
    "it can be read; before it captures, `rollview setup --moved` or `--copy` must say which of "
    "both it was, so that a copy does not take what the original has not read yet",
)
def test_oracle_a_project_that_was_moved_asks_first(tmp_path: Path, spark: SparkSession) -> None:
    shop = Shop(tmp_path / "shop", {"sold": VIEWS["sold"]})
    transact(shop, 12)
    with Project.open(shop.folder, spark) as project:
        project.setup()
        transact(shop)
        project.run(once=True)
        before = shown(project, "sold")
    shop.close()
    moved = tmp_path / "elsewhere"
    shutil.copytree(shop.folder, moved)
    with Project.open(moved, spark) as project:
        for call in (lambda: project.run(once=True), project.capture, project.setup):
            with pytest.raises(ProjectMoved, match="was set up as"):
                call()
        # Nobody else is concerned.
        assert shown(project, "sold") == before
        assert project.settle().loaded == {}
        project.run(once=True)
        assert all(verdict.is_right for verdict in project.verify())
    with Project.open(moved, spark) as project:
        assert set(project.settle(is_copy=True).loaded) == {"sold"}
        assert shown(project, "sold") == before
