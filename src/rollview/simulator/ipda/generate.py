"""Random worlds of beyer2000: a bank and a shop with customers, four views, refreshes at shared times."""

from __future__ import annotations

import random

from rollview.algebra.history import Change
from rollview.algebra.relation import Table
from rollview.planning import parse_view
from rollview.simulator.ipda.example import ACCOUNTS, deposits, entry, withdrawals
from rollview.simulator.ipda.world import IpdaWorld, Statement, UpdateTransaction

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

    Whoever changes a customer comes after those who changed it before, as Petunias were sold twice (§5).
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
