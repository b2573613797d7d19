"""C-TStrobe: C-Strobe with all updates of a source's transaction taken as one.

**Source.** zhuge1996 §6, last paragraph, which names it and says that it is like C-Strobe; derived here.

**Guarantees.** Complete in the single-update and source-local scenarios; weak with global transactions, whose
parts it takes for transactions of their own.

**Assumes.** What T-Strobe assumes.

**Symbols.** UL(T) → a `Unit` of the holding queue; the rest as in C-Strobe.

**Deviations.** Derivation: T_i is the unit that MV must show. As in T-Strobe, UL(T_i) loses pairs, its
deletions are applied by key, and IL(T_i) makes one query, with an expression for each relation. Each
expression is compensated as C-Strobe does it, for all updates of the transactions received after T_i. Nothing
in that argument needs U_i to be a single tuple, nor U_p to be alone in its transaction: an order of all
updates in which the transactions follow each other is as good as the order of arrival. Updates of T_i itself
do not interfere: every source that is asked shows T_i already, and the needed state does as well. What two
expressions find twice is dropped. Deletions and Delta reach MV in one step.
"""

from __future__ import annotations

from collections.abc import Iterator

from rollview.algebra.history import Transaction
from rollview.algebra.view import View
from rollview.algorithms.effects import Process
from rollview.algorithms.zhuge1996.c_strobe import HoldingQueue, receive
from rollview.algorithms.zhuge1996.update_list import StateVector, without_pairs


def processes(view: View) -> Iterator[Process]:
    """The processes of C-Strobe, with a transaction as the unit."""
    yield receive(HoldingQueue(view, 1, StateVector.of(view)), all_at_once)


def all_at_once(queue: HoldingQueue, transaction: Transaction) -> None:
    """UL(T) without pairs is one unit."""
    queue.hold(without_pairs(queue.view.blocks[0], transaction.changes), transaction, whole=True)
