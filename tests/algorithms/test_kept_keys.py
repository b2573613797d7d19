"""Changes under a key that the view keeps: the view itself answers, and only where it knows the answer."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from sze2000_worlds import draw_world, first_below

from rollview.algebra.levels import Scenario
from rollview.algebra.relation import Table
from rollview.algorithms import kept_keys, net_effect_sweep, sweep
from rollview.algorithms.kept_keys import kept_key
from rollview.algorithms.registry import ALGORITHMS
from rollview.planning import parse_view
from rollview.service.explain import explain
from rollview.simulator.costs import Costs
from rollview.simulator.measured_costs import Stream
from rollview.simulator.network import NETWORKS
from rollview.simulator.simulation import simulate_run
from rollview.simulator.warehouse import SimulatedWarehouse

Patch = pytest.MonkeyPatch
RUNS = 150

ORDERS = Table("shop", "orders", ("id", "customer", "amount"), ("id",), types=("int", "int", "int"))
CUSTOMERS = Table("shop", "customers", ("id", "name"), ("id",), types=("int", "string"))
JOINED = "FROM shop.orders o JOIN shop.customers c ON o.customer = c.id"


@pytest.mark.parametrize("algorithm", ["sweep", "net-effect"])
def test_levels_hold_where_the_view_answers(algorithm: str) -> None:
    assert first_below(algorithm, RUNS) == ""


def _others_may_change(patch: Patch) -> None:
    """A state is taken whatever else has changed since."""
    patch.setattr(SimulatedWarehouse, "_known_state", lambda self, effect: self._store.known(effect.view))


def _new_keys_too(patch: Patch) -> None:
    """A key that was not there before is answered, too."""
    patch.setattr(kept_keys, "_all_stay_joined", lambda *_: True)


def _deciding_columns_may_change(patch: Patch) -> None:
    """A row that is joined with other rows since is answered from what it was joined with before."""
    true_key = kept_keys.kept_key

    def undecided(block: Any, position: int) -> Any:
        kept = true_key(block, position)
        return None if kept is None else replace(kept, deciding=())

    patch.setattr(kept_keys, "kept_key", undecided)


def _old_values_stay(patch: Patch) -> None:
    """What the view shows of the row itself is left as it was."""
    true_key = kept_keys.kept_key

    def without_outputs(block: Any, position: int) -> Any:
        kept = true_key(block, position)
        return None if kept is None else replace(kept, outputs=())

    patch.setattr(kept_keys, "kept_key", without_outputs)


def _one_order_for_all(patch: Patch) -> None:
    """Relations that went first are seen as they were before."""
    true_join = sweep.join_others
    patch.setattr(
        net_effect_sweep,
        "join_others",
        lambda query, rows: true_join(replace(query, settled=frozenset()), rows),
    )


def _each_from_the_first_state(patch: Patch) -> None:
    """The second relation for which the view answers does not see what the first one did."""
    true_answer = kept_keys.answered_by_view
    patch.setattr(
        net_effect_sweep, "answered_by_view", lambda query, rows, _so_far: true_answer(query, rows, None)
    )


@pytest.mark.parametrize(
    ("algorithm", "mistake"),
    [
        ("sweep", _others_may_change),
        ("sweep", _new_keys_too),
        ("sweep", _deciding_columns_may_change),
        ("sweep", _old_values_stay),
        ("net-effect", _new_keys_too),
        ("net-effect", _deciding_columns_may_change),
        ("net-effect", _old_values_stay),
        ("net-effect", _one_order_for_all),
        ("net-effect", _each_from_the_first_state),
    ],
)
def test_mistakes_are_caught(monkeypatch: Patch, algorithm: str, mistake: Callable[[Patch], None]) -> None:
    mistake(monkeypatch)
    assert first_below(algorithm, 1500)


def _costs(algorithm: str, scenario: Scenario) -> Costs:
    found = Costs()
    for seed in range(60):
        world = draw_world(random.Random(seed), scenario, transactions=12)
        found.add(simulate_run(world, ALGORITHMS[algorithm], NETWORKS["fifo"], Stream()).costs)
    return found


@pytest.mark.parametrize("scenario", list(Scenario)[:2])
@pytest.mark.parametrize("algorithm", ["sweep", "net-effect"])
def test_less_is_asked(monkeypatch: Patch, algorithm: str, scenario: Scenario) -> None:
    with_the_view = _costs(algorithm, scenario)
    monkeypatch.setattr(SimulatedWarehouse, "_known_state", lambda *_: None)
    without = _costs(algorithm, scenario)
    assert with_the_view.questions < without.questions
    assert with_the_view.rows_shipped < without.rows_shipped


def test_less_is_asked_than_by_version_numbers() -> None:
    """Which ask the view for more, and take updates one by one."""
    one_row, several = list(Scenario)[:2]
    assert _costs("net-effect", one_row).questions <= _costs("version-numbers", one_row).questions
    for algorithm in ("sweep", "net-effect"):
        ours, theirs = _costs(algorithm, several), _costs("version-numbers", several)
        assert ours.questions < theirs.questions and ours.rows_shipped < theirs.rows_shipped


def _kept(sql: str, position: int, *tables: Table) -> Any:
    block = parse_view(sql, tables or (ORDERS, CUSTOMERS), "v").block
    assert block is not None
    return kept_key(block, position)


def test_a_key_may_be_shown_by_an_equal_column() -> None:
    kept = _kept(f"SELECT o.id, o.customer AS who, c.name {JOINED}", 1)
    assert kept.shown == ("who",)
    assert kept.deciding == ()
    assert [name for name, _ in kept.outputs] == ["name"]


def test_columns_that_are_joined_or_shown_with_others_decide() -> None:
    kept = _kept(f"SELECT o.id, o.amount, concat(c.name, o.amount) AS both {JOINED}", 0)
    assert kept.deciding == ("o.customer", "o.amount")


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT o.amount, c.name {JOINED}",
        f"SELECT o.id + 1 AS id, c.name {JOINED}",
        "SELECT o.id, o.amount FROM shop.orders o",
    ],
)
def test_a_view_without_the_key_or_without_a_join_is_not_asked(sql: str) -> None:
    assert _kept(sql, 0) is None


def test_explain_says_for_what_no_source_is_asked() -> None:
    view = parse_view(f"SELECT o.id, o.amount, c.name {JOINED}", (ORDERS, CUSTOMERS), "v")
    orders, customers = explain(view).paths
    assert (orders.keeps_key, orders.shown) == (True, ("o.amount",))
    assert not customers.keeps_key
    counted = parse_view(f"SELECT o.id, count(*) AS n {JOINED} GROUP BY o.id", (ORDERS, CUSTOMERS), "v")
    assert not any(path.keeps_key for path in explain(counted).paths)


def test_only_keys_that_a_server_enforces_count() -> None:
    dumped = replace(ORDERS, own_log=True)
    other_type = replace(CUSTOMERS, types=("bigint", "string"))
    sql = f"SELECT o.id, o.customer, c.name {JOINED}"
    assert _kept(sql, 0, dumped, CUSTOMERS) is None
    assert _kept(sql, 1, ORDERS, other_type) is None
