"""The state that rolling propagation needs to continue (salem2000 §5: control tables), and how steps change
it.

Positions are how far each relation is compensated for; the control record, written in one transaction with
them, has how far its forward queries have come and which of them are not compensated for yet. What a step
makes of it depends on its bounds alone, so that a step which is done again ends where it did before.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from rollview.algebra.view import View
from rollview.algorithms.effects import ForwardQuery, Interval
from rollview.algorithms.salem2000.query_lists import (
    Progress,
    as_data,
    from_data,
    prune_query_lists,
    with_forward,
)
from rollview.algorithms.salem2000.rolling import replayed
from rollview.catalog import Catalog, PropagateStep
from rollview.views.properties import algorithm_of

Control = Mapping[int, Progress]
"""For each block of a view how far its propagation has come."""


def is_rolling(view: View) -> bool:
    """Whether the view is maintained by rolling propagation."""
    return algorithm_of(view).name == "rolling"


@dataclass(frozen=True)
class ControlRecords:
    """The control records of views, in the catalog."""

    catalog: Catalog

    def read(self, view: View) -> Control:
        """How far a view has come; after a load there is nothing but its positions."""
        if text := self.catalog.views.control(view.name):
            return {int(block): from_data(each) for block, each in json.loads(text).items()}
        found: dict[int, list[int]] = {}
        for query, position in self.catalog.views.positions(view.name).items():
            found.setdefault(query.block, []).append(position)
        return {block: Progress(tuple(each), tuple(each), ((),) * len(each)) for block, each in found.items()}

    def positions(self, view: View) -> dict[ForwardQuery, int]:
        """Where the next interval of each forward query begins."""
        if not is_rolling(view):
            return self.catalog.views.positions(view.name)
        return {
            ForwardQuery(view.name, block, relation): time
            for block, progress in self.read(view).items()
            for relation, time in enumerate(progress.forward)
        }

    def executed(self, view: View, limit: int) -> int:
        """When the queries of a step see their relations: as late as it may go, never earlier than before.

        Only once all queries have come to that time, all is compensated for.
        """
        queries = (q for each in self.read(view).values() for own in each.lists for q in own)
        return max([limit, *(query.executed for query in queries)])

    def begun(self, view: View, bounds: PropagateStep) -> Control:
        """The control record with which a step begins: some relations advance without a sub-query."""
        control = dict(self.read(view))
        for block, relation, upto in bounds.skipped:
            if relation is not None and control[block].forward[relation] < upto:
                control[block] = with_forward(control[block], relation, upto)
        return control

    def ended(self, view: View, bounds: PropagateStep) -> tuple[dict[ForwardQuery, int], str]:
        """The positions, and the control record, with which a step ends."""
        control = {
            block: prune_query_lists(replayed(progress, _of_block(bounds, block), bounds.executed))
            for block, progress in self.begun(view, bounds).items()
        }
        moves = {
            ForwardQuery(view.name, block, relation): time
            for block, progress in control.items()
            for relation, time in enumerate(progress.compensated)
        }
        return moves, json.dumps({block: as_data(progress) for block, progress in control.items()})


def _of_block(bounds: PropagateStep, block: int) -> dict[int, Interval]:
    return {
        each.relation: Interval(each.after, each.upto)
        for each in bounds.intervals
        if each.block == block and each.relation is not None
    }
