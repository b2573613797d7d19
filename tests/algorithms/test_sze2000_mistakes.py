"""Realistic mistakes in version-numbers, planted one at a time: the checker must catch each of them.

Some of them are the report taken literally: what `Deviations` says is not enough, is shown here not to be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from sze2000_worlds import judge

from rollview.algebra.dependencies import refers
from rollview.algebra.history import Transaction
from rollview.algebra.node import Block
from rollview.algorithms.algorithm import Level, Scenario
from rollview.algorithms.effects import Pause, RowsOf
from rollview.algorithms.sze2000 import (
    compensate,
    incremental,
    irrelevant,
    self_maintenance,
    update_types,
    version_numbers,
    versions,
    without_tuple,
)
from rollview.lab.memory.bag import MemoryBag
from rollview.lab.simulator import simulation
from rollview.lab.simulator.network import NETWORKS

Patch = pytest.MonkeyPatch
NETWORK = replace(NETWORKS["hostile"], crashes=0)
RUNS = 150


@pytest.fixture(autouse=True)
def _fresh_plans() -> Iterator[None]:
    """Plans are cached by block; one that a mistake made must not outlive it."""
    yield
    for cached in (
        update_types.join_attributes,
        irrelevant._depth,
        self_maintenance.view_access,
        self_maintenance.shown_as,
        without_tuple.by_key,
    ):
        cached.cache_clear()


def interfering_updates_kept(patch: Patch) -> None:
    """Lemmas 5 to 7 left out."""
    patch.setattr(versions.Captured, "queried", lambda self, version: self.forgotten)


def interfering_one_too_few(patch: Patch) -> None:
    """Lemma 1 with β_j − 1."""
    true_queried = versions.Captured.queried

    def mistaken(self: versions.Captured, version: int) -> int:
        return max(self.forgotten, true_queried(self, version) - 1)

    patch.setattr(versions.Captured, "queried", mistaken)


def missing_deletion_kept(patch: Patch) -> None:
    """Lemma 2 left out: what the view still shows is taken for true."""
    patch.setattr(self_maintenance, "drop", _unchanged)


def missing_modification_kept(patch: Patch) -> None:
    """Lemma 4 left out."""
    patch.setattr(self_maintenance, "modify", _unchanged)


def missing_insertion_forgotten(patch: Patch) -> None:
    """Lemma 3 left out."""
    true_missing = self_maintenance.missing_updates

    def mistaken(*arguments: Any) -> compensate.Missing:
        return replace(true_missing(*arguments), inserted=[])

    patch.setattr(self_maintenance, "missing_updates", mistaken)


def tuples_that_should_be_retrieved(patch: Patch) -> None:
    """Rows that compensation brought back are not looked up in the rest of the shared sub-query."""

    def mistaken(computation: Any, strand: Any, rows: MemoryBag, source: str, join_step: Any) -> Any:
        nothing = yield RowsOf(computation.block.needed[join_step.relation], ())
        return incremental._join(strand, rows, join_step, nothing)

    patch.setattr(incremental, "_ask_alone", mistaken)


def applied_as_they_finish(patch: Patch) -> None:
    """Theorem 2, condition 2 left out: results are applied in the order in which their queries end."""

    def mistaken(self: versions.ViewSite) -> Any:
        return self.finished.pop(min(self.finished)) if self.finished else None

    patch.setattr(versions.ViewSite, "next_finished", mistaken)


def sent_as_they_arrive(patch: Patch) -> None:
    """Theorem 2, condition 1 left out: a source's transactions are sent in the order of arrival."""

    def mistaken(self: versions.ViewSite, transaction: Transaction) -> Iterator[versions.Transit]:
        if transaction.version not in self._held[transaction.source]:
            self._held[transaction.source][transaction.version] = transaction
            self.arrived[transaction.source] = max(self.arrived[transaction.source], transaction.version)
            yield self._send(transaction)

    patch.setattr(versions.ViewSite, "take", mistaken)


def answers_not_awaited(patch: Patch) -> None:
    """Compensation does not wait for update messages that the answer saw."""
    patch.setattr(versions.ViewSite, "has_arrived", lambda self, arrival: True)


def lost_messages_not_recovered(patch: Patch) -> None:
    """Nobody looks after versions that never arrive."""

    def idle(site: versions.ViewSite) -> Any:
        yield Pause()

    patch.setattr(version_numbers, "look_after", idle)
    patch.setattr(versions.ViewSite, "heard_of", lambda self, source, version: [])


def duplicates_sent_again(patch: Patch) -> None:
    """A message that arrives twice is two transactions."""
    true_take = versions.ViewSite.take

    def mistaken(self: versions.ViewSite, transaction: Transaction) -> Iterator[versions.Transit]:
        if transaction.version == self.arrived[transaction.source]:
            yield self._send(transaction)
        yield from true_take(self, transaction)

    patch.setattr(versions.ViewSite, "take", mistaken)


def references_between_sources(patch: Patch) -> None:
    """The report's referential integrity, also where no one source enforces it."""

    def mistaken(block: Block, position: int) -> Iterator[int]:
        others = (other for other in range(len(block.relations)) if other != position)
        return (other for other in others if refers(block, other, position))

    patch.setattr(irrelevant, "_referring", mistaken)


def references_within_a_transaction(patch: Patch) -> None:
    """A row and the rows that refer to it come in one transaction; updates are sent in the view's order."""
    patch.setattr(versions, "in_order", lambda block, updates: sorted(updates, key=lambda each: each.kind))
    true_relevant = irrelevant.relevant

    def mistaken(block: Block, updates: Any, place: int) -> Any:
        own = [update for update in updates if update.position == updates[place].position]
        return true_relevant(block, own, own.index(updates[place]))

    patch.setattr(versions, "relevant", mistaken)


def replaced_keys_irrelevant(patch: Patch) -> None:
    """The insertion half of a modification is taken for a new row that nothing refers to."""
    true_relevant = irrelevant.relevant

    def mistaken(block: Block, updates: Any, place: int) -> Any:
        return () if true_relevant(block, updates, place) != updates[place].rows else updates[place].rows

    patch.setattr(versions, "relevant", mistaken)


def selection_is_no_join_attribute(patch: Patch) -> None:
    """Only join attributes make a modification a deletion and an insertion, as the report has it."""

    def mistaken(block: Block, position: int) -> frozenset[str]:
        names = {name for edge in block.edges for name in (edge.left_column, edge.right_column)}
        return frozenset(block.relations[position].columns) & names

    patch.setattr(update_types, "join_attributes", mistaken)
    patch.setattr(compensate, "join_attributes", mistaken)


def some_matches_for_all(patch: Patch) -> None:
    """The report's two conditions only: conditions between the view's part and the rest are not minded."""
    patch.setattr(self_maintenance, "_crossing", lambda block, relations, join_step: [])


def view_read_without_versions(patch: Patch) -> None:
    """The view is taken to show all that was sent: refreshed version numbers left out."""
    patch.setattr(
        versions.ViewSite, "refreshed", lambda self, block, position: self.captured(block, position).highest
    )


def key_of_any_relation(patch: Patch) -> None:
    """Deletion by the key of a relation that does not determine the updated one."""
    patch.setattr(without_tuple, "determines", lambda block, i, j: True)


def _unchanged(known: MemoryBag, relation: Any, rows: Any) -> Any:
    return known
    yield


MISTAKES = [
    interfering_updates_kept,
    interfering_one_too_few,
    missing_deletion_kept,
    missing_modification_kept,
    missing_insertion_forgotten,
    tuples_that_should_be_retrieved,
    applied_as_they_finish,
    sent_as_they_arrive,
    answers_not_awaited,
    lost_messages_not_recovered,
    duplicates_sent_again,
    references_between_sources,
    references_within_a_transaction,
    replaced_keys_irrelevant,
    selection_is_no_join_attribute,
    some_matches_for_all,
    view_read_without_versions,
    key_of_any_relation,
]


def test_the_unharmed_code_passes() -> None:
    for seed in range(RUNS):
        verdict = judge(seed, Scenario.SOURCE_LOCAL, NETWORK)
        assert (verdict.level, verdict.claims_hold) == (Level.COMPLETE, True)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_the_checker_catches(mistake: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mistake(monkeypatch)
    monkeypatch.setattr(simulation, "_FINAL_ROUNDS", 8)
    for seed in range(RUNS):
        verdict = judge(seed, Scenario.SOURCE_LOCAL, NETWORK)
        if verdict.level is not Level.COMPLETE or not verdict.claims_hold:
            return
    pytest.fail(f"{mistake.__name__} went unnoticed: {mistake.__doc__}")
