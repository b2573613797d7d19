"""A step that would take much longer by deltas is computed as a whole; what is lost by that is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from crashing import Died, Executioner
from pyspark.sql import SparkSession
from shop import DEEP_VIEWS, MORE_VIEWS, VIEWS, Shop, shown, transact

from rollview.errors import PointError
from rollview.events import Event, Refreshed
from rollview.maintain import intervals
from rollview.project.project import Project

pytestmark = pytest.mark.slow

CHOSEN = {
    **VIEWS,
    "states_of_size": MORE_VIEWS["states_of_size"],
    "kinds_in_big_states": MORE_VIEWS["kinds_in_big_states"],
    "above_the_sum": DEEP_VIEWS["above_the_sum"],
    "by_deltas": """CREATE MATERIALIZED VIEW by_deltas TBLPROPERTIES ('rollview.refresh' = 'incremental') AS
        SELECT product_id, max(amount) AS most FROM shop.sales GROUP BY product_id""",
}
FEW = {name: CHOSEN[name] for name in ("sales_by_state", "sold", "states_of_size")}
PLACES = ["after Steps.begin", "before LakeTable._commit", "after LakeTable._commit"]


@pytest.fixture
def shop(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Shop]:
    made = Shop(tmp_path / "shop", CHOSEN if "much" in request.node.name else FEW)
    transact(made, 15)
    made.begin()
    yield made
    made.close()


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole is preferred as soon as anything was measured."""
    monkeypatch.setattr(intervals, "LONG_SECONDS", 0.0)
    monkeypatch.setattr(intervals, "TIMES_AS_LONG", 0.0)
    monkeypatch.setattr(intervals, "ROWS_TO_JUDGE_BY", 1)


def _behind(shop: Shop, project: Project) -> tuple[int, int]:
    """Transactions that wait, behind a step that was measured; the csn before and after them."""
    transact(shop, 3)
    project.run(once=True)
    before = project.status().last_csn
    transact(shop, 6)
    project.capture()
    return before, project.status().last_csn


def test_oracle_much_is_computed_as_a_whole(shop: Shop, spark: SparkSession, eager: None) -> None:
    seen: list[Event] = []
    with Project.open(shop.folder, spark) as project:
        project.subscribe(seen.append)
        project.setup()
        before, after = _behind(shop, project)
        seen.clear()
        project.run(once=True)
        whole = {each.view for each in seen if isinstance(each, Refreshed) and each.kind == "recomputed"}
        assert {"sales_by_state", "sold"} <= whole
        assert any(name.startswith("above_the_sum$") for name in whole), "a stage, too"
        assert "by_deltas" not in whole
        status = {view.name: view for view in project.status().views}
        decision = status["sold"].last_recomputed
        assert decision is not None
        assert (decision.from_csn, decision.to_csn) == (before, after)
        assert "changes would take" in decision.reason
        assert "the whole view took" in decision.reason
        assert status["by_deltas"].last_recomputed is None
        for csn in range(status["sold"].oldest, after + 1):
            for name in CHOSEN:
                if before < csn < after and name != "by_deltas":
                    with pytest.raises(PointError, match="condensed or recomputed"):
                        project.read(name, csn)
                else:
                    assert shown(project, name, csn) == shop.expected(project, name, csn), (name, csn)
        # And on from there, by deltas again where there is one transaction after another.
        transact(shop, 3)
        project.run(once=True)
        for name in CHOSEN:
            assert shown(project, name) == shop.expected_now(name), name
        assert not any(each.different for each in project.verify())


def test_one_transaction_loses_no_state(shop: Shop, spark: SparkSession, eager: None) -> None:
    with Project.open(shop.folder, spark) as project:
        project.setup()
        transact(shop, 3)
        project.run(once=True)
        for _ in range(3):
            while not project.capture().transactions:
                shop.transact()
            project.run(once=True)
        assert any(view.last_recomputed for view in project.status().views)
        status = {view.name: view for view in project.status().views}
        for name in FEW:
            for csn in range(status[name].oldest, status[name].high_water + 1):
                assert shown(project, name, csn) == shop.expected(project, name, csn), (name, csn)


@pytest.mark.parametrize(
    "place", ["after Steps.begin", "before LakeTable._commit", "after LakeTable._commit"]
)
def test_a_death_in_the_step(
    shop: Shop, spark: SparkSession, eager: None, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    executioner = Executioner(monkeypatch)
    with Project.open(shop.folder, spark) as project:
        project.setup()
        before, after = _behind(shop, project)
        executioner.kill_at(place)
        with suppress(Died):
            project.propagate("sold")
        assert executioner.dead
        executioner.revive()
    with Project.open(shop.folder, spark) as project:
        project.run(once=True)
        for name in FEW:
            assert shown(project, name) == shop.expected_now(name), name
        sold = next(view for view in project.status().views if view.name == "sold")
        assert sold.last_recomputed is not None
        assert (sold.last_recomputed.from_csn, sold.last_recomputed.to_csn) == (before, after)
        assert shown(project, "sold", before) == shop.expected(project, "sold", before)
        with pytest.raises(PointError):
            project.read("sold", after - 1)
