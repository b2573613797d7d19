"""Writers that never agree on anything: transfers, insertions, deletions, roll-backs, XA transactions."""

from __future__ import annotations

import random
import threading
from contextlib import closing

import pymysql
from mariadb_database import Database

ACCOUNTS = 20


def create_bank(database: Database) -> None:
    """Accounts, and a book of what was done to them."""
    rows = ", ".join(f"({number}, 100)" for number in range(ACCOUNTS))
    database.execute(
        "CREATE TABLE account (id INT PRIMARY KEY, balance INT NOT NULL)",
        "CREATE TABLE entry (id BIGINT AUTO_INCREMENT PRIMARY KEY, account INT, amount INT, note TEXT)",
        f"INSERT INTO account VALUES {rows}",
    )


class Writers:
    """Some threads that write until they are stopped; deadlocks are part of life."""

    def __init__(self, database: Database, count: int, xa_share: float, seed: int) -> None:
        self._database = database
        self._stop = threading.Event()
        self.failures: list[BaseException] = []
        self.commits = 0
        self._threads = [
            threading.Thread(target=self._run, args=(random.Random(seed * 1000 + number), number, xa_share))
            for number in range(count)
        ]

    def __enter__(self) -> Writers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)
        assert not self.failures, self.failures

    def _run(self, chance: random.Random, number: int, xa_share: float) -> None:
        try:
            with closing(self._database.connect(autocommit=False)) as connection:
                connection.query("SET SESSION innodb_lock_wait_timeout = 5")
                work = 0
                while not self._stop.is_set():
                    work += 1
                    xid = f"'x{number}','{work}'" if chance.random() < xa_share else ""
                    try:
                        self._transaction(connection, chance, xid)
                        self.commits += 1
                    except (pymysql.err.OperationalError, pymysql.err.IntegrityError) as error:
                        if error.args[0] not in (1205, 1213, 1614, 1402):
                            raise
                        self._clean_up(connection, xid)
        except BaseException as error:
            self.failures.append(error)

    def _clean_up(self, connection: pymysql.Connection, xid: str) -> None:
        if not xid:
            connection.rollback()
            return
        for statement in (f"XA END {xid}", f"XA ROLLBACK {xid}"):
            try:
                connection.query(statement)
            except pymysql.err.MySQLError:
                continue

    def _transaction(self, connection: pymysql.Connection, chance: random.Random, xid: str) -> None:
        connection.query(f"XA START {xid}" if xid else "BEGIN")
        for _ in range(chance.randint(1, 3)):
            self._step(connection, chance)
        keep = chance.random() < 0.85
        if xid:
            connection.query(f"XA END {xid}")
            connection.query(f"XA PREPARE {xid}")
            connection.query(f"XA {'COMMIT' if keep else 'ROLLBACK'} {xid}")
        elif keep:
            connection.commit()
        else:
            connection.rollback()

    def _step(self, connection: pymysql.Connection, chance: random.Random) -> None:
        one, other = chance.sample(range(ACCOUNTS), 2)
        amount = chance.randint(1, 9)
        kind = chance.random()
        if kind < 0.6:
            connection.query(f"UPDATE account SET balance = balance - {amount} WHERE id = {one}")
            connection.query(f"UPDATE account SET balance = balance + {amount} WHERE id = {other}")
            connection.query(
                "INSERT INTO entry (account, amount, note)"
                f" VALUES ({one}, -{amount}, 'out'), ({other}, {amount}, NULL)"
            )
        elif kind < 0.8:
            connection.query("SAVEPOINT s")
            connection.query(f"INSERT INTO entry (account, amount) VALUES ({one}, 0)")
            if chance.random() < 0.5:
                connection.query("ROLLBACK TO SAVEPOINT s")
        else:
            connection.query(f"DELETE FROM entry WHERE account = {one} ORDER BY id LIMIT 12")
