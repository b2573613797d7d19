"""Setup changes all or nothing: what is refused leaves everything as it was, and maintained."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from crashing import Died, Executioner
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from shop import DEEP_VIEWS, MORE_VIEWS, VIEWS, Shop, check_all, shown, transact

from rollview.algebra.view import is_stage, owner
from rollview.errors import (
    CaptureRefused,
    CatalogError,
    HistoryBroken,
    Misunderstood,
    RollviewError,
    SetupIncomplete,
    SeveralMistakes,
    SourceUnavailable,
)
from rollview.events import Event, Refreshed
from rollview.project.project import Project
from rollview.setup.plan import (
    BeginHistory,
    DeriveView,
    DropView,
    KeepView,
    LoadView,
    PrepareSource,
    RestartHistory,
    RestartTable,
    SetupPlan,
    StopCapture,
)

pytestmark = pytest.mark.slow


def content(path: Path) -> Any:
    """All that a SQLite database holds, less the leases of a catalog."""
    with closing(sqlite3.connect(path)) as connection:
        schema = connection.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY name").fetchall()
        tables = [name for kind, name, _ in schema if kind == "table" and name != "lease"]
        return schema, {name: connection.execute(f'SELECT * FROM "{name}"').fetchall() for name in tables}


def everything(shop: Shop) -> dict[str, Any]:
    """Sources, lake and catalog."""
    found: dict[str, Any] = {name: content(shop.folder / f"{name}.db") for name in shop.connections}
    for file in sorted((shop.folder / "lake").rglob("*")):
        if "catalog.db" not in file.name:
            found[str(file)] = file.read_bytes() if file.is_file() else b""
    catalog = shop.folder / "lake" / "catalog.db"
    return found | {"catalog": content(catalog) if catalog.exists() else None}


def plan_and_set_up(shop: Shop, project: Project, reload: Iterable[str] | None = None) -> SetupPlan:
    """A dry run, which changes nothing, and a setup, which does what the dry run said."""
    shop.write_project()
    known = {name: len(states) for name, states in shop.states.items()}
    while any(len(shop.states[name]) == number for name, number in known.items()):
        shop.transact()
    before = everything(shop)
    plan = project.plan_setup(reload)
    assert everything(shop) == before
    is_first = before["catalog"] is None
    tables_before = set() if is_first else set(project._warehouse.catalog.captured.tables())
    received: list[Event] = []
    end = project.subscribe(received.append)
    report = project.setup(reload)
    end()
    shop.capture_views()
    loads = {each.view: each.reason for each in plan.all(LoadView)}
    assert loads == {each.view: each.reason for each in received if isinstance(each, Refreshed)}
    assert report.loaded == {view: reason for view, reason in loads.items() if not is_stage(view)}
    assert report.unchanged == [each.view for each in plan.all(KeepView) if not is_stage(each.view)]
    assert report.dropped == [each.view for each in plan.all(DropView) if not is_stage(each.view)]
    assert report.warnings == list(plan.warnings)
    stopped = {
        each.source: [name.partition(".")[2] for name in each.tables] for each in plan.all(StopCapture)
    }
    assert report.sources == {
        each.source: [
            *each.changes, *(f"table {name} is no longer captured" for name in stopped.get(each.source, ())),
        ]
        for each in plan.all(PrepareSource)
    }  # fmt: skip
    # A history that begins has no transaction yet; one that continues has those of before.
    catalog = project._warehouse.catalog
    forgotten = {each.site for each in plan.all(RestartHistory)}
    begun = {each.site: set(each.tables) for each in plan.all(BeginHistory)}
    assert forgotten <= begun.keys()
    new = {name for name, site in catalog.captured.sites().items() if site.version == 0}
    assert new == (set(begun) if is_first else forgotten)
    kept = {name for name in tables_before if name.partition(".")[0] not in forgotten}
    assert set(catalog.captured.tables()) == kept.union(*begun.values())
    assert set(catalog.views.all()) == {each.view for each in (*plan.all(LoadView), *plan.all(KeepView))}
    if not is_first:
        check_all(shop, project)
    return plan


def test_setup_does_what_a_dry_run_says(shop: Shop, spark: SparkSession) -> None:
    shop.views = {**VIEWS, "families": MORE_VIEWS["families"], "days_of_size": DEEP_VIEWS["days_of_size"]}
    shop.begin()
    with Project.open(shop.folder, spark) as project:
        plan = plan_and_set_up(shop, project)
        assert len(plan.all(LoadView)) == 5
        assert {each.reason for each in plan.all(LoadView)} == {"first load"}
        plan = plan_and_set_up(shop, project)
        assert {type(each) for each in plan.actions} == {PrepareSource, KeepView}
        assert not any(each.changes for each in plan.all(PrepareSource))

        shop.views["states_of_size"] = MORE_VIEWS["states_of_size"]
        plan = plan_and_set_up(shop, project)
        assert plan.all(LoadView) == (LoadView("states_of_size", "first load"),)

        shop.views["sales_by_state"] = VIEWS["sales_by_state"].replace("avg(s.amount) AS mean", "1 AS one")
        plan = plan_and_set_up(shop, project)
        assert plan.all(LoadView) == (
            DeriveView("sales_by_state", "the definition changed", "sales_by_state"),
            LoadView("states_of_size", "sales_by_state was loaded"),
        )

        del shop.views["sold"], shop.views["families"]
        plan = plan_and_set_up(shop, project)
        assert [(each.view, each.reason) for each in plan.all(DropView)] == [
            ("families", "its file is gone"),
            ("sold", "its file is gone"),
        ]
        assert plan.all(StopCapture) == (StopCapture("shop", ("shop.product",)),)

        plan = plan_and_set_up(shop, project, ["days_of_size"])
        loaded = [each.view for each in plan.all(LoadView)]
        assert [owner(name) for name in loaded] == ["days_of_size"] * 2 and len(set(loaded)) == 2
        assert "$" not in "\n".join(plan.lines)


def test_setup_does_what_a_dry_run_says_of_histories(shop: Shop, project: Project) -> None:
    shop.views["customers"] = "SELECT cust_id, segment FROM crm.customer"
    shop.views["products"] = "SELECT kind, parent_id FROM shop.product"
    plan_and_set_up(shop, project)
    plan = plan_and_set_up(shop, project, ["crm"])
    assert plan.all(RestartHistory) == (RestartHistory("crm", "all views that read it are reloaded"),)
    assert plan.all(KeepView) == (KeepView("products"),)
    plan = plan_and_set_up(shop, project, [])
    assert {each.site for each in plan.all(RestartHistory)} == {"crm", "shop"}
    assert {each.reason for each in plan.all(LoadView)} == {"asked for"}
    shop.connections["crm"].execute("ALTER TABLE customer ADD COLUMN age INTEGER")
    plan = plan_and_set_up(shop, project)
    assert (plan.all(RestartHistory), plan.all(RestartTable), plan.all(LoadView)) == ((), (), ())
    shop.views["ages"] = "SELECT cust_id, age FROM crm.customer"
    shop.write_project()
    plan = project.plan_setup()
    assert (plan.all(RestartHistory), plan.all(RestartTable)) == ((), ())
    assert [each.view for each in plan.all(LoadView)] == ["ages"]
    assert list(project.setup().loaded) == ["ages"]


def test_a_dry_run_of_a_catalog_that_would_be_brought_up_to_date(shop: Shop, project: Project) -> None:
    project.close()
    catalog = shop.folder / "lake" / "catalog.db"
    with closing(sqlite3.connect(catalog)) as connection, connection:
        connection.execute("DELETE FROM schema_version WHERE version > 7")
    before = everything(shop)
    with Project.open(shop.folder) as other, pytest.raises(CatalogError, match="earlier release"):
        other.plan_setup()
    assert everything(shop) == before


def refuse(shop: Shop, source: str, table: str, column: str) -> None:
    """Makes a table one that cannot be captured."""
    shop.connections[source].execute(f"CREATE UNIQUE INDEX ux ON {table}(abs({column}))")


def test_all_sources_are_asked_before_any_is_changed(shop: Shop, spark: SparkSession) -> None:
    """The second one refuses, then both do: nothing is installed, nothing is made."""
    refuse(shop, "crm", "customer", "cust_id")
    before = everything(shop)
    with Project.open(shop.folder, spark) as project:
        for attempt in (project.plan_setup, project.setup):
            with pytest.raises(CaptureRefused, match=r"crm\.customer"):
                attempt()
            assert everything(shop) == before
        refuse(shop, "shop", "sales", "sale_id")
        before = everything(shop)
        with pytest.raises(SeveralMistakes) as caught:
            project.setup()
        assert [each.subject for each in caught.value.mistakes] == ["shop.sales", "crm.customer"]
        assert caught.value.message.startswith("2 mistakes:\n  table shop.sales cannot be captured")
        assert everything(shop) == before
    assert not (shop.folder / "lake").exists()


def test_mistakes_that_spark_finds_are_reported_together(
    shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a view that Spark understands differently; what reads such a view is not judged."""

    def check(spark: SparkSession, view: Any, layout: Any) -> None:
        if view.name != "sales_by_state":
            raise Misunderstood("Spark differs", subject=view.name)

    monkeypatch.setattr("rollview.views.equivalence_check.check_meaning_by_invention", check)
    monkeypatch.setattr("rollview.views.equivalence_check._proved", set())
    shop.views |= {
        "nothing": "SELECT NULL AS x\nFROM shop.sales",
        "reads_nothing": "SELECT x FROM nothing",
        "reads_sold": "SELECT amount FROM sold",
        "unknown": "SELECT s.sale_id,\ns.colour FROM shop.sales s",
    }
    shop.write_project()
    before = everything(shop)
    with Project.open(shop.folder, spark) as project:
        with pytest.raises(SeveralMistakes) as caught:
            project.setup(["no such view"])
        received = [(each.file, each.line) for each in caught.value.mistakes]  # type: ignore[attr-defined]
        assert received == [("views/nothing.sql", 0), ("views/unknown.sql", 2), ("views/sold.sql", 0)]
        assert everything(shop) == before
        shop.views = dict(VIEWS)
        shop.write_project()
        plan = project.plan_setup()
        assert {name: error.message for name, error in plan.stopped.items()} == {"sold": "Spark differs"}
        assert everything(shop) == before
        with pytest.raises(SetupIncomplete) as alone:
            project.setup()
        assert [type(each) for each in alone.value.errors.values()] == [Misunderstood]
        assert alone.value.message == (
            "1 view was not set up; the others were:\n  views/sold.sql: Spark differs"
        )
        assert project.views == ("sales_by_state",), "it stops that view alone"


def test_a_source_that_refuses(shop: Shop, project: Project) -> None:
    """An index that capture cannot follow, and views to reload, change and drop."""
    before = {view.name: view.oldest for view in project.status().views}
    with closing(sqlite3.connect(shop.folder / "shop.db")) as connection:
        connection.execute("CREATE UNIQUE INDEX ux ON sales(abs(sale_id))")
        connection.commit()
    for reload in ([], ["shop"], ["sold"]):
        with pytest.raises(CaptureRefused):
            project.setup(reload)
        assert {view.name: view.oldest for view in project.status().views} == before
    shop.views["more"] = "SELECT kind FROM shop.product"
    del shop.views["sold"]
    shop.write_project()
    with pytest.raises(CaptureRefused):
        project.setup()
    status = project.status()
    assert {view.name: view.oldest for view in status.views} == before
    assert status.missing == ("more",)
    with closing(sqlite3.connect(shop.folder / "shop.db")) as connection:
        connection.execute("DROP INDEX ux")
        connection.commit()
    # As it was: the dropped view is still there, and everything is maintained.
    shop.views = dict(VIEWS)
    shop.write_project()
    transact(shop)
    check_all(shop, project)


def test_a_source_that_is_locked(shop: Shop, project: Project) -> None:
    shop.write_project()
    before = {view.name: view.oldest for view in project.status().views}
    text = (shop.folder / "rollview.yml").read_text()
    (shop.folder / "rollview.yml").write_text(text.replace("./shop.db", "./shop.db, timeout: 0.2"))
    with closing(sqlite3.connect(shop.folder / "shop.db", isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        with Project.open(shop.folder, project.spark) as other, pytest.raises(SourceUnavailable):
            other.setup([])
        connection.execute("ROLLBACK")
    assert {view.name: view.oldest for view in project.status().views} == before
    transact(shop)
    check_all(shop, project)


def test_bad_input_is_found_before_anything_else(shop: Shop, project: Project) -> None:
    shop.views["nothing"] = "SELECT NULL AS x FROM shop.sales"
    shop.write_project()
    with pytest.raises(RollviewError, match=r"nothing\.sql"):
        project.setup([])
    del shop.views["nothing"]
    shop.write_project()
    transact(shop)
    check_all(shop, project)


def test_capture_of_what_is_no_longer_read_is_removed(shop: Shop, spark: SparkSession) -> None:
    shop.views = {"sold": shop.views["sold"], "products": "SELECT kind FROM shop.product"}
    shop.write_project()
    with Project.open(shop.folder, spark) as project:
        project.setup()
        shop.views = {"sums": "SELECT sum(amount) AS a FROM shop.sales"}
        shop.write_project()
        report = project.setup()
        assert sorted(report.dropped) == ["products", "sold"]
        assert "table product is no longer captured" in report.sources["shop"]
        assert report.sources["shop"].count("table product is no longer captured") == 1
        assert project.setup().sources["shop"] == []


@pytest.mark.parametrize("reload", [["shop"], ["sales_by_state"], "columns"])
def test_oracle_a_reload_that_dies_anywhere_leaves_what_there_was(
    shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, reload: list[str] | str
) -> None:
    """The content, also of older csn, can be read by rollview; the table in the lake is complete."""
    executioner = Executioner(monkeypatch)
    shop.views = {"sales_by_state": VIEWS["sales_by_state"], "states_of_size": MORE_VIEWS["states_of_size"]}
    shop.write_project()
    transact(shop, 8)
    with Project.open(shop.folder, spark) as project:
        project.setup()
        transact(shop, 6)
        project.run(once=True)
        if reload == "columns":
            old = shop.views["sales_by_state"]
            shop.views["sales_by_state"] = old.replace("c.state,", "c.state, 1 AS one,", 1)
            shop.write_project()
            shop.views["sales_by_state"] = old
        status = {view.name: view for view in project.status().views}
        before = {
            (name, csn): shown(project, name, csn)
            for name, view in status.items()
            for csn in {view.oldest, (view.oldest + view.materialized) // 2, view.materialized}
        }
    deaths = 0
    for moment in range(0, 400, 4):
        project = Project.open(shop.folder, spark)
        executioner.kill_at(moment)
        try:
            project.setup(None if reload == "columns" else reload)
        except Died:
            deaths += 1
        else:
            break
        finally:
            with suppress(Died):
                project.close()
            executioner.revive()
        with Project.open(shop.folder, spark) as project:
            if moment % 8:
                with suppress(HistoryBroken):
                    project.run(once=True)
            loaded = {view.name for view in project.status().views if view.oldest != status[view.name].oldest}
            for (name, csn), rows in before.items():
                if name not in loaded:
                    assert shown(project, name, csn) == rows, (executioner.place, name, csn)
            for name in status.keys() - loaded:
                table = DeltaTable(str(shop.folder / "lake" / "views" / name)).to_pyarrow_table()
                assert table.num_rows == sum(before[name, status[name].materialized].values())
    assert deaths > 5
    with Project.open(shop.folder, spark) as project:
        if reload == "columns":
            shop.views["sales_by_state"] = old.replace("c.state,", "c.state, 1 AS one,", 1)
        transact(shop)
        project.run(once=True)
        for name in status:
            assert shown(project, name) == shop.expected_now(name)
        assert project.status().unfinished == ()


def test_oracle_a_load_that_died_is_taken_back(
    shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had replaced the rows already: the old definition is maintained, until setup is run again."""
    executioner = Executioner(monkeypatch)
    old = shop.views["sales_by_state"]
    transact(shop, 8)
    with Project.open(shop.folder, spark) as project:
        project.setup()
        columns = project.read("sales_by_state").columns
    new = old.replace("c.state,", "c.state, 1 AS one,", 1)
    shop.views["sales_by_state"] = new
    shop.write_project()
    project = Project.open(shop.folder, spark)
    executioner.kill_at("_commit of views/sales_by_state")
    with pytest.raises(Died):
        project.setup()
    with suppress(Died):
        project.close()
    executioner.revive()
    table = str(shop.folder / "lake" / "views" / "sales_by_state")
    assert "one" in DeltaTable(table).to_pyarrow_table().column_names
    shop.views["sales_by_state"] = old
    with Project.open(shop.folder, spark) as project:
        assert [each.step for each in project.status().unfinished] == ["load sales_by_state"]
        transact(shop)
        project.run(once=True)
        assert DeltaTable(table).to_pyarrow_table().column_names == columns
        assert all(shown(project, name) == shop.expected_now(name) for name in shop.views)
        shop.views["sales_by_state"] = new
        assert project.setup().loaded["sales_by_state"] == "the definition changed"
        transact(shop)
        project.run(once=True)
        assert all(shown(project, name) == shop.expected_now(name) for name in shop.views)
