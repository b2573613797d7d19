"""Customers in PostgreSQL, sales in MariaDB; writers insert, change, delete, and think better of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from stress_world import Servers, Writer

_CUSTOMERS, _SALES, _PRODUCTS = 60, 400, 20
_STATES = ("CA", "NV", "WA", "TX", None)


class ShopOnServers:
    """The tables, the views and the writers."""

    tables: ClassVar = {
        "crm.customer": "cust_id BIGINT, state VARCHAR, credit DECIMAL(12,2)",
        "crm.region": "state VARCHAR, name VARCHAR",
        "shop.sales": "sale_id BIGINT, cust_id BIGINT, product_id BIGINT, amount DECIMAL(10,2)",
        "shop.product": "product_id BIGINT, kind VARCHAR",
    }
    views: ClassVar = {
        "sold": """SELECT s.sale_id, c.state, r.name, p.kind, s.amount FROM shop.sales s
            JOIN crm.customer c ON s.cust_id = c.cust_id JOIN crm.region r ON c.state = r.state
            JOIN shop.product p ON s.product_id = p.product_id WHERE s.amount > 2""",
        "sales_by_state": """SELECT c.state, count(*) AS n, sum(s.amount) AS total FROM shop.sales s
            JOIN crm.customer c ON s.cust_id = c.cust_id GROUP BY c.state""",
        "names": """SELECT state AS name FROM crm.customer WHERE state IS NOT NULL
            UNION ALL SELECT kind FROM shop.product""",
    }

    def __init__(self, servers: Servers, seed: int) -> None:
        self.servers, self.seed = servers, seed
        servers.run(
            "crm",
            "CREATE TABLE customer (cust_id BIGINT PRIMARY KEY, state VARCHAR(20), credit NUMERIC(12,2))",
            "CREATE TABLE region (state VARCHAR(20) PRIMARY KEY, name TEXT)",
            "INSERT INTO customer SELECT n, 'CA', n FROM generate_series(1, 40) n",
            "INSERT INTO region VALUES ('CA', 'west'), ('NV', 'west'), ('WA', 'north')",
        )
        servers.run(
            "shop",
            """CREATE TABLE sales (sale_id BIGINT PRIMARY KEY, cust_id BIGINT, product_id BIGINT,
            amount DECIMAL(10,2), KEY (cust_id), KEY (product_id))""",
            "CREATE TABLE product (product_id BIGINT PRIMARY KEY, kind VARCHAR(30))",
            "INSERT INTO product SELECT seq, 'tool' FROM seq_1_to_15",
            "INSERT INTO sales SELECT seq, seq % 40, seq % 15, seq / 7 FROM seq_1_to_200",
        )

    def works(self, number: int) -> list[Callable[[], None]]:
        """What each writer repeats."""
        return [self._work(f"{self.seed} {each}", "crm" if each % 2 else "shop") for each in range(number)]

    def _work(self, seed: str, source: str) -> Callable[[], None]:
        writer = Writer(self.servers, source, seed)
        statement = self._in_crm if source == "crm" else self._in_shop

        def work() -> None:
            def statements(cursor: Any) -> None:
                for _ in range(writer.chance.randint(1, 5)):
                    statement(cursor, writer)

            writer.transaction(statements)

        return work

    def _in_crm(self, cursor: Any, writer: Writer) -> None:
        chance = writer.chance
        customer, state = chance.randint(1, _CUSTOMERS), chance.choice(_STATES)
        kind = chance.randint(1, 10)
        if kind <= 4:
            cursor.execute(
                """INSERT INTO customer VALUES (%s, %s, %s) ON CONFLICT (cust_id)
                DO UPDATE SET state = excluded.state, credit = excluded.credit""",
                (customer, state, chance.randint(0, 10000) / 100),
            )
        elif kind <= 6:
            cursor.execute("DELETE FROM customer WHERE cust_id = %s", (customer,))
        elif kind == 7:
            cursor.execute(
                """UPDATE customer SET cust_id = -cust_id WHERE cust_id = %s
                AND NOT EXISTS (SELECT 1 FROM customer o WHERE o.cust_id = -%s)""",
                (customer, customer),
            )
        elif kind == 8:
            cursor.execute("SAVEPOINT s")
            cursor.execute("DELETE FROM customer")
            cursor.execute("ROLLBACK TO SAVEPOINT s")
        elif kind == 9:
            cursor.execute("UPDATE region SET name = %s WHERE state = %s", (chance.choice("xyz"), state))
        else:
            cursor.execute("UPDATE customer SET state = %s WHERE cust_id %% 7 = %s", (state, customer % 7))

    def _in_shop(self, cursor: Any, writer: Writer) -> None:
        chance = writer.chance
        sale, product = chance.randint(1, _SALES), chance.randint(1, _PRODUCTS)
        kind = chance.randint(1, 10)
        if kind <= 5:
            cursor.execute(
                "REPLACE INTO sales VALUES (%s, %s, %s, %s)",
                (
                    sale,
                    chance.randint(1, _CUSTOMERS),
                    product,
                    chance.choice([None, chance.randint(0, 999) / 100]),
                ),
            )
        elif kind <= 7:
            cursor.execute("DELETE FROM sales WHERE sale_id = %s", (sale,))
        elif kind == 8:
            cursor.execute("UPDATE sales SET amount = amount + 1 WHERE cust_id = %s", (sale % _CUSTOMERS,))
        elif kind == 9:
            cursor.execute(
                "REPLACE INTO product VALUES (%s, %s)", (product, chance.choice(["tool", "toy", "book"]))
            )
        else:
            cursor.execute("DELETE FROM product WHERE product_id = %s", (product,))
