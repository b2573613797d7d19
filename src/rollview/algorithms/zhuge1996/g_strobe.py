"""G-Strobe (Global-Strobe): T-Strobe that waits until global transactions are whole.

**Source.** zhuge1996 §5.4: T-Strobe with three conditions for updating MV instead of one. The paper leaves
the algorithm itself to its technical report.

**Guarantees.** Strong in all three scenarios.

**Assumes.** What T-Strobe assumes. Each source sends its own part of a global transaction, with the
transaction's identifier and the names of all participants.

**Symbols.** TT → `transactions`; the conditions → `may_update`, in their order.

**Deviations.** Taken by the letter, the second condition asks that whatever a transaction of TT depends on is
in TT too; what MV already shows was in an earlier TT, so the view would never move a second time. It is read
as "in TT or reflected in MV". Which transactions conflict is not reported, so a transaction is taken to
depend on all earlier ones of the sources it took part in. Then, as long as messages of a source keep their
order, the second condition always holds; it is tested all the same, for a transaction that came too early.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from rollview.algebra.history import Transaction
from rollview.algebra.view import View
from rollview.algorithms.effects import Process
from rollview.algorithms.zhuge1996.t_strobe import maintain
from rollview.algorithms.zhuge1996.update_list import ActionList, Deletion, Insertion, StateVector


def processes(view: View) -> Iterator[Process]:
    """The processes of T-Strobe, on a more cautious action list."""
    yield maintain(GlobalActionList(view, StateVector.of(view)))


@dataclass
class GlobalActionList(ActionList):
    """An action list that knows which transactions its actions belong to.

    `reflected` is, for each source, the last version that MV shows.
    """

    transactions: list[Transaction] = field(default_factory=list)
    reflected: dict[str, int] = field(default_factory=dict)

    def receive(self, transaction: Transaction, whole: bool = True) -> None:
        """Adds a transaction to TT."""
        super().receive(transaction, whole)
        self.transactions.append(transaction)

    def may_update(self) -> bool:
        """UQS = ∅, nothing that TT depends on is missing, and no part of a transaction in TT is missing."""
        return super().may_update() and self._has_dependencies() and self._has_all_parts()

    def take(self) -> list[Deletion | Insertion]:
        """AL; TT starts again as well."""
        for transaction in self.transactions:
            reached = self.reflected.get(transaction.source, 0)
            self.reflected[transaction.source] = max(reached, transaction.version)
        self.transactions = []
        return super().take()

    def _has_dependencies(self) -> bool:
        received = {(transaction.source, transaction.version) for transaction in self.transactions}
        return all(
            version - 1 <= self.reflected.get(source, 0) or (source, version - 1) in received
            for source, version in received
        )

    def _has_all_parts(self) -> bool:
        received = {(transaction.global_id, transaction.source) for transaction in self.transactions}
        return all(
            (transaction.global_id, participant) in received
            for transaction in self.transactions
            for participant in transaction.participants
        )
