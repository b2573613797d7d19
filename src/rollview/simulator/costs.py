"""What a run cost, in the papers' measures."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(slots=True)
class Costs:
    """Counts of one run, or of several together.

    A question is a sub-query sent to a source; questions sent at once are one round; an execution is one
    query over the view's relations, however many questions it takes.
    """

    questions: int = 0
    rounds: int = 0
    rows_shipped: int = 0
    rows_compensated: int = 0
    executions: int = 0

    def add(self, other: Costs) -> None:
        """Adds the costs of another run."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))
