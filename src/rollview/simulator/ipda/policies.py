"""The four policies of beyer2000 §1 in one database: what a transaction does besides, and how a view follows.

| policy | inside the transaction | later |
|---|---|---|
| snapshot | nothing | the view is computed from its base tables |
| immediate | rows of the stored view are locked and, at the commit, changed | nothing |
| ipda | the view delta is stored, with a commit record (Algorithm 2) | it is found and applied |
| dpda | nothing; the log tells what was changed | the view delta is made from the log, and applied |

What is tried out is storing and finding, and who waits for whom. Propagation is tried elsewhere.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from enum import StrEnum
from typing import Any

from rollview.algebra.bag import MemoryBag, column_getter
from rollview.algebra.net_effect import in_order
from rollview.algebra.view import View
from rollview.algorithms.beyer2000 import ipda
from rollview.algorithms.beyer2000.ipda_effects import Apply, AwaitClock, RefreshTime
from rollview.simulator.ipda.process import (
    CommitTransaction,
    LockRows,
    PresentTime,
    ReadLog,
    Recompute,
    Update,
)
from rollview.simulator.ipda.world import UpdateTransaction

Steps = Generator[Any, Any, None]
Deltas = tuple[tuple[str, MemoryBag], ...]


class Policy(StrEnum):
    """When a view delta is made, and when it is applied."""

    SNAPSHOT = "snapshot"
    IMMEDIATE = "immediate"
    IPDA = "ipda"
    DPDA = "dpda"


def transaction_steps(
    policy: Policy, variant: ipda.Variant, transaction: UpdateTransaction, views: Sequence[View]
) -> Steps:
    """A transaction with what the policy makes it do."""
    touched: list[str] = []
    by_name = {view.name: view for view in views}
    for statement in transaction.statements:
        deltas: Deltas = yield Update(statement)
        touched += [view for view, _ in deltas]
        if policy is Policy.IMMEDIATE and (items := _rows(by_name, deltas)):
            yield LockRows(items)
        if policy is Policy.IPDA:
            yield from ipda.store_view_delta(variant, deltas)
    if policy is Policy.IPDA:
        yield from ipda.record_commit(variant, touched)
    yield CommitTransaction()


def refresh_steps(policy: Policy, variant: ipda.Variant, view: View, upto: int) -> Steps:
    """A refresh of a view to a time; an immediate view is always there."""
    if policy is Policy.IPDA:
        yield from ipda.apply(variant, view, upto)
    if policy in (Policy.IPDA, Policy.IMMEDIATE):
        return
    after: int = yield RefreshTime(view.name)
    if upto <= after:
        return
    yield AwaitClock(upto)
    if policy is Policy.SNAPSHOT:
        # It can only be computed as of now.
        upto = yield PresentTime(view.name)
    records: MemoryBag = yield ReadLog(view.name, after, upto)
    if policy is Policy.SNAPSHOT:
        yield Recompute(view.name, records, upto)
        return
    yield Apply(view.name, in_order(view.root, view.root.net_effect(records)), records, upto)


def _rows(views: dict[str, View], deltas: Deltas) -> tuple[str, ...]:
    """The rows of stored views that deltas change: the groups, or the rows themselves."""
    found = []
    for name, rows in deltas:
        root = views[name].root
        key_of = column_getter(rows.columns, root.key or root.state_columns)
        found += [f"{name} {list(key_of(row))}" for row in rows.counts]
    return tuple(dict.fromkeys(found))
