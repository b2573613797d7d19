"""One fault stops one thing: the views that need it stop and say why, all others continue, none is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from shop import MORE_VIEWS, VIEWS, Shop, check_all, shown, transact

from pages.what_if import what_if
from rollview.algebra.view import View
from rollview.errors import EvaluationError, PointError, RollviewError, SourceChanged, SourceError
from rollview.events import Event, Halted, Resumed, Retry, Verified
from rollview.maintain.load import LoadDriver
from rollview.maintain.retry import Stop
from rollview.project.project import Project
from rollview.sources.source import Batch, Loss
from rollview.sources.sqlite import SQLiteSource

pytestmark = pytest.mark.slow

_VIEWS = {
    "sales_by_state": VIEWS["sales_by_state"],
    "sold": VIEWS["sold"],
    "grand_total": MORE_VIEWS["grand_total"],
    "families": MORE_VIEWS["families"],
    "states_of_size": MORE_VIEWS["states_of_size"],
}
_ON_CRM = {"sales_by_state", "sold", "states_of_size"}


@contextmanager
def _opened(folder: Path, spark: SparkSession) -> Iterator[tuple[Shop, Project, list[Event]]]:
    shop = Shop(folder, _VIEWS)
    transact(shop, 12)
    with Project.open(folder, spark) as project:
        received: list[Event] = []
        project.subscribe(received.append)
        shop.begin()
        project.setup()
        transact(shop)
        check_all(shop, project)
        yield shop, project, received
    shop.close()


def _states(project: Project) -> dict[str, str]:
    return {view.name: view.state for view in project.status().views}


def _insert_sale(shop: Shop, number: int) -> None:
    connection = shop.connections["shop"]
    connection.execute("INSERT INTO sales VALUES (?, 1, 1, 5)", (number,))
    shop.states["shop"].append(shop.copy("shop"))


@what_if(
    "all sources",
    "a source is unavailable or locked, or refuses the connection",
    "the views that need it stop; the others continue. `run` retries, after pauses of up to 30 s. "
    "Transactions that the source commits meanwhile get their csn when it is back",
)
def test_oracle_a_source_that_is_away_stops_only_its_views(tmp_path: Path, spark: SparkSession) -> None:
    with _opened(tmp_path / "shop", spark) as (shop, project, received):
        before = {name: shown(project, name) for name in _ON_CRM}
        file = tmp_path / "shop" / "crm.db"
        hidden = [file.with_name(f"{file.name}{end}") for end in ("", "-wal", "-shm")]
        project._warehouse.sites.sources["crm"].close()
        for each in hidden:
            if each.exists():
                each.rename(each.with_name(f"away-{each.name}"))
        for number in (1001, 1002):
            _insert_sale(shop, number)
            with pytest.raises(SourceError) as caught:
                project.run(once=True)
            assert "crm" in str(caught.value)
        for name in ("grand_total", "families"):
            assert shown(project, name) == shop.answer(
                name, {"crm": shop.states["crm"][-1], "shop": shop.copy("shop")}
            )
        assert {name: shown(project, name) for name in _ON_CRM} == before
        states = _states(project)
        assert {name for name, state in states.items() if state == "stopped"} == _ON_CRM
        status = {view.name: view for view in project.status().views}
        halted = status["sold"].halted
        assert halted is not None
        assert "crm" in halted.reason
        assert halted.since
        assert halted.csn == status["sold"].high_water + 1
        assert [site.site for site in project.status().sources if site.halted] == ["crm"]
        for each in hidden:
            away = each.with_name(f"away-{each.name}")
            if away.exists():
                away.rename(each)
        transact(shop)
        check_all(shop, project)
        assert set(_states(project).values()) == {"running"}
        assert {each.subject for each in received if isinstance(each, Resumed)} >= {
            "crm",
            "sales_by_state",
            "sold",
        }
        # Each is reported once, however often it fails.
        halts = [(each.scope, each.subject) for each in received if isinstance(each, Halted)]
        assert sorted(halts) == sorted(set(halts))


@what_if(
    "all sources",
    "changes of a table are lost, for any reason",
    "the views that use the table, or the columns in question, are rolled to the last correct csn and "
    "stop. `rollview setup` loads just these, or `rollview.on_loss` does",
)
@pytest.mark.parametrize("where", ["batch", pytest.param("transaction", marks=pytest.mark.campaign)])
def test_oracle_a_table_that_loses_changes_stops_only_its_views(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Until `setup`, its views stay right at the last csn before the loss; nothing else is loaded."""
    with _opened(tmp_path / "shop", spark) as (shop, project, received):
        loss = {"shop.product": Loss("table product is not what it was", "`rollview setup` loads its views")}
        real = SQLiteSource.capture

        def losing(source: SQLiteSource, site: str, after: str, limit: int) -> Batch:
            batch = real(source, site, after, limit)
            if source.name != "shop" or not batch.transactions:
                return batch
            first: Any = batch.transactions[0]
            rows = {name: rows for name, rows in first.rows.items() if name != "shop.product"}
            if where == "batch":
                return Batch(batch.transactions, batch.log_position, loss)
            lost = type(first)(**{**first.__dict__, "rows": rows, "lost": loss})
            return Batch((lost, *batch.transactions[1:]), batch.log_position)

        last = project.status().last_csn
        with monkeypatch.context() as patch:
            patch.setattr(SQLiteSource, "capture", losing)
            connection = shop.connections["shop"]
            connection.execute("INSERT OR REPLACE INTO product VALUES (1, 'lost', 2)")
            shop.states["shop"].append(shop.copy("shop"))
            with pytest.raises(SourceChanged, match="not what it was"):
                project.run(once=True)
        _insert_sale(shop, 1001)
        with pytest.raises(SourceChanged, match="not what it was"):
            project.run(once=True)
        stopped = {name for name, state in _states(project).items() if state == "stopped"}
        assert stopped == {"sold", "families"}
        for name in _VIEWS:
            view = next(each for each in project.status().views if each.name == name)
            assert shown(project, name) == shop.expected(project, name, view.materialized), name
            assert view.materialized == (last if name in stopped else project.status().last_csn), name
        for call in (
            lambda: project.propagate("sold"),
            lambda: project.verify("families"),
            lambda: project.refresh("families"),
        ):
            with pytest.raises(RollviewError, match="not what it was"):
                call()
        report = project.setup()
        assert set(report.loaded) == {"sold", "families"}
        transact(shop)
        project.run(once=True)
        for name in _VIEWS:
            assert shown(project, name) == shop.expected_now(name), name
        assert all(verdict.is_right for verdict in project.verify())
        assert ("table", "shop.product") in {(e.scope, e.subject) for e in received if isinstance(e, Halted)}


_RATIOS = {
    "ratios": "SELECT sale_id, 10 % amount AS ratio FROM shop.sales WHERE amount IS NOT NULL",
    "by_product": """SELECT p.kind, sum(10 % s.amount) AS total FROM shop.sales s
        JOIN shop.product p ON s.product_id = p.product_id GROUP BY p.kind""",
    "on_top": "SELECT count(*) AS n, sum(ratio) AS total FROM ratios",
    "grand_total": MORE_VIEWS["grand_total"],
}


@what_if(
    "all sources",
    "a row that a view's SQL cannot compute (division by zero, overflow, a cast that fails)",
    "that view stops at the csn before, and names the expression, the csn and the changed rows. "
    "Once the row is corrected at its source it continues automatically, from the first csn at which it "
    "can be computed again",
)
def test_oracle_a_row_that_cannot_be_computed_stops_only_its_views(
    tmp_path: Path, spark: SparkSession
) -> None:
    """They stop at the last good csn and say why; once the row is corrected, they continue automatically."""
    shop = Shop(tmp_path / "shop", _RATIOS)
    connection = shop.connections["shop"]
    connection.execute("INSERT INTO product VALUES (1, 'a', NULL)")
    connection.execute("INSERT INTO sales VALUES (1, 1, 1, 5)")
    with Project.open(shop.folder, spark) as project:
        shop.begin()
        project.setup()

        def commit(statement: str) -> int:
            connection.execute(statement)
            shop.states["shop"].append(shop.copy("shop"))
            return len(shop.states["shop"]) - 1

        last_good = [commit(f"INSERT INTO sales VALUES ({n}, 1, 1, {n})") for n in (2, 3, 4)][-1]
        bad = commit("INSERT INTO sales VALUES (77, 1, 1, 0)")
        commit("INSERT INTO sales VALUES (8, 1, 1, 8)")
        with pytest.raises(EvaluationError, match="cannot be computed at csn"):
            project.run(once=True)
        status = {view.name: view for view in project.status().views}
        assert {name for name, each in status.items() if each.state == "stopped"} == {
            "ratios",
            "by_product",
            "on_top",
        }
        for name, each in status.items():
            at = last_good if name != "grand_total" else len(shop.states["shop"]) - 1
            assert shown(project, name) == shop.answer(
                name, {"crm": shop.copy("crm"), "shop": shop.states["shop"][at]}
            )
            if each.halted is not None and name != "on_top":
                assert f"view {name}" in each.halted.reason
                assert each.halted.csn == each.high_water + 1
                assert "sale_id=77" in each.halted.reason
                assert "amount" in each.halted.reason and "BY_ZERO" in each.halted.reason
        bad_csn = status["ratios"].high_water + 1
        # What does not correct the row does not help.
        commit("INSERT INTO sales VALUES (9, 1, 1, 9)")
        with pytest.raises(EvaluationError):
            project.run(once=True)
        corrected = commit("UPDATE sales SET amount = 2 WHERE sale_id = 77")
        commit("INSERT INTO sales VALUES (10, 1, 1, 10)")
        project.run(once=True)
        assert set(_states(project).values()) == {"running"}
        for name in _RATIOS:
            assert shown(project, name) == shop.expected_now(name), name
        good_again = bad_csn + corrected - bad
        for name in ("ratios", "by_product"):
            assert shown(project, name, good_again) == shop.expected(project, name, good_again)
            for csn in range(bad_csn, good_again):
                with pytest.raises(PointError, match="could not be computed"):
                    project.read(name, csn)
            for csn in range(bad_csn):
                assert shown(project, name, csn) == shop.expected(project, name, csn), (name, csn)
        assert all(verdict.is_right for verdict in project.verify())
    shop.close()


def test_oracle_a_view_that_asks_for_it_is_loaded_after_a_loss_and_verified(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = "TBLPROPERTIES ('rollview.on_loss' = 'reload', 'rollview.verify' = 'every 1s')"
    view = f"CREATE MATERIALIZED VIEW families {properties} AS {MORE_VIEWS['families']}"
    shop = Shop(tmp_path / "shop", {"families": view, "grand_total": MORE_VIEWS["grand_total"]})
    transact(shop, 12)
    with Project.open(shop.folder, spark) as project:
        project.setup()
        real, stop = SQLiteSource.capture, Stop()
        losses = [{"shop.product": Loss("table product is not what it was")}]

        def losing(source: SQLiteSource, site: str, after: str, limit: int) -> Batch:
            batch = real(source, site, after, limit)
            is_lost = losses and site == "shop" and batch.transactions
            return Batch(batch.transactions, batch.log_position, losses.pop()) if is_lost else batch

        def until_verified(event: Event) -> None:
            if isinstance(event, Verified):
                assert (event.view, event.different) == ("families", 0)
                stop.now()

        with monkeypatch.context() as patch:
            patch.setattr(SQLiteSource, "capture", losing)
            shop.connections["shop"].execute("INSERT OR REPLACE INTO product VALUES (1, 'x', 2)")
            project.run(once=True)
        spans = {view.name: [span.reason for span in view.spans] for view in project.status().views}
        assert spans == {"families": ["table product is not what it was"], "grand_total": []}
        project.subscribe(until_verified)
        project.run(stop=stop)
        for name in shop.views:
            assert shown(project, name) == shop.expected_now(name), name
    shop.close()


def test_oracle_a_load_after_a_loss_that_failed_is_not_forgotten(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever runs next tries again, and loads what reads the view, too; until then `status` says why."""
    properties = "TBLPROPERTIES ('rollview.on_loss' = 'reload')"
    views = {
        "families": f"CREATE MATERIALIZED VIEW families {properties} AS {MORE_VIEWS['families']}",
        "kinds": "SELECT kind, count(*) AS n FROM families GROUP BY kind",
        "grand_total": MORE_VIEWS["grand_total"],
    }
    shop = Shop(tmp_path / "shop", views)
    transact(shop, 12)
    real = SQLiteSource.capture, LoadDriver.run
    losses = [{"shop.product": Loss("table product is not what it was")}]

    def losing(source: SQLiteSource, site: str, after: str, limit: int) -> Batch:
        batch = real[0](source, site, after, limit)
        is_lost = losses and site == "shop" and batch.transactions
        return Batch(batch.transactions, batch.log_position, losses.pop()) if is_lost else batch

    with Project.open(shop.folder, spark) as project:
        project.setup()
        before = {name: shown(project, name) for name in ("families", "kinds")}
    for failing, stopped in (("families", {"families", "kinds"}), ("kinds", {"kinds"})):

        def load(driver: LoadDriver, view: View, *rest: Any, failing: str = failing, **options: Any) -> Any:
            if view.name == failing:
                raise SourceError("the source is away for a while", subject="shop")
            return real[1](driver, view, *rest, **options)

        with monkeypatch.context() as patch, Project.open(shop.folder, spark) as project:
            received: list[Event] = []
            project.subscribe(received.append)
            patch.setattr(SQLiteSource, "capture", losing)
            patch.setattr(LoadDriver, "run", load)
            shop.connections["shop"].execute("INSERT OR REPLACE INTO product VALUES (1, 'x', 2)")
            with pytest.raises(RollviewError, match="is at csn"):
                project.run(once=True)
            assert [each.what for each in received if isinstance(each, Retry)] == [f"load {failing}"]
            status = {view.name: view for view in project.status().views}
            assert {name for name, view in status.items() if view.state == "stopped"} == stopped
            halted = status["kinds"].halted
            assert halted is not None and halted.kind == "Reloading" and "families" in halted.reason
            for name in stopped:
                assert shown(project, name) == before[name], name
    with Project.open(shop.folder, spark) as project:
        project.run(once=True)
        spans = {view.name: [span.reason for span in view.spans] for view in project.status().views}
        reasons = ["table product is not what it was"], ["families is reloaded"]
        assert spans == {"families": reasons[0], "kinds": reasons[1], "grand_total": []}
        for name in shop.views:
            assert shown(project, name) == shop.expected_now(name), name
        assert set(_states(project).values()) == {"running"}
    shop.close()


def test_oracle_a_view_that_is_late_keeps_no_other_one_waiting(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It catches up piece by piece, here one transaction each; in between the others show the present."""
    slow = f"CREATE MATERIALIZED VIEW slow TBLPROPERTIES ('rollview.interval' = '1') AS {VIEWS['sold']}"
    shop = Shop(tmp_path / "shop", {"slow": slow, "grand_total": MORE_VIEWS["grand_total"]})
    transact(shop, 12)
    with Project.open(shop.folder, spark) as project:
        shop.begin()
        project.setup()
        began = project.status().last_csn
        for number in range(1001, 1006):
            _insert_sale(shop, number)
        project.refresh("grand_total")
        rounds = project._drivers.run.round
        monkeypatch.setattr("rollview.run.run.CATCH_UP_SECONDS", 0.0)

        def stand() -> tuple[int, int, int]:
            status = project.status()
            views = {view.name: view.materialized for view in status.views}
            return status.last_csn, views["grand_total"], views["slow"]

        assert stand() == (began + 5, began + 5, began)
        for piece in (1, 2):
            _insert_sale(shop, 2000 + piece)
            rounds.run()
            last = began + 5 + piece
            assert stand() == (last, last, began + piece)
            for name in shop.views:
                csn = last if name == "grand_total" else began + piece
                assert shown(project, name) == shop.expected(project, name, csn), name
        for piece in (3, 4, 5, 6, 7):
            assert rounds.run().busy
            assert stand() == (last, last, began + piece)
        # From then on they go together again.
        _insert_sale(shop, 3000)
        _insert_sale(shop, 3001)
        rounds.run()
        assert stand() == (last + 2, last + 2, last + 2)
        # Whoever asks for all of it at once gets it.
        for number in range(4001, 4004):
            _insert_sale(shop, number)
        project.refresh("grand_total")
        check_all(shop, project)
    shop.close()
