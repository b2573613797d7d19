"""Mistakes planted in the baselines, one at a time: the checker must catch each of them.

The unharmed code is held to its claims on the same seeds in `test_baselines.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rollview.algebra.bag import Bag
from rollview.algebra.join_graph import access_path
from rollview.algorithms.algorithm import Algorithm, Level, Scenario
from rollview.algorithms.baselines import agrawal_sweep, eca, eca_key, nested_sweep
from rollview.algorithms.baselines.agrawal_sweep import UpdateMessageQueue
from rollview.lab.simulator.campaign import Campaign, run_campaign
from rollview.lab.simulator.generate import Size
from rollview.lab.simulator.network import NETWORKS

Patch = pytest.MonkeyPatch


def nothing_compensated(patch: Patch) -> None:
    """Queries are sent as if none was under way."""
    patch.setattr(eca, "substitute", lambda *_: ())


def compensation_with_the_wrong_sign(patch: Patch) -> None:
    """What the open queries will see too much is added once more."""
    true_substitute = eca.substitute

    def mistaken(terms: tuple[eca.Term, ...], position: int, delta: Bag) -> tuple[eca.Term, ...]:
        return tuple(eca.Term(-term.sign, term.replaced) for term in true_substitute(terms, position, delta))

    patch.setattr(eca, "substitute", mistaken)


def compensating_queries_not_compensated(patch: Patch) -> None:
    """Only V⟨U⟩ is taken for a query that a later update can disturb."""
    true_substitute = eca.substitute

    def mistaken(terms: tuple[eca.Term, ...], position: int, delta: Bag) -> tuple[eca.Term, ...]:
        return true_substitute(tuple(t for t in terms if len(t.replaced) == 1), position, delta)

    patch.setattr(eca, "substitute", mistaken)


def installed_before_it_is_quiet(patch: Patch) -> None:
    """COLLECT is installed with every answer."""
    true_install = eca.install_when_quiet

    def mistaken(view: Any, state: eca.Maintenance) -> Any:
        held, state.unanswered = state.unanswered, []
        yield from true_install(view, state)
        state.unanswered = held

    patch.setattr(eca, "install_when_quiet", mistaken)


def terms_of_a_query_held_together(patch: Patch) -> None:
    """A query counts as unanswered until its last term is answered, though its terms see different states."""
    true_receive = eca.receive_update
    siblings: dict[eca.Term, tuple[eca.Term, ...]] = {}
    answered: set[eca.Term] = set()

    def receive(*arguments: Any) -> tuple[eca.Term, ...]:
        terms = true_receive(*arguments)
        siblings.update(dict.fromkeys(terms, terms))
        return terms

    def query(view: Any, state: eca.Maintenance, term: eca.Term) -> Any:
        answer = yield from eca.evaluate_at_source(view.blocks[0], term.replaced)
        eca.collect(state, term, answer)
        answered.add(term)
        if answered.issuperset(siblings[term]):
            for sibling in siblings[term]:
                state.unanswered.remove(sibling)
        yield from eca.install_when_quiet(view, state)

    patch.setattr(eca, "receive_update", receive)
    patch.setattr(eca, "query", query)


def parts_of_a_product_asked_apart(patch: Patch) -> None:
    """A query over a graph that is not connected is answered at two states."""
    patch.setattr(eca, "single_event", lambda block, *known: access_path(block, *known).rounds)


def query_of_a_deleted_row_kept(patch: Patch) -> None:
    """A deletion is applied to COLLECT alone."""
    patch.setattr(eca_key, "withdraw", lambda *_: None)


def deletion_after_the_answers(patch: Patch) -> None:
    """A deletion is applied to MV only, not to what has been collected since."""

    def mistaken(block: Any, rows: Any, position: int, deleted: Any) -> Any:
        return rows

    patch.setattr(eca_key, "key_delete", mistaken)


def nothing_corrected(patch: Patch) -> None:
    """Answers are taken as they come."""
    patch.setattr(UpdateMessageQueue, "interfering", lambda *_: None)


def newest_update_overlooked(patch: Patch) -> None:
    """The queue is looked at a moment too early."""
    true_interfering = UpdateMessageQueue.interfering

    def mistaken(self: UpdateMessageQueue, position: int) -> Any:
        newest = self.updates.pop()
        found = true_interfering(self, position)
        self.updates.append(newest)
        return found

    patch.setattr(UpdateMessageQueue, "interfering", mistaken)


def rest_of_the_transaction_seen(patch: Patch) -> None:
    """Changes of the same transaction are not corrected, so that each of two sees the other."""
    true_interfering = UpdateMessageQueue.interfering

    def mistaken(self: UpdateMessageQueue, position: int) -> Any:
        current = self.updates.popleft()
        found = true_interfering(self, position)
        self.updates.appendleft(current)
        return found

    patch.setattr(UpdateMessageQueue, "interfering", mistaken)


def folded_but_not_corrected(patch: Patch) -> None:
    """A folded update stays in the answer in which it was met."""

    def mistaken(queue: UpdateMessageQueue, position: int) -> Any:
        met = true_interfering(queue, position)
        for update in queue.updates:
            update.deltas.pop(position, None)
        return met

    true_interfering = UpdateMessageQueue.interfering
    patch.setattr(nested_sweep, "fold", mistaken)
    patch.setattr(UpdateMessageQueue, "interfering", lambda *_: None)


def only_the_newest_folded(patch: Patch) -> None:
    """The last update of a relation overtakes the others that wait."""

    def mistaken(queue: UpdateMessageQueue, position: int) -> Any:
        waiting = [update for update in queue.updates if position in update.deltas]
        return waiting[-1].deltas.pop(position) if waiting else None

    patch.setattr(nested_sweep, "fold", mistaken)


def folded_but_not_swept(patch: Patch) -> None:
    """A folded update is dropped from the queue and its own view change forgotten."""
    true_fold = nested_sweep.fold
    patch.setattr(nested_sweep, "fold", lambda *arguments: true_fold(*arguments) and None)


MISTAKES: list[tuple[Any, Callable[[Patch], None]]] = [
    (eca, nothing_compensated),
    (eca, compensation_with_the_wrong_sign),
    (eca, compensating_queries_not_compensated),
    (eca, installed_before_it_is_quiet),
    (eca, terms_of_a_query_held_together),
    (eca, parts_of_a_product_asked_apart),
    (eca_key, query_of_a_deleted_row_kept),
    (eca_key, deletion_after_the_answers),
    (eca_key, parts_of_a_product_asked_apart),
    (agrawal_sweep, nothing_corrected),
    (agrawal_sweep, newest_update_overlooked),
    (agrawal_sweep, rest_of_the_transaction_seen),
    (nested_sweep, nothing_corrected),
    (nested_sweep, folded_but_not_corrected),
    (nested_sweep, only_the_newest_folded),
    (nested_sweep, folded_but_not_swept),
]


@pytest.mark.parametrize(("module", "mistake"), MISTAKES, ids=lambda item: item.__name__.rpartition(".")[2])
def test_the_checker_catches(module: Any, mistake: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mistake(monkeypatch)
    algorithm = Algorithm("mistaken", module.processes, lambda _: iter(()), {}, lambda _: "", sequenced=False)
    sources = 1 if module in (eca, eca_key) else 0
    required = Level.COMPLETE if module is agrawal_sweep else Level.STRONG
    size = Size(3, 8, keyed=True, snapshots=False, sources=sources)
    for seed in range(0, 400, 20):
        campaign = Campaign(algorithm, NETWORKS["fifo"], Scenario.SOURCE_LOCAL, size, 20, seed, required)
        if run_campaign(campaign).level < required:
            return
    pytest.fail(f"{mistake.__name__} went unnoticed: {mistake.__doc__}")
