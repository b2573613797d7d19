"""The situations of beyer2000 §4 as worlds, small enough that all schedules can be tried.

Times are minutes, so that 2:59 is `clock(2, 59)`. The paper's Accounts is a ledger: one row for every
withdrawal and deposit. Every world has nodes whose clocks disagree; only variants with several clocks notice.
"""

from __future__ import annotations

from collections.abc import Sequence

from rollview.algebra.history import Change
from rollview.algebra.relation import Table
from rollview.algebra.view import View
from rollview.planning import parse_view
from rollview.simulator.ipda.world import IpdaWorld, Statement, UpdateTransaction

ACCOUNTS = Table("bank", "accounts", ("id", "amount"))
_BEHIND = -3
"""By how many minutes the second node's clock is late."""


def clock(hour: int, minute: int) -> int:
    """A time of day in minutes."""
    return 60 * hour + minute


def withdrawals() -> View:
    """What was withdrawn from each account (§4.3)."""
    sql = "SELECT id, sum(amount) AS total FROM bank.accounts WHERE amount < 0 GROUP BY id"
    return parse_view(sql, (ACCOUNTS,), "Withdrawals")


def deposits() -> View:
    """What was deposited into each account (§4.3)."""
    sql = "SELECT id, sum(amount) AS total FROM bank.accounts WHERE amount > 0 GROUP BY id"
    return parse_view(sql, (ACCOUNTS,), "Deposits")


def entry(account: str, amount: int) -> Statement:
    """A withdrawal from or a deposit into an account, which stays locked until the end."""
    return Statement((account,), (Change(ACCOUNTS.qualified, (account, amount), 1),))


def bank(
    name: str,
    views: tuple[View, ...],
    transactions: tuple[UpdateTransaction, ...],
    refreshes: Sequence[tuple[str, int]],
    times: Sequence[int] = (clock(2, 59), clock(3, 1)),
) -> IpdaWorld:
    """A bank in which account a1 starts with $100."""
    initial = {ACCOUNTS.qualified: (("a1", 100),)}
    return IpdaWorld(name, views, initial, transactions, tuple(refreshes), tuple(times), (0, _BEHIND))


def lost_update() -> IpdaWorld:
    """§4.1: one transaction, one record, and two refreshes that may both miss it."""
    x1 = UpdateTransaction("x1", (entry("a1", 100),), node=1)
    refreshes = [("Deposits", clock(3, 0)), ("Deposits", clock(4, 0))]
    times = (clock(2, 59), clock(3, 1), clock(4, 1))
    return bank("lost update", (deposits(),), (x1,), refreshes, times)


def transfer() -> IpdaWorld:
    """§4.3: money goes from a1 to a2, and both views are refreshed to 3:00."""
    x1 = UpdateTransaction("x1", (entry("a1", -100), entry("a2", 100)), node=1)
    refreshes = [("Withdrawals", clock(3, 0)), ("Deposits", clock(3, 0))]
    return bank("transfer", (withdrawals(), deposits()), (x1,), refreshes)


def chain() -> IpdaWorld:
    """§4.4: money goes from a1 via a2 to a3, in two transactions that wait for each other at a2."""
    x1 = UpdateTransaction("x1", (entry("a1", -100), entry("a2", 100)))
    x2 = UpdateTransaction("x2", (entry("a3", 100), entry("a2", -100)), node=1)
    return bank("chain", (deposits(),), (x1, x2), [("Deposits", clock(3, 0))])


def rollback() -> IpdaWorld:
    """§4.2, §4.5: a transaction with two records may abort at any moment, also while it holds the lock."""
    x1 = UpdateTransaction("x1", (entry("a1", 100), entry("a1", 50)), node=1, may_abort=True)
    return bank("rollback", (deposits(),), (x1,), [("Deposits", clock(3, 0))])


def every_example() -> tuple[IpdaWorld, ...]:
    """All of them."""
    return lost_update(), transfer(), chain(), rollback()
