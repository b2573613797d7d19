"""A process dies between begin and finish, and another release of rollview finds its step.

What an older release wrote is finished as if nothing had happened. What a newer one wrote is refused, nothing
changes, and the command that the hint names leads out.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from crashing import Died, Executioner
from pyspark.sql import SparkSession
from shop import Shop, check_all, check_unharmed, shown

from rollview.catalog import LoadStep
from rollview.errors import HistoryBroken, SourceUnavailable, StepRefused
from rollview.maintain.load import LoadDriver
from rollview.project.project import Project

pytestmark = pytest.mark.slow

VIEWS = {
    "sales_by_state": """SELECT c.state, count(*) AS n, sum(s.amount) AS total FROM shop.sales s
        JOIN crm.customer c ON s.cust_id = c.cust_id GROUP BY c.state""",
    "states_of_size": "SELECT n, count(*) AS states FROM sales_by_state GROUP BY n",
}


class Releases:
    """A project whose processes die, and whose catalog is then made to look as another release left it."""

    def __init__(self, folder: Path, spark: SparkSession, executioner: Executioner) -> None:
        self.spark = spark
        self.executioner = executioner
        self.shop = Shop(folder, VIEWS)
        for _ in range(12):
            self.shop.transact()
        self.shop.begin()
        with self.open() as project:
            project.setup()

    def open(self) -> Project:
        return Project.open(self.shop.folder, self.spark)

    def die(self, place: str, reload: list[str] | None = None) -> None:
        """Changes every source, then runs, or reloads, until the process dies there."""
        before = {name: len(states) for name, states in self.shop.states.items()}
        while any(len(self.shop.states[name]) == number for name, number in before.items()):
            self.shop.transact()
        project = self.open()
        self.executioner.kill_at(place)
        with pytest.raises(Died):
            project.run(once=True) if reload is None else project.setup(reload)
        with suppress(Died):
            project.close()
        self.executioner.revive()

    def sql(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        catalog = self.shop.folder / "lake" / "catalog.db"
        with closing(sqlite3.connect(catalog)) as connection, connection:
            return connection.execute(statement, values).fetchall()

    def rewrite_as_old(self) -> str:
        """The only pending step as it was written before versions; its kind."""
        ((number, kind, text),) = self.sql("SELECT id, kind, bounds FROM step")
        bounds = json.loads(text)
        for site in bounds.get("sites", {}).values():
            site["marks"] = site.pop("source_txids")
        statement = "UPDATE step SET bounds = ?, version = 0, written_by = '' WHERE id = ?"
        self.sql(statement, json.dumps(bounds), number)
        return str(kind)

    def everything(self) -> dict[str, list[tuple[Any, ...]]]:
        """All tables of the catalog but the leases and the epoch, and the versions of all lake tables."""
        names = [name for (name,) in self.sql("SELECT name FROM sqlite_master WHERE type = 'table'")]
        found = {name: self.sql(f"SELECT * FROM {name}") for name in names if name != "lease"}
        found["catalog"] = self.sql("SELECT identity, last_step, watched_until FROM catalog")
        # Not when somebody looked last.
        found["site"] = self.sql("SELECT name, source, version, log_position, captured_at, merged FROM site")
        logs = sorted((self.shop.folder / "lake").rglob("_delta_log/*.json"))
        return found | {"lake": [(str(file),) for file in logs]}


@pytest.fixture
def releases(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Releases]:
    """A project that is set up. Maintenance would only take time."""
    monkeypatch.setattr("rollview.run.run.RunDriver.maintain_lake", lambda driver: {})
    made = Releases(tmp_path / "shop", spark, Executioner(monkeypatch))
    yield made
    made.shop.close()


def test_oracle_steps_of_an_older_release_are_finished(releases: Releases) -> None:
    """The drivers finish their own; a load that a reload had begun is done again by the next one."""
    for kind in ("capture", "propagate", "apply"):
        releases.die(f"begin of {kind}")
        assert releases.rewrite_as_old() == kind
        with releases.open() as project:
            assert [each.problem for each in project.status().unfinished] == [""], kind
            check_all(releases.shop, project)
    releases.die("begin of load", ["states_of_size"])
    assert releases.rewrite_as_old() == "load"
    with releases.open() as project:
        project.setup(["states_of_size"])
        check_all(releases.shop, project)


@pytest.mark.parametrize(
    ("place", "kind", "reload"),
    [
        ("_commit of crm/customer", None, []),
        ("_commit of deltas/sales_by_state", None, ["sales_by_state"]),
        ("_commit of views/sales_by_state", None, ["sales_by_state", "states_of_size"]),
        ("begin of propagate", "backfill", ["sales_by_state"]),
    ],
    ids=["capture", "propagate", "apply", "unknown kind"],
)
def test_oracle_a_step_of_a_newer_release_is_refused_with_a_way_out(
    releases: Releases, place: str, kind: str | None, reload: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    releases.die(place)
    if kind is None:
        releases.sql("UPDATE step SET version = 99, written_by = '7.3'")
    else:
        releases.sql("UPDATE step SET kind = ?, written_by = '7.3'", kind)
    before = releases.everything()
    with releases.open() as project:
        for attempt in (lambda: project.run(once=True), project.setup):
            with pytest.raises(StepRefused, match=r"written by rollview 7\.3, cannot be finished") as caught:
                attempt()
            assert releases.everything() == before
        check_unharmed(releases.shop, project)
        (unfinished,) = project.status().unfinished
        assert (unfinished.problem, unfinished.hint) == (caught.value.message, caught.value.hint)
    names = reload or ["all"]
    assert " ".join(["`rollview setup", *(f"--reload {name}" for name in names)]) + "`" in unfinished.hint
    _reload_in_vain(releases, reload, monkeypatch)
    with releases.open() as project:
        with pytest.raises(HistoryBroken, match="cannot continue"):
            project.run(once=True)
        assert "sales_by_state" in project.setup().loaded
        check_all(releases.shop, project)


def _reload_in_vain(releases: Releases, reload: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A reload that fails: what the views showed before can be read all the time, and afterwards."""
    with releases.open() as project, monkeypatch.context() as patch:
        before = {name: shown(project, name) for name in VIEWS}

        def check_readable(*_: object, **__: object) -> None:
            assert project.status().unfinished == ()
            for name, rows in before.items():
                assert shown(project, name) == rows, name
            raise SourceUnavailable("the source is away", subject="crm")

        patch.setattr(LoadDriver, "run", check_readable)
        with pytest.raises(SourceUnavailable):
            project.setup(reload)
        for name, rows in before.items():
            assert shown(project, name) == rows, name


def test_a_reload_that_died_is_given_up_by_the_next_setup(shop: Shop, project: Project) -> None:
    """The view keeps what it shows; `status` no longer calls the load unfinished."""
    catalog = project._warehouse.catalog
    with catalog.lease("propagate:sold") as lease:
        catalog.steps.begin(lease, "sold", LoadStep())
    assert [each.step for each in project.status().unfinished] == ["load sold"]
    project.setup()
    assert project.status().unfinished == ()
    assert shown(project, "sold") == shop.expected_now("sold")
