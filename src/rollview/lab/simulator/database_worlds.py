"""Worlds of beyer2000: update transactions and refreshes inside one database; its examples, and random ones.

The situations of §4 are small enough that all schedules can be tried. Times are minutes, so that 2:59 is
`clock(2, 59)`. The paper's Accounts is a ledger: one row for every withdrawal and deposit. Every world has
nodes whose clocks disagree; only variants with several clocks notice. Random worlds are a bank and a shop
with customers, four views, and refreshes at shared times.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rollview.algebra.expression import Row
from rollview.algebra.history import Change
from rollview.algebra.relation import Table
from rollview.algebra.valid_time import ValidTime
from rollview.algebra.view import View
from rollview.lab.memory.bag import MemoryBag
from rollview.lab.simulator.database import Fate, Refreshed
from rollview.planning import parse_view


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
    """The input of a run: views, first rows, transactions, refreshes, and the times of the clock.

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


ACCOUNTS = Table("bank", "accounts", ("id", "amount"))
_BEHIND = -3
"""By how many minutes the second node's clock is late."""


def clock(hour: int, minute: int) -> int:
    """A time of day in minutes."""
    return 60 * hour + minute


def withdrawals() -> View:
    """The amounts withdrawn from each account (§4.3)."""
    sql = "SELECT id, sum(amount) AS total FROM bank.accounts WHERE amount < 0 GROUP BY id"
    return parse_view(sql, (ACCOUNTS,), "Withdrawals")


def deposits() -> View:
    """The amounts deposited into each account (§4.3)."""
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


CUSTOMER = Table("shop", "customer", ("custId", "name", "state"), ("custId",))
SALES = Table("shop", "sales", ("saleId", "custId", "amount"), ("saleId",))
VIEWS = (
    withdrawals(),
    deposits(),
    parse_view(
        "SELECT c.custId, c.name FROM shop.customer c WHERE c.state = 'WI'", (CUSTOMER, SALES), "WICust"
    ),
    parse_view(
        "SELECT c.state, count(*) AS n, sum(s.amount) AS total FROM shop.sales s "
        "JOIN shop.customer c ON s.custId = c.custId GROUP BY c.state",
        (CUSTOMER, SALES),
        "StateCount",
    ),
)


def random_world(generator: random.Random, transactions: int = 7) -> IpdaWorld:
    """Transfers, customers that change their names and states, and sales; refreshes at shared times.

    A writer that changes a customer comes after those that changed it before, as Petunias were sold twice
    (§5).
    """
    customers = {number: (number, "Paul", "WI") for number in (51, 52, 53)}
    last: dict[int, str] = {}
    sales = 0
    initial = {
        ACCOUNTS.qualified: (("a1", 100),),
        CUSTOMER.qualified: tuple(customers.values()),
        SALES.qualified: (),
    }
    scripts: list[UpdateTransaction] = []
    for number in range(1, transactions + 1):
        name = f"x{number}"
        statements: list[Statement] = []
        after: set[str] = set()
        for _ in range(generator.randint(1, 3)):
            if generator.random() < 0.4:
                statements.append(entry(f"a{generator.randint(1, 3)}", generator.choice([-20, -10, 10, 20])))
                continue
            customer = generator.choice(list(customers))
            item = (f"customer {customer}",)
            if generator.random() < 0.5:
                sales += 1
                row = (sales, customer, generator.choice([5, 7, None]))
                statements.append(Statement(item, (Change(SALES.qualified, row, 1),)))
                continue
            old = customers[customer]
            new = (
                customer,
                generator.choice(["Peter", "Patty", "Paul"]),
                generator.choice(["WI", "WI", "MN"]),
            )
            changes = (Change(CUSTOMER.qualified, old, -1), Change(CUSTOMER.qualified, new, 1))
            statements.append(Statement(item, changes))
            after |= {last[customer]} if last.get(customer, name) != name else set()
            customers[customer], last[customer] = new, name
        node, may_abort = generator.randrange(3), generator.random() < 0.2
        scripts.append(UpdateTransaction(name, tuple(statements), node, may_abort, tuple(sorted(after))))
    end = generator.randint(6, 12)
    shared = sorted(generator.sample(range(1, end), 2))
    refreshes = [
        (view.name, time)
        for view in VIEWS
        for time in sorted({*shared, *generator.sample(range(1, end), generator.randint(0, 2))})
    ]
    return IpdaWorld(
        "random", VIEWS, initial, tuple(scripts), tuple(refreshes), tuple(range(1, end + 1)), (0, -2, 3)
    )
