"""Realistic mistakes, planted one at a time: the checker must catch each of them.

If a mistake goes unnoticed, either the worlds are too tame or the checker is blind. The unharmed code is run
on the very same seeds, so that a catch means the mistake and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from rollview.algebra import sequencer
from rollview.algebra.align import FROM, UNTIL
from rollview.algebra.align import align as true_align
from rollview.algebra.align import window as true_window
from rollview.algebra.bag import keep
from rollview.algebra.expression import Column, Expression, Literal, call, conjunction
from rollview.algebra.history import CSN, Seen, Transaction, UnitOfWork
from rollview.algebra.join_graph import JoinStep
from rollview.algorithms import source_evaluate, sweep
from rollview.algorithms.algorithm import Level, Scenario
from rollview.algorithms.registry import ALGORITHMS
from rollview.lab.memory.bag import MemoryBag
from rollview.lab.simulator import simulation, store, warehouse
from rollview.lab.simulator.campaign import Campaign, run_campaign
from rollview.lab.simulator.generate import Size
from rollview.lab.simulator.network import NETWORKS
from rollview.operators.aggregate import Aggregate

Patch = pytest.MonkeyPatch
RUNS = 400


def compensation_off_by_one(patch: Patch) -> None:
    """Every row sees the other relations as they were before its transaction, on both sides."""
    true_bound = sweep._at_bound
    patch.setattr(sweep, "_at_bound", lambda after_it, conditions: true_bound(False, conditions))


def after_for_before(patch: Patch) -> None:
    """The telescoping sum, with both halves the wrong way round."""
    true_bound = sweep._at_bound
    patch.setattr(sweep, "_at_bound", lambda after_it, conditions: true_bound(True, conditions))


def interfering_change_still_valid_at_its_own_csn(patch: Patch) -> None:
    """An interfering change is taken back up to its own csn instead of the one before it."""

    def mistaken(after_it: bool, conditions: tuple[Expression, ...]) -> Expression:
        bound = Column(CSN) if after_it else call("-", Column(CSN), Literal(1))
        return conjunction((call("<=", Column(FROM), bound), call("<=", bound, Column(UNTIL)), *conditions))

    patch.setattr(sweep, "_at_bound", mistaken)


def interfering_forgotten(patch: Patch) -> None:
    """What was seen too early is not taken back."""

    def mistaken(answer: MemoryBag, log: MemoryBag, saw: Seen, first: int, last: int) -> MemoryBag:
        unseen = log.select(call("NOT", saw.condition(CSN)))
        return true_align(answer, unseen, Seen(min(saw.upto, first), saw.holes), first, last)

    patch.setattr(sweep, "align", mistaken)


def missing_forgotten(patch: Patch) -> None:
    """What was not seen though it is needed is not added (a snapshot is taken for a prefix)."""

    def mistaken(answer: MemoryBag, log: MemoryBag, saw: Seen, first: int, last: int) -> MemoryBag:
        return true_align(answer, log.select(saw.condition(CSN)), saw, first, last)

    patch.setattr(sweep, "align", mistaken)


def holes_ignored(patch: Patch) -> None:
    """An LSN is taken for what a query saw."""
    true_seen_by = warehouse.SimulatedWarehouse._seen_by
    patch.setattr(
        warehouse.SimulatedWarehouse,
        "_seen_by",
        lambda self, effect: _without_holes(true_seen_by(self, effect)),
    )


def window_too_narrow(patch: Patch) -> None:
    """The change log is read for the interval only, not up to what the answer saw."""
    patch.setattr(sweep, "window", lambda saw, first, last: (true_window(saw, first, last)[0], last))


def answer_not_awaited(patch: Patch) -> None:
    """The log is read before the transactions that the answer saw have arrived."""

    def mistaken(self: warehouse.SimulatedWarehouse, effect: Any) -> Any:
        history = self._store.history
        known = [
            Seen(min(answer.saw.upto, history.version_at(answer.source, history.last_csn)))
            for answer in effect.answers
        ]
        return tuple(
            history.in_csn(answer.source, saw) for answer, saw in zip(effect.answers, known, strict=True)
        )

    patch.setattr(warehouse.SimulatedWarehouse, "_seen_by", mistaken)


def corrected_parent_not_followed(patch: Patch) -> None:
    """Rows that a correction brought back are not looked up in the rest of the shared sub-query."""
    patch.setattr(sweep, "not_looked_for", lambda rows, join_step, found: rows.select(Literal(False)))


def keys_of_net_effect(patch: Patch) -> None:
    """Keys are shipped for the net effect, so an insertion and a deletion of one key cancel."""

    def mistaken(rows: MemoryBag, join_step: JoinStep) -> MemoryBag | None:
        if join_step.parent is None:
            return None
        names = [parent for parent, _ in join_step.on]
        return rows.project(keep(names)).distinct(names)

    patch.setattr(source_evaluate, "keys_of", mistaken)


def maximum_for_minimum(patch: Patch) -> None:
    """The high-water mark is taken from the relation that is furthest ahead."""
    patch.setattr(store.Store, "high_water_mark", lambda self: max(self.positions.values()))


def duplicate_accepted(patch: Patch) -> None:
    """A transaction that arrives again after it got its csn is taken for a new one."""
    true_receive = sequencer.Sequencer.receive

    def mistaken(self: sequencer.Sequencer, transaction: Transaction, now: float) -> list[UnitOfWork]:
        if transaction.version <= self.position(transaction.source):
            version = self.position(transaction.source) + 1
            transaction = replace(transaction, version=version, global_id="", participants=())
            self._held[transaction.source].pop(version, None)
        return true_receive(self, transaction, now)

    patch.setattr(sequencer.Sequencer, "receive", mistaken)


def gap_ignored(patch: Patch) -> None:
    """A transaction that arrives too early gets its csn at once; the missing one is given up."""
    true_receive = sequencer.Sequencer.receive

    def mistaken(self: sequencer.Sequencer, transaction: Transaction, now: float) -> list[UnitOfWork]:
        units: list[UnitOfWork] = []
        while self.position(transaction.source) + 1 < transaction.version and not transaction.global_id:
            skipped = Transaction(transaction.source, self.position(transaction.source) + 1, ())
            if skipped.version in self._held[transaction.source]:
                break
            units += true_receive(self, skipped, now)
        return units + true_receive(self, transaction, now)

    patch.setattr(sequencer.Sequencer, "receive", mistaken)


def global_part_applied_early(patch: Patch) -> None:
    """The parts of a global transaction become transactions of their own."""
    true_receive = sequencer.Sequencer.receive

    def mistaken(self: sequencer.Sequencer, transaction: Transaction, now: float) -> list[UnitOfWork]:
        return true_receive(self, replace(transaction, global_id="", participants=()), now)

    patch.setattr(sequencer.Sequencer, "receive", mistaken)


def position_before_delta(patch: Patch) -> None:
    """The position moves in one step and the delta follows in another, so a crash between loses it."""

    def mistaken(self: store.Store, moves: Any, delta: MemoryBag, control: Any, _: Any) -> None:
        with self._write():
            self.positions.update(moves)
        true_publish(self, moves, delta, control)

    true_publish = store.Store.publish
    patch.setattr(store.Store, "publish", mistaken)


def delta_before_position(patch: Patch) -> None:
    """The delta is written in one step and the position in another, so a crash between doubles it."""

    def mistaken(self: store.Store, moves: Any, delta: MemoryBag, control: Any, _: Any) -> None:
        stay = tuple((query, self.positions[query]) for query, _ in moves)
        true_publish(self, stay, delta, control)
        with self._write():
            self.positions.update(moves)

    true_publish = store.Store.publish
    patch.setattr(store.Store, "publish", mistaken)


def restart_without_asking(patch: Patch) -> None:
    """After a crash the warehouse forgets that held-back messages are gone, and sources never resend."""
    patch.setattr(warehouse.SimulatedWarehouse, "reconnect", lambda self: None)


def vanished_group_kept(patch: Patch) -> None:
    """A group of an aggregate whose last row is gone stays, with a count of zero."""
    patch.setattr(Aggregate, "existing", lambda self, net: net)


def _without_holes(seen: Any) -> Any:
    return tuple(Seen(saw.upto) for saw in seen) if isinstance(seen, tuple) else seen


MISTAKES = [
    compensation_off_by_one,
    after_for_before,
    interfering_change_still_valid_at_its_own_csn,
    interfering_forgotten,
    missing_forgotten,
    holes_ignored,
    window_too_narrow,
    answer_not_awaited,
    corrected_parent_not_followed,
    keys_of_net_effect,
    maximum_for_minimum,
    duplicate_accepted,
    gap_ignored,
    global_part_applied_early,
    position_before_delta,
    delta_before_position,
    restart_without_asking,
    vanished_group_kept,
]

WITHOUT_GLOBAL = {duplicate_accepted, gap_ignored}
"""With global transactions the sequencer itself would refuse these, before the checker has a chance."""

CAMPAIGN = Campaign(
    ALGORITHMS["sweep"], NETWORKS["hostile"], Scenario.GLOBAL, Size(relations=3, transactions=8), RUNS
)


@pytest.mark.parametrize("scenario", [Scenario.SOURCE_LOCAL, Scenario.GLOBAL])
def test_the_unharmed_code_passes(scenario: Scenario) -> None:
    assert run_campaign(replace(CAMPAIGN, scenario=scenario)).level is Level.COMPLETE


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_the_checker_catches(mistake: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mistake(monkeypatch)
    monkeypatch.setattr(simulation, "_FINAL_ROUNDS", 8)
    scenario = Scenario.SOURCE_LOCAL if mistake in WITHOUT_GLOBAL else Scenario.GLOBAL
    caught = 0
    for seed in range(0, RUNS, 20):
        tally = run_campaign(replace(CAMPAIGN, scenario=scenario, seed=seed, runs=20))
        caught += tally.runs - tally.levels[Level.COMPLETE]
        if caught:
            break
    assert caught, f"{mistake.__name__} went unnoticed: {mistake.__doc__}"
