"""The algorithm of the next step, where a view leaves the choice to measured costs.

`rollview.algorithm = auto` means all algorithms that reach the view's level. In rounds, each of them makes a
few steps of the same number of transactions, in turn, so that the load is the same for all. Then the one that
was chosen before stays, unless another one was clearly cheaper; that one makes no steps that are much longer
than those that were compared. The next round is many steps later. An algorithm takes over only where all
positions of a view are at one csn: there every algorithm begins with the same view and the same history.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from rollview.algebra.view import View
from rollview.algorithms.effects import Interval
from rollview.algorithms.registry import ALGORITHMS
from rollview.catalog import AlgorithmChoice, AlgorithmCost, Catalog, Lease, Measured
from rollview.errors import CaptureStalled, EvaluationError
from rollview.maintain.faults import error_fields
from rollview.maintain.intervals import IntervalSizing
from rollview.retryable import is_retryable
from rollview.storage.lake_tables import LakeTables
from rollview.views.properties import algorithm_of, objection_to
from rollview.views.views import Views

STEPS_OF_EACH = 3
"""Steps that an algorithm makes in a round: their median is not moved by one slow step."""
MOST_TRANSACTIONS = 16
"""In a step that is measured: the slowest algorithms need more than a second for each."""
CLEARLY_CHEAPER = 0.8
"""Of the cost of the present algorithm; less than that may be chance, and so may be steps that overlap."""
TIMES_AS_LONG = 2
"""As the steps that were compared: what holds for those need not hold for longer ones."""
FAR_DEARER = 4.0
"""Times the least cost; then one step of a round is enough."""
STEPS_BETWEEN_ROUNDS = 1_000
MOST_FAILURES = 2
MOST_ROWS_IN_MEMORY = 100_000
"""Algorithms that take messages raw hold the whole view."""


def seconds_per_transaction(cost: AlgorithmCost) -> tuple[float, ...]:
    """What algorithms are compared by, of each step."""
    return cost.compared


def next_measured(names: Sequence[str], costs: Mapping[str, AlgorithmCost]) -> str:
    """The algorithm that makes the next step of a round; empty if all were measured."""
    known = {name: costs.get(name, AlgorithmCost(name)) for name in names}
    per = {name: median(seconds_per_transaction(cost)) for name, cost in known.items() if cost.recent}
    dearest = FAR_DEARER * min(per.values(), default=0.0)
    left = [
        name
        for name, cost in known.items()
        if len(cost.recent) < STEPS_OF_EACH and (name not in per or per[name] <= dearest)
    ]
    return min(left, key=lambda name: len(known[name].recent), default="")


def decided(kept: str, names: Sequence[str], costs: Mapping[str, AlgorithmCost]) -> AlgorithmChoice:
    """The choice after a round: the algorithm that is kept, or one that is clearly cheaper."""
    each = {name: seconds_per_transaction(costs[name]) for name in names if costs[name].recent}
    per = {name: median(found) for name, found in each.items()}
    best, steps = min(per, key=lambda name: per[name]), sum(cost.steps for cost in costs.values())
    if per[best] < CLEARLY_CHEAPER * per[kept] and max(each[best]) < min(each[kept]):
        reason = f"{_milliseconds(per[best])} per transaction, {kept} {_milliseconds(per[kept])}"
        return AlgorithmChoice(best, 0, steps, reason)
    near = f", {best} {_milliseconds(per[best])}" if best != kept else ""
    reason = f"{_milliseconds(per[kept])} per transaction{near}; none is clearly cheaper"
    return AlgorithmChoice(kept, 0, steps, reason)


def _compared_size(cost: AlgorithmCost | None) -> int:
    """How many transactions the steps had by which an algorithm was chosen."""
    return max((each.transactions for each in cost.recent), default=0) if cost else 0


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:,.1f} ms"


@dataclass(frozen=True)
class ChosenStep:
    """A step of a view by an algorithm; `view` names it. Its costs count if it is a step of a round."""

    view: View
    interval: Interval
    is_measured: bool


@dataclass(frozen=True)
class AlgorithmChooser:
    """Chooses; what it knows is in the catalog."""

    catalog: Catalog
    tables: LakeTables
    views: Views
    sizing: IntervalSizing

    def next(self, lease: Lease, view: View, whole: Interval) -> ChosenStep | None:
        """The next step between the two ends of `whole`; None if the view's own positions say what it is."""
        if set(self.catalog.views.positions(view.name).values()) != {whole.after}:
            return None
        own = algorithm_of(view).name
        names, costs = self._names(view), self.catalog.works.by_algorithm(view.name)
        choice = self._in_round(lease, view, whole, costs)
        kept = choice.algorithm if choice.algorithm in names else own
        if choice.transactions:
            measured = next_measured(names, costs)
            if not measured:
                choice = decided(kept, names, costs)
                kept = choice.algorithm
                self.catalog.works.choose(lease, view.name, choice, begins_round=False)
            elif self._waiting(view, whole) >= choice.transactions:
                by = replace(view, algorithm=measured)
                return ChosenStep(by, self._first(view, whole, choice.transactions), is_measured=True)
        if kept == own or self._waiting(view, whole) > TIMES_AS_LONG * _compared_size(costs.get(kept)):
            return None
        by = replace(view, algorithm=kept)
        return ChosenStep(by, self._first(view, whole, self.sizing.most_together(by)), is_measured=False)

    def measured(self, lease: Lease, step: ChosenStep, before: AlgorithmCost | None, seconds: float) -> None:
        """Notes what a step of a round has cost."""
        name = algorithm_of(step.view).name
        known = before or AlgorithmCost(name)
        after = self.catalog.works.by_algorithm(step.view.name).get(name, known)
        self.catalog.works.note_measured(
            lease,
            step.view.name,
            name,
            Measured(
                max(1, after.transactions - known.transactions),
                after.lookups - known.lookups,
                after.rows_found - known.rows_found,
                seconds,
            ),
        )

    def failed(self, lease: Lease, step: ChosenStep, error: Exception) -> None:
        """Counts a failure that the algorithm may be the reason of."""
        is_any = is_retryable(error) and not isinstance(error, CaptureStalled)
        if not is_any and not isinstance(error, EvaluationError):
            name = algorithm_of(step.view).name
            self.catalog.works.note_failure(lease, step.view.name, name, error_fields(error)["message"])

    def _in_round(
        self, lease: Lease, view: View, whole: Interval, costs: Mapping[str, AlgorithmCost]
    ) -> AlgorithmChoice:
        """The choice as it is; a new round begins if it is time."""
        choice = self.catalog.works.choices().get(view.name)
        steps = sum(cost.steps for cost in costs.values())
        if choice is not None and (choice.transactions or steps < choice.steps + STEPS_BETWEEN_ROUNDS):
            return choice
        name = algorithm_of(view).name if choice is None else choice.algorithm
        size = max(1, min(MOST_TRANSACTIONS, self._waiting(view, whole)))
        begun = AlgorithmChoice(name, size, steps, "" if choice is None else choice.reason)
        self.catalog.works.choose(lease, view.name, begun, begins_round=True)
        return begun

    def _names(self, view: View) -> list[str]:
        """The algorithms that can make the next step, the view's own first."""
        own, costs = algorithm_of(view).name, self.catalog.works.by_algorithm(view.name)
        failed = {name for name, cost in costs.items() if cost.failures >= MOST_FAILURES}
        is_small = self._rows(view.name) <= MOST_ROWS_IN_MEMORY
        others = [
            each.name
            for each in ALGORITHMS.values()
            if each.name not in {own, *failed}
            and (each.sequenced or is_small)
            and not objection_to(each, view)
        ]
        return [own, *others]

    def _rows(self, name: str) -> int:
        tables = self.tables.of_view(name, self.views.record(name).generation)
        table = tables.state if tables.state.exists() else tables.rows
        return sum(file.rows for file in table.files()) if table.exists() else 0

    def _waiting(self, view: View, whole: Interval) -> int:
        tables = self.views.base_tables(view.name)
        return self.catalog.history.units_touching(tables, whole.after, whole.upto)

    def _first(self, view: View, whole: Interval, transactions: int) -> Interval:
        """The part of an interval that has so many transactions."""
        tables = self.views.base_tables(view.name)
        upto = self.catalog.history.next_csn_touching(tables, whole.after, transactions)
        return Interval(whole.after, min(upto, whole.upto))
