"""The crash campaign catches what it is for: mistakes that are harmless until a process dies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from crash_bench import VIEWS, Bench
from crashing import Executioner
from pyspark.sql import SparkSession

from rollview.catalog.steps import Steps
from rollview.errors import RollviewError
from rollview.lake import LakeTable
from rollview.lake.log import DeltaLog
from rollview.project.project import Project

pytestmark = pytest.mark.slow
Patch = pytest.MonkeyPatch
ONE_VIEW = {"sales_by_state": VIEWS["sales_by_state"]}


def commit_ids_not_looked_at(patch: Patch) -> None:
    """A step that is redone writes again what it had written."""
    patch.setattr(DeltaLog, "last_step", lambda log, writer: 0)


def steps_not_redone(patch: Patch) -> None:
    """Whoever comes after a crash begins a new step, with bounds of its own."""
    patch.setattr(Steps, "pending", lambda steps, kind, subject=None: [])


def finished_before_it_is_written(patch: Patch) -> None:
    """The catalog says that a step is done, and then its rows are committed."""
    late: list[Callable[[], Any]] = []
    commit, finish = LakeTable._commit, Steps.finish

    def commit_later(table: LakeTable, *arguments: Any, **options: Any) -> int:
        late.append(lambda: commit(table, *arguments, **options))
        return table.version() + 1

    def finish_first(steps: Steps, *arguments: Any) -> None:
        finished = list(late)
        late.clear()
        finish(steps, *arguments)
        for each in finished:
            each()

    patch.setattr(LakeTable, "_commit", commit_later)
    patch.setattr(Steps, "finish", finish_first)


MISTAKES = [commit_ids_not_looked_at, steps_not_redone, finished_before_it_is_written]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_the_crash_campaign_catches(
    mistake: Callable[[Patch], None], tmp_path: Path, spark: SparkSession, monkeypatch: Patch
) -> None:
    monkeypatch.setattr("rollview.run.run.RunDriver.maintain_lake", lambda driver: {})
    bench = Bench(tmp_path / "shop", spark, Executioner(monkeypatch), ONE_VIEW)
    assert bench.do(lambda project: project.setup())
    mistake(monkeypatch)
    bench.change_every_source()
    bench.check("nobody dies")
    assert _is_caught(bench)
    bench.shop.close()


def _is_caught(bench: Bench) -> bool:
    def action(project: Project) -> None:
        project.run(once=True)

    try:
        for place in bench.every_crash(action):
            bench.check(place)
    except (AssertionError, RollviewError):
        return True
    return False
