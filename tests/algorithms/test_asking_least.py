"""What the warehouse knows is not asked for, and what several forward queries ask for is asked once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from sze2000_worlds import first_below, first_below_in_long_steps

from rollview.algebra.history import Seen
from rollview.algebra.join_graph import JoinStep
from rollview.algebra.relation import Table
from rollview.algorithms import known_rows, shared_questions, sweep
from rollview.algorithms.algorithm import Level, Scenario
from rollview.algorithms.registry import ALGORITHMS
from rollview.lab.simulator.campaign import Campaign, run_campaign
from rollview.lab.simulator.generate import Size
from rollview.lab.simulator.network import NETWORKS
from rollview.lab.simulator.source import SimulatedSource
from rollview.lab.tables.measured_costs import (
    are_least,
    measure_cost,
    measure_keyed,
    measure_stream,
    shows_every_state,
)
from rollview.planning import parse_view

Patch = pytest.MonkeyPatch

ORDERS = Table("shop", "orders", ("id", "customer"), ("id",), types=("int", "int"))
CUSTOMERS = Table("crm", "customers", ("id", "name"), ("id",), types=("int", "string"))
RATES = Table("crm", "rates", ("id", "rate"), ("id",), types=("int", "int"))


def _log_is_taken_for_its_end(patch: Patch) -> None:
    """What a key had before its first change is taken for what it has after the last one."""
    true_answer = sweep.from_the_log

    def mistaken(block: Any, position: int, log: Any, first: int) -> Any:
        found = true_answer(block, position, log, first)
        return None if found is None else replace(found, saw=Seen(first + 100))

    patch.setattr(sweep, "from_the_log", mistaken)


def _log_has_no_rows(patch: Patch) -> None:
    """A key that changes is taken for one that was not there before."""
    true_answer = sweep.from_the_log

    def mistaken(block: Any, position: int, log: Any, first: int) -> Any:
        found = true_answer(block, position, log, first)
        return None if found is None else replace(found, rows=found.rows.plus(found.rows.negate()))

    patch.setattr(sweep, "from_the_log", mistaken)


def _every_deletion_was_there_first(patch: Patch) -> None:
    """All rows that go are taken for rows that were there before, also those that came in between."""
    patch.setattr(known_rows, "before_it", lambda name: name)


def _view_is_taken_for_now(patch: Patch) -> None:
    """What the view shows is taken for what there is at the beginning of the interval."""
    true_answer = sweep.from_the_view

    def mistaken(query: Any, join_step: Any, rows: Any) -> Any:
        found = yield from true_answer(query, join_step, rows)
        return None if found is None else replace(found, saw=Seen(query.interval.upto))

    patch.setattr(sweep, "from_the_view", mistaken)


def _conditions_do_not_matter(patch: Patch) -> None:
    """A relation of which conditions hide rows is taken for one that is shown whole."""
    patch.setattr(known_rows, "stands_alone", lambda *_: True)


def _unknown_children_are_none(patch: Patch) -> None:
    """Rows of which only the parent is known are joined with nothing."""
    true_join = sweep._join_known

    def mistaken(query: Any, rows: Any, sub_query: Any, known: Any) -> Any:
        joined, rest = yield from true_join(query, rows, sub_query, known)
        return joined, rest if joined is None else rest and rest.plus(rest.negate())

    patch.setattr(sweep, "_join_known", mistaken)


@pytest.mark.slow
def test_levels_hold_where_the_warehouse_knows_rows() -> None:
    for algorithm in ("sweep", "net-effect"):
        assert first_below(algorithm, 300) == ""
        assert first_below_in_long_steps(algorithm, 150) == ""


@pytest.mark.parametrize(
    "mistake",
    [
        _log_is_taken_for_its_end,
        _log_has_no_rows,
        _every_deletion_was_there_first,
        _view_is_taken_for_now,
        _conditions_do_not_matter,
        _unknown_children_are_none,
    ],
)
def test_mistakes_are_caught(monkeypatch: Patch, mistake: Callable[[Patch], None]) -> None:
    mistake(monkeypatch)
    assert first_below("sweep", 2000)


def _keys_of_the_first(patch: Patch) -> None:
    """Where two forward queries look for the same, only the first one's values are sent."""
    patch.setattr(shared_questions, "_either", lambda one, _other: one)


def _each_relation_once(patch: Patch) -> None:
    """A relation that is looked up twice is found only once."""
    true_answer = SimulatedSource.answer

    def mistaken(source: SimulatedSource, question: Any) -> Any:
        keys, met = [], set()
        shipped = [each for each in question.sub_query.join_steps if each.shipped]
        for step, own in zip(shipped, question.keys, strict=True):
            keys.append(own.plus(own.negate()) if own is not None and step.relation in met else own)
            met.add(step.relation)
        return true_answer(source, replace(question, keys=tuple(keys)))

    patch.setattr(SimulatedSource, "answer", mistaken)


def _reached() -> Level:
    """At sources of their own, relations are looked up alike from several sides; at few, twice at once."""
    found = Level.COMPLETE
    for sources in (0, 2):
        size = Size(relations=4, transactions=10, sources=sources)
        campaign = Campaign(ALGORITHMS["sweep"], NETWORKS["fifo"], Scenario.SOURCE_LOCAL, size, runs=250)
        found = min(found, run_campaign(campaign).level)
    return found


@pytest.mark.slow
def test_levels_hold_where_questions_are_shared() -> None:
    assert _reached() is Level.COMPLETE


@pytest.mark.slow
@pytest.mark.parametrize("mistake", [_keys_of_the_first, _each_relation_once])
def test_mistakes_in_sharing_are_caught(monkeypatch: Patch, mistake: Callable[[Patch], None]) -> None:
    mistake(monkeypatch)
    assert _reached() < Level.COMPLETE


@pytest.mark.slow
def test_the_sweep_asks_least() -> None:
    """Among the algorithms that show every state, in every cell, and while others commit."""
    complete = [name for name in ALGORITHMS if shows_every_state(name)]
    assert {"sweep", "equation-1", "version-numbers", "c-strobe", "agrawal-sweep"} <= set(complete)
    cells: list[Callable[[str], Any]] = [measure_stream]
    cells += [lambda name, n=n, k=k: measure_cost(name, n, k, 10) for n in (2, 4) for k in (0, 3)]
    cells += [lambda name, each=each: measure_keyed(name, each) for each in list(Scenario)[:2]]
    for cell in cells:
        found = [cost for name in complete if (cost := cell(name)) is not None]
        for measure in ("queries", "questions", "rounds", "rows_shipped"):
            assert "sweep" in are_least(found, measure), (measure, found)


def _whole(sql: str, position: int) -> Any:
    block = parse_view(sql, (ORDERS, CUSTOMERS, RATES), "v").block
    assert block is not None
    return known_rows.whole_row(block, position)


def test_a_row_is_known_where_all_that_is_read_of_it_is_shown() -> None:
    joined = "FROM shop.orders o JOIN crm.customers c ON o.customer = c.id"
    assert _whole(f"SELECT o.id, o.customer, c.name {joined}", 1) == {"c.id": "customer", "c.name": "name"}
    assert _whole(f"SELECT o.id, o.customer, upper(c.name) AS name {joined}", 1) is None
    assert _whole(f"SELECT o.id, c.name {joined}", 0) is None


def test_a_relation_stands_alone_where_no_condition_reads_others_with_it() -> None:
    block = parse_view(
        "SELECT o.id, r.id AS rid, r.rate FROM shop.orders o, crm.rates r", (ORDERS, RATES), "v"
    ).block
    other = parse_view(
        "SELECT o.id, r.id AS rid, r.rate FROM shop.orders o, crm.rates r WHERE r.rate < o.id",
        (ORDERS, RATES),
        "v",
    ).block
    assert block is not None and other is not None
    assert known_rows.stands_alone(block, 1) and not known_rows.stands_alone(other, 1)
    step = JoinStep(1, None, (), True, ())
    assert known_rows.may_be_known(block, step) and not known_rows.may_be_known(other, step)
