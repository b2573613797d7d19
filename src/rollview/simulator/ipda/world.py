"""A small world of its own for beyer2000: update transactions and apply processes in one database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rollview.algebra.bag import MemoryBag
from rollview.algebra.expression import Row
from rollview.algebra.history import Change
from rollview.algebra.valid_time import ValidTime
from rollview.algebra.view import View
from rollview.simulator.ipda.database import Fate, Refreshed


@dataclass(frozen=True)
class Statement:
    """Locks items and changes base rows."""

    items: tuple[str, ...]
    changes: tuple[Change, ...]


@dataclass(frozen=True)
class UpdateTransaction:
    """Statements that run at a node, one after the other, and then a commit; or an abort at any moment.

    It begins once the transactions in `after` have committed, and never if one of them aborts.
    """

    name: str
    statements: tuple[Statement, ...]
    node: int = 0
    may_abort: bool = False
    after: tuple[str, ...] = ()


@dataclass(frozen=True)
class IpdaWorld:
    """What is fixed before a run: views, first rows, transactions, refreshes, and what the clock will show.

    `refreshes` are views with refresh times; those of one view take place one after the other. `times` are
    the true times, and `offsets` says how far each node's clock is off; the first node's is right.
    """

    name: str
    views: tuple[View, ...]
    initial: Mapping[str, tuple[Row, ...]]
    transactions: tuple[UpdateTransaction, ...]
    refreshes: tuple[tuple[str, int], ...]
    times: tuple[int, ...]
    offsets: tuple[int, ...] = (0,)


@dataclass
class Waits:
    """How often a transaction had to wait for another one: for base rows, and for rows of a stored view."""

    base_rows: int = 0
    view_rows: int = 0


@dataclass(frozen=True)
class IpdaRun:
    """A finished run: what became of every transaction, and every state that a view was rolled to.

    `shown` has what readers saw of each view, one state after the other, with its valid time in the end.
    `stopped` says why the run did not come to rest; it is empty if it did.
    """

    world: IpdaWorld
    fates: Mapping[str, Fate]
    refreshed: tuple[Refreshed, ...]
    shown: Mapping[str, list[tuple[ValidTime, MemoryBag]]]
    stopped: str
    choices: tuple[int, ...]
    story: tuple[str, ...]
    waits: Waits = field(default_factory=Waits)
