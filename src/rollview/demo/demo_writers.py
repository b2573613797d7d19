"""A program that writes to a database, as any other: the demo runs it beside rollview.

`python demo_writers.py KIND SEED` writes transactions until its standard input ends, then prints how many it
committed. The address of the database is in the environment, because it has a password and everybody can read
a command line. It uses nothing but the databases' ordinary drivers.
"""

from __future__ import annotations

import os
import random
import select
import sqlite3
import sys
from contextlib import closing
from typing import Any

import psycopg

PAUSE_SECONDS = 0.05
ADDRESS_VARIABLE = "ROLLVIEW_DEMO_DATABASE"
STATES = ("CA", "NY", "TX", "WA", "OR", "NV", "AZ", "FL")


def sell(database: sqlite3.Connection, chance: random.Random) -> None:
    """One transaction of the shop: a sale or two, now and then a correction or a return."""
    for _ in range(chance.randint(1, 2)):
        sale = (chance.randint(1, 200), chance.randint(100, 50_000) / 100)
        database.execute("INSERT INTO sales (customer_id, amount) VALUES (?, ?)", sale)
    some_sale = "(SELECT abs(?) % max(sale_id) + 1 FROM sales)"
    if chance.random() < 0.3:
        change = (chance.randint(100, 50_000) / 100, chance.getrandbits(30))
        database.execute(f"UPDATE sales SET amount = ? WHERE sale_id = {some_sale}", change)
    if chance.random() < 0.2:
        database.execute(f"DELETE FROM sales WHERE sale_id = {some_sale}", (chance.getrandbits(30),))


def move(database: psycopg.Connection[Any], chance: random.Random) -> None:
    """One transaction of the customer database: somebody moves, which changes all of their sales' states."""
    row = (chance.choice(STATES), chance.randint(1, 200))
    database.execute("UPDATE customers SET state = %s WHERE customer_id = %s", row)


def main(kind: str, seed: str) -> None:
    """Writes until its standard input ends."""
    address = os.environ[ADDRESS_VARIABLE]
    chance, written = random.Random(int(seed)), 0
    connect = sqlite3.connect(address, timeout=30) if kind == "sell" else psycopg.connect(address)
    with closing(connect) as database:
        while not select.select([sys.stdin], [], [], PAUSE_SECONDS)[0]:
            if isinstance(database, psycopg.Connection):
                move(database, chance)
            else:
                sell(database, chance)
            database.commit()
            written += 1
    sys.stdout.write(f"{written}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
