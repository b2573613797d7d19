"""What an earlier release has left, with unfinished steps: the present one opens, finishes and continues.

The files are written by `tests/fixtures/write_release.py` and kept.
"""

from __future__ import annotations

import json
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from shop import shown

from rollview.catalog.migrations import NEWEST
from rollview.errors import PointError, ProjectMoved
from rollview.project.project import Project

pytestmark = pytest.mark.slow

FIXTURES = {
    int(file.name.removeprefix("schema-").partition(".")[0]): file
    for file in sorted((Path(__file__).parents[1] / "fixtures").glob("schema-*.tar.xz"))
}
"""What is kept, by the version of the catalog's schema."""
UNFINISHED = {"capture", "propagate sold", "apply sales_by_state"}


def _unpacked(archive: Path, folder: Path) -> dict[str, Any]:
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    expected: dict[str, Any] = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    return expected


def _check_states(project: Project, states: dict[str, dict[str, list[str]]]) -> None:
    for view, points in states.items():
        for csn, rows in points.items():
            found = sorted(map(repr, shown(project, view, int(csn)).elements()))
            assert found == rows, (view, csn)


def _sql(file: Path, statement: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(file)) as connection, connection:
        return connection.execute(statement).fetchall()


def test_the_newest_schema_has_a_fixture() -> None:
    """Whoever adds a migration keeps what there was before it."""
    assert max(FIXTURES) >= NEWEST - 1
    assert all(file.stat().st_size < 300_000 for file in FIXTURES.values())


@pytest.mark.parametrize(
    "archive",
    [
        # What was written with the present schema comes last: it will be an older one soon enough.
        pytest.param(file, id=f"schema {number}", marks=[pytest.mark.campaign] if number == NEWEST else [])
        for number, file in FIXTURES.items()
    ],
)
def test_oracle_an_earlier_release_left_it_in_the_middle(
    archive: Path, tmp_path: Path, spark: SparkSession
) -> None:
    expected = _unpacked(archive, tmp_path)
    folder = tmp_path / "shop"
    with Project.open(folder, spark) as project:
        status = project.status()
        # Opening has brought the catalog up to date; what was begun can be finished by this release.
        assert _sql(folder / "lake" / "catalog.db", "SELECT max(version) FROM schema_version") == [(NEWEST,)]
        assert {each.step for each in status.unfinished} == UNFINISHED
        assert [each.problem for each in status.unfinished] == [""] * len(UNFINISHED)
        _check_states(project, expected["states"])
        with pytest.raises(ProjectMoved, match="was set up as /srv/rollview/shop"):
            project.run(once=True)
        assert project.confirm_move().loaded == {}
        project.run(once=True)
        assert project.status().unfinished == ()
        _check_right(project)
        # A snapshot that was refreshed has no history.
        _check_states(project, {name: at for name, at in expected["states"].items() if name != "totals"})
        view, first, last = expected["condensed"]
        with pytest.raises(PointError):
            project.read(view, (first + last) // 2)
        _check_consumer(project, expected["consumer"])
    _sql(folder / "shop.db", "INSERT INTO sales VALUES (99, 1, 1, 77)")
    _sql(folder / "crm.db", "INSERT OR REPLACE INTO customer VALUES (1, 'new', 'x')")
    with Project.open(folder, spark) as project:
        project.run(once=True)
        assert all(verdict.is_right for verdict in project.verify("sales_by_state", "best"))
        assert "new" in {row[0] for row in shown(project, "sales_by_state")}


def _check_right(project: Project) -> None:
    project.refresh("totals")
    assert [verdict.view for verdict in project.verify() if not verdict.is_right] == []
    assert {view.state for view in project.status().views} == {"running"}


def _check_consumer(project: Project, position: int | None) -> None:
    """It continues from what it has acknowledged, and gets everything since."""
    if position is None:
        return
    with project.consumer("sales_by_state", "billing") as changes:
        assert changes.position == position
        reached = position
        while (found := changes.next()) is not None:
            assert found.after == reached
            changes.acknowledge(found)
            reached = found.upto
    (view,) = [each for each in project.status().views if each.name == "sales_by_state"]
    assert reached == view.high_water
