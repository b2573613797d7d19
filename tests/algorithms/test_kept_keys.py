"""Changes under a key that the view keeps: the view itself answers, and only where it knows the answer."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from sze2000_worlds import draw_world, first_below, first_below_in_long_steps

from rollview.algebra.expression import Column, Literal, call
from rollview.algebra.relation import Table
from rollview.algorithms import kept_keys, sweep
from rollview.algorithms.algorithm import Scenario
from rollview.algorithms.effects import KnownState
from rollview.algorithms.kept_keys import kept_key
from rollview.algorithms.registry import ALGORITHMS
from rollview.lab.simulator.network import NETWORKS
from rollview.lab.simulator.simulation import simulate_run
from rollview.lab.simulator.warehouse import Costs, SimulatedWarehouse
from rollview.lab.tables.measured_costs import Stream
from rollview.observe.explain import explain
from rollview.planning import parse_view

Patch = pytest.MonkeyPatch
RUNS = 150

ORDERS = Table("shop", "orders", ("id", "customer", "amount"), ("id",), types=("int", "int", "int"))
CUSTOMERS = Table("shop", "customers", ("id", "name"), ("id",), types=("int", "string"))
JOINED = "FROM shop.orders o JOIN shop.customers c ON o.customer = c.id"


@pytest.mark.parametrize("algorithm", ["sweep", "net-effect"])
def test_levels_hold_where_the_view_answers(algorithm: str) -> None:
    assert first_below(algorithm, RUNS) == ""
    assert first_below_in_long_steps(algorithm, RUNS) == ""


def _published_beyond(patch: Patch) -> None:
    """A state is taken although a relation has gone further since."""

    def mistaken(warehouse: SimulatedWarehouse, asked: Any) -> KnownState:
        last = max(interval.upto for _, interval in asked.tables)
        return KnownState(warehouse._store.known(asked.view), last)

    patch.setattr(SimulatedWarehouse, "_known_state", mistaken)


def _new_keys_too(patch: Patch) -> None:
    """What comes in a transaction is answered, too, as if it had been there."""
    true_call = kept_keys.call

    def mistaken(function: str, *arguments: Any) -> Any:
        is_balance = function == "<=" and arguments[0] == Column("_balance")
        return Literal(True) if is_balance else true_call(function, *arguments)

    patch.setattr(kept_keys, "call", mistaken)


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
        sweep, "join_others", lambda query, rows: true_join(replace(query, settled=frozenset()), rows)
    )


def _every_deletion_counts(patch: Patch) -> None:
    """A row goes with each deletion of its keys, not only with the first."""
    true_gone = kept_keys._Lives._gone

    def mistaken(lives: Any, rows: Any, kept: Any) -> Any:
        is_over = call("<", Column(lives._until), Literal(kept_keys._END))
        gone = true_gone(lives, rows, kept).select(is_over)
        return rows.plus(gone).plus(rows.select(is_over).negate())

    patch.setattr(kept_keys._Lives, "_gone", mistaken)


def _what_came_stays(patch: Patch) -> None:
    """Only rows that were there before the step go, not those that came in it."""
    true_begun = kept_keys._Lives._begun
    patch.setattr(kept_keys._Lives, "_begun", lambda lives, answered, _found: true_begun(lives, answered, {}))


def _earlier_deletions_too(patch: Patch) -> None:
    """A row goes with a deletion of its key that came before it."""
    true_spans = kept_keys._Lives._deletions

    def mistaken(lives: Any, kept: Any) -> Any:
        spans = true_spans(lives, kept)
        late = [(name, Column(name)) for name in spans.columns]
        moment = lives._names.inner("moment")
        later = call("+", Column(moment), Literal(2 * (len(lives._places) + 1)))
        return spans.project([(name, later if name == moment else each) for name, each in late])

    patch.setattr(kept_keys._Lives, "_deletions", mistaken)


def _places_are_forgotten(patch: Patch) -> None:
    """Inside a transaction, a deletion meets nothing that relations before it did."""
    true_moments = kept_keys._Lives._moments
    patch.setattr(
        kept_keys._Lives,
        "_moments",
        lambda lives, rows, columns, _position, name: true_moments(lives, rows, columns, 0, name),
    )


def _first_version_stays(patch: Patch) -> None:
    """A row that changed twice is shown as it was after the first change."""
    true_versions = kept_keys._Lives._versions

    def mistaken(lives: Any, kept: Any) -> Any:
        end = (lives._names.inner("to"), Literal(kept_keys._END))
        versions = true_versions(lives, kept)
        return versions.project([(name, Column(name)) for name in versions.columns[:-1]] + [end])

    patch.setattr(kept_keys._Lives, "_versions", mistaken)


@pytest.mark.parametrize(
    ("algorithm", "mistake"),
    [
        ("sweep", _published_beyond),
        ("sweep", _new_keys_too),
        ("sweep", _deciding_columns_may_change),
        ("sweep", _old_values_stay),
        ("sweep", _every_deletion_counts),
        ("sweep", _what_came_stays),
        ("sweep", _earlier_deletions_too),
        ("sweep", _places_are_forgotten),
        ("sweep", _first_version_stays),
        ("net-effect", _new_keys_too),
        ("net-effect", _deciding_columns_may_change),
        ("net-effect", _old_values_stay),
        ("net-effect", _one_order_for_all),
        ("net-effect", _what_came_stays),
    ],
)
def test_mistakes_are_caught(monkeypatch: Patch, algorithm: str, mistake: Callable[[Patch], None]) -> None:
    mistake(monkeypatch)
    assert first_below_in_long_steps(algorithm, RUNS) or first_below(algorithm, 1500)


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
    """Which take updates one by one, each from the view as it is by then."""
    for scenario in list(Scenario)[:2]:
        theirs = _costs("version-numbers", scenario)
        for algorithm in ("sweep", "net-effect"):
            ours = _costs(algorithm, scenario)
            assert ours.questions < theirs.questions and ours.rounds < theirs.rounds
            assert ours.rows_shipped < theirs.rows_shipped and ours.executions < theirs.executions


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
