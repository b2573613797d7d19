"""Consumers of view deltas: at least once, in order, whatever happens to the view and to them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from shop import VIEWS, Shop, frozen, transact

from rollview.cli import main
from rollview.errors import ConsumerLost, InputError, LeaseHeld, PointError
from rollview.project.project import Project
from rollview.upkeep.consumers import Changes

pytestmark = pytest.mark.slow


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    shop = Shop(tmp_path / "shop", VIEWS)
    transact(shop, 30)
    shop.begin()
    return shop


class Copy:
    """A copy of a view that lives on what a consumer is given."""

    def __init__(self, project: Project, view: str) -> None:
        self.view = view
        rows = project.read_as_of(view)
        self.rows, self.csn = Counter(map(frozen, rows.rows.collect())), rows.csn

    def take(self, changes: Changes) -> None:
        """Adds changes, once each: what comes again is known by its csn."""
        assert changes.after <= self.csn
        if changes.upto > self.csn or changes.reason:
            for row in changes.rows.collect():
                values = frozen(row)
                self.rows[values[:-2]] += values[-2]
        self.csn = max(self.csn, changes.upto)

    def check(self, shop: Shop, project: Project) -> None:
        assert min(self.rows.values(), default=0) >= 0
        assert +self.rows == shop.expected(project, self.view, self.csn)


def _step(shop: Shop, project: Project) -> None:
    transact(shop, 4)
    project.run(once=True)


def test_oracle_a_copy_follows(shop: Shop, spark: SparkSession) -> None:
    """Through interruptions, condensing and a reload, with nothing kept but what the consumer needs."""
    shop.write_project(retention="{changes: 0s, deltas: 0s, files: 0s}")
    with Project.open(shop.folder, spark) as project:
        project.setup()
        copies = {view: Copy(project, view) for view in VIEWS}
        for view, copy in copies.items():
            with project.consumer(view, "copy", copy.csn) as changes:
                assert changes.position == copy.csn
        for number in range(4):
            for _ in range(2):
                _step(shop, project)
                project._drivers.maintain.run()
            if number == 1:
                for view in copies:
                    position = next(each.csn for each in project.consumers() if each.view == view)
                    status = next(each for each in project.status().views if each.name == view)
                    assert [each.name for each in status.consumers] == ["copy"]
                    if status.materialized - position > 1:
                        project.condense(view, position, status.materialized)
            if number == 2:
                project.setup(reload=["sold"])
                project._drivers.maintain.run()
            for view, copy in copies.items():
                with project.consumer(view, "copy") as consumer:
                    given = consumer.next()
                    if given is not None:
                        # It dies here: the same comes again.
                        again = consumer.next()
                        assert again is not None and (again.after, again.upto) == (given.after, given.upto)
                    for each in consumer:
                        copy.take(each)
                    assert consumer.next() is None
                shop.match(project)
                assert copy.csn == project.status().last_csn
                copy.check(shop, project)


def test_what_a_consumer_may_not(shop: Shop, spark: SparkSession) -> None:
    shop.views["recomputed"] = (
        "CREATE MATERIALIZED VIEW recomputed TBLPROPERTIES ('rollview.policy' = 'snapshot') AS "
        + VIEWS["sales_by_state"]
    )
    shop.write_project()
    with Project.open(shop.folder, spark) as project:
        project.setup()
        for _ in range(2):
            _step(shop, project)
        with pytest.raises(InputError, match="view recomputed has no view delta"):
            project.consumer("recomputed", "c")
        with pytest.raises(PointError):
            project.consumer("sold", "c", 10_000)
        with project.consumer("sold", "c", 1) as consumer:
            with pytest.raises(LeaseHeld):
                project.consumer("sold", "c")
            with pytest.raises(InputError, match="consumer c of sold is at csn 1"):
                project._drivers.consumers.begin("sold", "c", 2)
            with pytest.raises(InputError, match="consumer c is at csn 1, inside the range"):
                project.condense("sold", 0, project.status().last_csn)
            assert consumer.position == 1
        # Other columns: nobody can say what that does to a copy.
        shop.views["sold"] = "SELECT sale_id, amount FROM shop.sales"
        shop.write_project()
        project.setup()
        with pytest.raises(ConsumerLost, match="has other columns"):
            for _ in project.consumer("sold", "c"):
                pass
        assert project.drop_consumer("sold", "c") and not project.drop_consumer("sold", "c")


def test_a_consumer_that_is_killed_misses_nothing(shop: Shop, spark: SparkSession, tmp_path: Path) -> None:
    """A real process that follows, killed again and again; its lines are all that anybody has."""
    written = tmp_path / "lines"
    command = [sys.executable, "-c", "from rollview.cli import main; main()", "deltas", "sales_by_state"]
    command += ["--consumer", "pipe", "--follow", "--json", "--project", str(shop.folder)]
    with Project.open(shop.folder, spark) as project:
        project.setup()
        copy = Copy(project, "sales_by_state")
        with project.consumer("sales_by_state", "pipe", copy.csn):
            pass
        for kill in range(2):
            before = project.consumers()[0].csn
            with written.open("ab") as file, subprocess.Popen(command, stdout=file) as process:
                deadline = time.monotonic() + 120
                while project.consumers()[0].csn == before and time.monotonic() < deadline:
                    _step(shop, project)
                    time.sleep(0.05)
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
            assert project.consumers()[0].csn > before, kill
        done = CliRunner().invoke(
            main, [*command[3:6], "pipe", "--json", "--project", str(shop.folder)], obj=spark
        )
        assert done.exit_code == 0, done.output
        shop.match(project)
        lines = written.read_text().splitlines() + done.stdout.splitlines()
        for line in lines:
            # The last line of a process that was killed may not be whole; what was in it comes again.
            try:
                piece: dict[str, Any] = json.loads(line)
            except json.JSONDecodeError:
                continue
            assert piece["after"] <= copy.csn
            if piece["upto"] > copy.csn:
                for row in piece["rows"]:
                    values = [row[name] for name in piece["columns"][2:]]
                    copy.rows[tuple(values)] += row["_count"]
                copy.csn = piece["upto"]
        assert copy.csn == project.status().last_csn
        copy.check(shop, project)
