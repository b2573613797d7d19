"""The network between sources and warehouse, and the faults that a run may meet.

A channel holds messages that were sent and have not arrived. What may happen to them is the network's
kind; when it happens is the schedule's choice. Faults are bounded by a budget, so every run ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rollview.algebra.history import Transaction
from rollview.algorithms.effects import Answer, Question
from rollview.lab.memory.bag import MemoryBag


@dataclass(frozen=True, slots=True)
class Update:
    """Source to warehouse: a transaction was committed."""

    transaction: Transaction

    def __str__(self) -> str:
        return f"update {self.transaction.source}:{self.transaction.version}"


@dataclass(frozen=True, slots=True)
class Asked:
    """Warehouse to source: a sub-query."""

    number: int
    question: Question[MemoryBag]

    def __str__(self) -> str:
        aliases = [
            self.question.block.relations[r.relation].alias for r in self.question.sub_query.join_steps
        ]
        return f"question {self.number} ({', '.join(aliases)})"


@dataclass(frozen=True, slots=True)
class Answered:
    """Source to warehouse: the answer to a sub-query."""

    number: int
    answer: Answer[MemoryBag]

    def __str__(self) -> str:
        return f"answer {self.number}"


@dataclass(frozen=True, slots=True)
class Resend:
    """Warehouse to source: send these versions again, and say which version you are at."""

    first: int
    last: int | None

    def __str__(self) -> str:
        return f"send again from {self.first}"


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Source to warehouse: the version it is at."""

    source: str
    version: int

    def __str__(self) -> str:
        return f"heartbeat {self.source}:{self.version}"


Message = Update | Asked | Answered | Resend | Heartbeat


@dataclass(frozen=True)
class Network:
    """A kind of network: whether it misorders, and how often at most it does worse in one run."""

    name: str
    misorders: bool = False
    duplications: int = 0
    losses: int = 0
    crashes: int = 0
    restarts: int = 0


NETWORKS = {
    network.name: network
    for network in (
        Network("fifo"),
        Network("misordered", misorders=True),
        Network("lossy", duplications=3, losses=4),
        Network("hostile", misorders=True, duplications=3, losses=4, crashes=2, restarts=1),
    )
}


@dataclass(slots=True)
class Channel:
    """Messages under way between the warehouse and one source, in the order they were sent."""

    to_source: list[Message] = field(default_factory=list)
    to_warehouse: list[Message] = field(default_factory=list)
