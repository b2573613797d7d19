"""`rollview.algorithm = auto`: measured costs choose, and nothing that a view shows depends on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from crashing import Died, Executioner
from pyspark.sql import SparkSession
from shop import DEEP_VIEWS, MORE_VIEWS, VIEWS, Shop, check_readable_csns, shown, transact

from rollview.algorithms.effects import Process
from rollview.algorithms.registry import ALGORITHMS
from rollview.catalog import AlgorithmChoice, AlgorithmCost, Measured
from rollview.cli.main import main
from rollview.cli.terminal import plural
from rollview.errors import InputError, UnsupportedError
from rollview.events import Event, Retry
from rollview.maintain import algorithm_choice
from rollview.maintain.algorithm_choice import decided, next_measured
from rollview.project.project import Project
from rollview.views.properties import algorithm_of, objection_to

slow = pytest.mark.slow

KEYED = """SELECT s.sale_id, c.cust_id, p.product_id, c.state, p.kind, s.amount FROM shop.sales s
    JOIN crm.customer c ON s.cust_id = c.cust_id JOIN shop.product p ON s.product_id = p.product_id
    WHERE s.amount > 2"""
OF_COMPLETE = {
    "sweep",
    "equation-1",
    "equation-2",
    "compute-delta",
    "propagate",
    "version-numbers",
    "c-strobe",
    "c-t-strobe",
    "agrawal-sweep",
}
"""What shows every state of a join with all keys, stops nowhere, and leaves nothing behind."""


def _auto(name: str, sql: str, level: str = "complete") -> str:
    said = f"'rollview.algorithm' = 'auto', 'rollview.consistency' = '{level}'"
    return f"CREATE MATERIALIZED VIEW {name} TBLPROPERTIES ({said}) AS {sql}"


def _costs(**seconds: tuple[float, ...]) -> dict[str, AlgorithmCost]:
    """Algorithms whose steps of two transactions took so long."""
    found = {}
    for name, each in seconds.items():
        recent = tuple(Measured(2, 0, 0, 2 * one) for one in each)
        found[name.replace("_", "-")] = AlgorithmCost(name, steps=len(each), recent=recent)
    return found


# The decision, on its own.


def test_all_are_measured_in_turn() -> None:
    names = ["sweep", "propagate", "c-strobe"]
    assert next_measured(names, {}) == "sweep"
    assert next_measured(names, _costs(sweep=(1.0,))) == "propagate"
    assert next_measured(names, _costs(sweep=(1.0,), propagate=(2.0,))) == "c-strobe"
    once = _costs(sweep=(1.0,), propagate=(2.0,), c_strobe=(3.9,))
    assert next_measured(names, once) == "sweep"
    assert next_measured(names, _costs(sweep=(1.0,) * 3, propagate=(2.0,) * 3, c_strobe=(3.9,))) == "c-strobe"
    assert next_measured(names, _costs(sweep=(1.0,) * 3, propagate=(2.0,) * 3, c_strobe=(3.9,) * 3)) == ""


def test_what_is_far_dearer_is_measured_once() -> None:
    names = ["sweep", "c-strobe"]
    assert next_measured(names, _costs(sweep=(1.0,) * 3, c_strobe=(4.1,))) == ""
    assert next_measured(names, _costs(sweep=(4.1,), c_strobe=(1.0,) * 3)) == ""


def test_only_what_is_clearly_cheaper_takes_over() -> None:
    names = ["sweep", "propagate"]
    near = _costs(sweep=(1.0, 1.0, 1.0), propagate=(0.81, 0.81, 0.81))
    clear = _costs(sweep=(1.0, 9.0, 1.0), propagate=(0.79, 0.79, 0.99))
    chance = _costs(sweep=(9.0, 0.9, 9.0), propagate=(0.5, 0.5, 0.91))
    assert decided("sweep", names, near).algorithm == "sweep"
    assert decided("sweep", names, clear).algorithm == "propagate"
    assert decided("sweep", names, chance).algorithm == "sweep", "steps that overlap may differ by chance"
    # The other way round, it is the other one that stays.
    assert decided("propagate", names, near).algorithm == "propagate"
    back = _costs(sweep=(0.9,) * 3, propagate=(1.0,) * 3)
    assert decided("propagate", names, back).algorithm == "propagate"
    assert decided("sweep", names, near).transactions == 0 and decided("sweep", names, near).steps == 6


@slow
def test_the_choice_is_between_what_reaches_the_level(tmp_path: Path, spark: SparkSession) -> None:
    views = {
        "complete": _auto("complete", KEYED),
        "strong": _auto("strong", KEYED, "strong"),
        "total": _auto("total", VIEWS["sales_by_state"]),
    }
    shop = Shop(tmp_path / "shop", views)
    shop.begin()
    with Project.open(shop.folder, spark) as project:
        project.setup()
        views_now = project._warehouse.views.all()
        able = {
            name: {each.name for each in ALGORITHMS.values() if not objection_to(each, view)}
            for name, view in views_now.items()
        }
    assert able["complete"] == OF_COMPLETE
    assert able["strong"] == OF_COMPLETE | {"net-effect", "c-strobe-3"}
    assert able["total"] == {"sweep", "equation-1", "equation-2", "compute-delta", "propagate"}
    own = {name: algorithm_of(view).name for name, view in views_now.items()}
    assert own == {"complete": "sweep", "strong": "net-effect", "total": "sweep"}


# On a project.

CHOSEN = {
    "keyed": _auto("keyed", KEYED),
    "keyed_strong": _auto("keyed_strong", KEYED, "strong"),
    "sales_by_state": _auto("sales_by_state", VIEWS["sales_by_state"]),
    "families": _auto("families", MORE_VIEWS["families"]),
    "states_of_size": _auto("states_of_size", MORE_VIEWS["states_of_size"]),
    "days_of_size": _auto("days_of_size", DEEP_VIEWS["days_of_size"]),
}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds are short, and follow each other soon."""
    monkeypatch.setattr(algorithm_choice, "STEPS_OF_EACH", 1)
    monkeypatch.setattr(algorithm_choice, "MOST_TRANSACTIONS", 2)
    monkeypatch.setattr(algorithm_choice, "STEPS_BETWEEN_ROUNDS", 4)
    monkeypatch.setattr(algorithm_choice, "TIMES_AS_LONG", 100)


@pytest.fixture
def prices(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Seconds per transaction; what has none costs 1."""
    found: dict[str, float] = {}

    def price(cost: AlgorithmCost) -> tuple[float, ...]:
        return (found.get(cost.algorithm, 1.0),)

    monkeypatch.setattr(algorithm_choice, "seconds_per_transaction", price)
    return found


def _choices(project: Project) -> Mapping[str, AlgorithmChoice]:
    return project._warehouse.catalog.works.choices()


def _steps(project: Project, view: str) -> dict[str, int]:
    costs = project._warehouse.catalog.works.by_algorithm(view)
    return {name: cost.steps for name, cost in costs.items()}


def _work(shop: Shop, project: Project, rounds: int, each: int = 4) -> None:
    for _ in range(rounds):
        transact(shop, each)
        project.run(once=True)


@slow
@pytest.mark.usefixtures("quick")
def test_oracle_every_state_under_every_algorithm(tmp_path: Path, spark: SparkSession) -> None:
    """Joins of two and three tables, an aggregate, a self-join, and a stage with an operator above."""
    shop = Shop(tmp_path / "shop", CHOSEN)
    transact(shop, 12)
    shop.begin()
    with Project.open(shop.folder, spark) as project:
        project.setup()
        _work(shop, project, 8)
        assert set(_steps(project, "keyed")) == OF_COMPLETE
        assert set(_steps(project, "keyed_strong")) >= {"net-effect", "sweep", "c-strobe-3"}
        assert {name for name in _choices(project) if "$" in name}, "a stage chooses, too"
        costs = project._warehouse.catalog.works.by_algorithm("keyed").values()
        assert sum(cost.transactions for cost in costs) <= project.status().last_csn
        assert not any(cost.failures for cost in costs), costs
        check_readable_csns(shop, project)
        condensed = {name: project._warehouse.catalog.views.condensed(name) for name in shop.views}
        assert not any(condensed[name] for name in condensed if name != "keyed_strong")


@slow
@pytest.mark.usefixtures("quick")
def test_the_cheapest_takes_over_and_loses_its_place(
    tmp_path: Path, spark: SparkSession, prices: dict[str, float]
) -> None:
    shop = Shop(tmp_path / "shop", {"keyed": CHOSEN["keyed"]})
    transact(shop, 12)
    shop.begin()
    with Project.open(shop.folder, spark) as project:
        project.setup()
        prices |= {"c-strobe": 0.5}
        _work(shop, project, 3, each=12)
        assert _choices(project)["keyed"].algorithm == "c-strobe"
        assert _choices(project)["keyed"].reason.startswith("500.0 ms per transaction")
        before = _steps(project, "keyed")
        while _choices(project)["keyed"].transactions:
            _work(shop, project, 1)
        prices |= {"c-strobe": 1.0, "compute-delta": 0.7}
        _work(shop, project, 4, each=12)
        assert _choices(project)["keyed"].algorithm == "compute-delta"
        assert _steps(project, "keyed")["c-strobe"] > before["c-strobe"]
        readable, refused = check_readable_csns(shop, project)
        assert readable > 80 and not refused
        _check_words(shop, project)
    # Another process knows it.
    with Project.open(shop.folder, spark) as project:
        before = _steps(project, "keyed")
        shop.transact()
        project.run(once=True)
        assert _steps(project, "keyed")["sweep"] <= before["sweep"] + 1
        assert shown(project, "keyed") == shop.expected_now("keyed")


@slow
@pytest.mark.usefixtures("quick")
def test_the_cheapest_makes_no_steps_that_were_not_compared(
    tmp_path: Path, spark: SparkSession, prices: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(algorithm_choice, "TIMES_AS_LONG", 2)
    monkeypatch.setattr(algorithm_choice, "STEPS_BETWEEN_ROUNDS", 1_000)
    shop = Shop(tmp_path / "shop", {"keyed": CHOSEN["keyed"]})
    transact(shop, 12)
    shop.begin()
    with Project.open(shop.folder, spark) as project:
        project.setup()
        prices |= {"c-strobe": 0.5}
        _work(shop, project, 2, each=20)
        assert _choices(project)["keyed"].algorithm == "c-strobe"
        before = _steps(project, "keyed")
        _work(shop, project, 1, each=20)
        after = _steps(project, "keyed")
        assert (after["c-strobe"], after["sweep"]) == (before["c-strobe"], before["sweep"] + 1)
        _work(shop, project, 3, each=1)
        assert _steps(project, "keyed")["c-strobe"] > before["c-strobe"]
        check_readable_csns(shop, project)


def _check_words(shop: Shop, project: Project) -> None:
    """`explain` and `status` name the algorithm in use and what each has cost."""
    found, (view,) = project.explain("keyed"), project.status().views
    assert found.algorithm == view.algorithm == "compute-delta"
    assert found.why.startswith("rollview.algorithm = auto: 700.0 ms per transaction")
    others = dict(found.others)
    assert (others["sweep"], others["net-effect"]) == ("usable", "it reaches strong only")
    assert others["rolling"] == "no other algorithm can continue where it stops"
    assert found.measured == view.measured
    (part,) = found.measured
    assert {cost.algorithm for cost in part.costs} == OF_COMPLETE
    assert sum(cost.lookups for cost in part.costs) == found.work.lookups > 0
    folder = str(shop.folder)
    for command in ("explain", "status"):
        text = (
            CliRunner()
            .invoke(main, [command, *["keyed"][: command == "explain"], "--project", folder])
            .output
        )
        for cost in part.costs:
            now = " (in use)" if cost.algorithm == "compute-delta" else ""
            assert f"  {cost.algorithm}{now}: {plural(cost.steps, 'step')}, " in text, text
    assert "failed" not in text and " ms beside the others" in text
    assert "compute-delta" in found._repr_html_()


PLACES = (
    "after Works.choose",
    "after Works.note_measured",
    "after Steps.begin",
    "before LakeTable._commit",
    "after LakeTable._commit",
    "after Steps.finish",
)


@slow
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("algorithm", ["compute-delta", "c-strobe", "net-effect"])
def test_a_death_in_a_chosen_step(
    tmp_path: Path,
    spark: SparkSession,
    prices: dict[str, float],
    monkeypatch: pytest.MonkeyPatch,
    algorithm: str,
) -> None:
    """Wherever the process dies, the next one continues, and no state is lost or wrong."""
    monkeypatch.setattr(algorithm_choice, "STEPS_BETWEEN_ROUNDS", 1)
    level = "strong" if algorithm == "net-effect" else "complete"
    shop = Shop(tmp_path / "shop", {"keyed": _auto("keyed", KEYED, level)})
    transact(shop, 6)
    shop.begin()
    executioner = Executioner(monkeypatch)
    prices |= {algorithm: 0.5}
    with Project.open(shop.folder, spark) as project:
        project.setup()
    died = 0
    for place in PLACES:
        transact(shop, 5)
        with Project.open(shop.folder, spark) as project:
            project.capture()
            executioner.kill_at(place)
            with suppress(Died):
                project.propagate("keyed")
            died += executioner.dead
            executioner.revive()
        with Project.open(shop.folder, spark) as project:
            project.run(once=True)
            assert shown(project, "keyed") == shop.expected_now("keyed"), place
    assert died == len(PLACES)
    with Project.open(shop.folder, spark) as project:
        assert _choices(project)["keyed"].algorithm == algorithm
        _, refused = check_readable_csns(shop, project)
        assert level == "strong" or not refused


@slow
@pytest.mark.usefixtures("quick")
def test_an_algorithm_that_fails_stops_no_view(
    tmp_path: Path, spark: SparkSession, prices: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is reported, its step is made by the sweep, and it is not tried a third time."""

    def broken(_: object) -> Iterator[Process]:
        raise RuntimeError("planted")

    shop = Shop(tmp_path / "shop", {"keyed": CHOSEN["keyed"]})
    transact(shop, 6)
    shop.begin()
    seen: list[Event] = []
    prices |= {"propagate": 0.1, "c-strobe": 0.1}
    for name in ("propagate", "c-strobe"):
        monkeypatch.setitem(ALGORITHMS, name, replace(ALGORITHMS[name], processes=broken))
    with Project.open(shop.folder, spark) as project:
        project.subscribe(seen.append)
        project.setup()
        works = project._warehouse.catalog.works
        for _ in range(12):
            _work(shop, project, 1, each=6)
            costs = works.by_algorithm("keyed")
            if all(name in costs and costs[name].failures == 2 for name in ("propagate", "c-strobe")):
                break
        _work(shop, project, 2, each=6)
        costs = works.by_algorithm("keyed")
        for name in ("propagate", "c-strobe"):
            assert (costs[name].failures, costs[name].failure) == (2, "planted")
            retried = [each for each in seen if isinstance(each, Retry) and each.what == f"keyed by {name}"]
            assert len(retried) == 2
        assert _choices(project)["keyed"].algorithm not in ("propagate", "c-strobe")
        assert not project._warehouse.catalog.steps.unfinished()
        _, refused = check_readable_csns(shop, project)
        assert not refused


@slow
def test_the_word_may_come_and_go(tmp_path: Path, spark: SparkSession) -> None:
    """The positions are those of the default, so nothing is reloaded; a policy that has no choice refuses."""
    plain = f"CREATE MATERIALIZED VIEW keyed AS {KEYED}"
    shop = Shop(tmp_path / "shop", {"keyed": plain})
    transact(shop, 6)
    shop.begin()
    with Project.open(shop.folder, spark) as project:
        project.setup()
        for text in (CHOSEN["keyed"], plain, CHOSEN["keyed"]):
            shop.views["keyed"] = text
            shop.write_project()
            assert not project.setup().loaded
            _work(shop, project, 1)
            assert shown(project, "keyed") == shop.expected_now("keyed")
        shop.views["keyed"] = CHOSEN["keyed"].replace("'auto'", "'auto', 'rollview.policy' = 'ipda'")
        shop.write_project()
        with pytest.raises((InputError, UnsupportedError), match="has no place beside the policy"):
            project.setup()
