"""A bank with accounts in two servers. Transfers are global transactions; the sum over all accounts is zero.

Both parts are announced under a common id. Half of the writers prepare both and commit them then (two-phase
commit), the others commit one after the other. A writer that meets a server in restart finishes what it has
prepared; what is not prepared may be left half done by a restart, so then all of them prepare.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any, ClassVar

from stress_world import CRM_SLOT, TROUBLES, Servers

from rollview import Project

_ACCOUNTS = 20
_FINISH_SECONDS = 60.0


class Bank:
    """The accounts, the views and the transfers."""

    tables: ClassVar = {
        "crm.account": "id BIGINT, owner BIGINT, balance BIGINT",
        "shop.account": "id BIGINT, owner BIGINT, balance BIGINT",
    }
    views: ClassVar = {
        "accounts": """SELECT id, balance FROM crm.account UNION ALL SELECT id, balance FROM shop.account""",
        "total": "SELECT sum(balance) AS total FROM accounts",
        "owners": """SELECT a.owner, a.balance AS here, b.balance AS there FROM crm.account a
            JOIN shop.account b ON a.owner = b.owner""",
        "wealth": """SELECT sum(a.balance + b.balance) AS total, count(*) AS n FROM crm.account a
            JOIN shop.account b ON a.owner = b.owner""",
    }

    def __init__(self, servers: Servers, seed: int, prepare_all: bool) -> None:
        self.servers, self.seed, self.prepare_all = servers, seed, prepare_all
        create = "CREATE TABLE account (id BIGINT PRIMARY KEY, owner BIGINT, balance BIGINT)"
        for source, first in (("crm", 0), ("shop", 1000)):
            rows = ", ".join(f"({first + n}, {n}, 0)" for n in range(_ACCOUNTS))
            servers.run(source, create, f"INSERT INTO account VALUES {rows}")

    def works(self, number: int) -> list[Callable[[], None]]:
        """What each writer repeats."""
        return [
            _Teller(self.servers, f"{self.seed}-{each}", self.prepare_all or each % 2 == 0).work
            for each in range(number)
        ]

    def judge(self, project: Project, oldest: int, last: int) -> list[str]:
        """The sum is zero at every csn that can be read."""
        wrong = []
        for view in ("total", "wealth"):
            shown = {row["total"] for row in project.read(view, as_of=oldest).collect()}
            for row in project.deltas(view).collect():
                shown.add(row["total"])
            if shown != {0}:
                wrong.append(f"{view} has shown {sorted(shown - {0})[:5]}")
        for csn in range(oldest, last + 1, max(1, (last - oldest) // 20)):
            total = sum(row["balance"] for row in project.read("accounts", as_of=csn).collect())
            if total:
                wrong.append(f"the accounts add up to {total} as of csn {csn}")
        return wrong


class _Teller:
    """Moves money between an account here and one there, as one transaction over both servers."""

    def __init__(self, servers: Servers, seed: str, two_phase: bool) -> None:
        self.servers, self.name, self.two_phase = servers, seed, two_phase
        self.chance = random.Random(seed)
        self.numbers = itertools.count()
        self._connections: dict[str, Any] = {}
        self._last_trouble = ""

    def work(self) -> None:
        """One transfer."""
        global_id = f"t{self.name}-{next(self.numbers)}"
        # A branch that changes nothing is not in a server's log, so nobody should have to wait for it.
        amount = self.chance.choice([-1, 1]) * self.chance.randint(1, 50)
        accounts = {source: self.chance.randrange(_ACCOUNTS) for source in ("crm", "shop")}
        if self.two_phase:
            self._prepared(global_id, accounts, amount)
        else:
            self._marked(global_id, accounts, amount)

    def _prepared(self, global_id: str, accounts: dict[str, int], amount: int) -> None:
        name = f"bank-{global_id}"
        begun = {"crm": "BEGIN", "shop": f"XA START '{name}'"}
        prepare = {
            "crm": [f"PREPARE TRANSACTION '{name}'"],
            "shop": [f"XA END '{name}'", f"XA PREPARE '{name}'"],
        }
        try:
            for source in ("crm", "shop"):
                updated = self._update(source, accounts, amount)
                self._run(source, begun[source], updated, _announced(source, global_id))
            for source in ("crm", "shop"):
                self._run(source, *prepare[source])
        except TROUBLES:
            # What was not prepared ends with its connection.
            self._drop()
            self._finish("crm", f"ROLLBACK PREPARED '{name}'")
            self._finish("shop", f"XA ROLLBACK '{name}'")
            raise
        order = self.chance.sample([("crm", f"COMMIT PREPARED '{name}'"), ("shop", f"XA COMMIT '{name}'")], 2)
        for source, statement in order:
            self._finish(source, statement)

    def _marked(self, global_id: str, accounts: dict[str, int], amount: int) -> None:
        try:
            for source in ("crm", "shop"):
                updated = self._update(source, accounts, amount)
                self._run(source, "BEGIN", updated, _announced(source, global_id))
        except TROUBLES:
            self._drop()
            raise
        for source in self.chance.sample(["crm", "shop"], 2):
            self._run(source, "COMMIT")

    def _update(self, source: str, accounts: dict[str, int], amount: int) -> str:
        sign, first = (1, 0) if source == "crm" else (-1, 1000)
        return f"UPDATE account SET balance = balance + {sign * amount} WHERE id = {first + accounts[source]}"

    def _run(self, source: str, *statements: str) -> None:
        if source not in self._connections:
            connection = self.servers.connect(source)
            # Without it, MariaDB lets nobody finish what another connection has prepared.
            if source == "crm":
                connection.autocommit = True
            else:
                connection.autocommit(True)
            self._connections[source] = connection
        with self._connections[source].cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def _finish(self, source: str, statement: str) -> None:
        """Until it is done, however often the server goes away; that it is done already is fine, too."""
        deadline = time.monotonic() + _FINISH_SECONDS
        while not self._is_finished(source, statement):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{source} could not {statement}: {self._last_trouble}")
            time.sleep(0.1)

    def _is_finished(self, source: str, statement: str) -> bool:
        try:
            self._run(source, statement)
            return True
        except Exception as error:
            self._last_trouble = str(error)
            self._drop(source)
            if "does not exist" in str(error):
                return True
            # To the driver it is an operational error, as those of a server that is away.
            if "Unknown XID" not in str(error):
                if isinstance(error, TROUBLES):
                    return False
                raise
        # It is also unknown while the connection that prepared it, or the server, is on its way out. Then
        # the server does not answer twice.
        try:
            for _ in range(2):
                time.sleep(0.5)
                if self._is_prepared(statement):
                    self._last_trouble = f"{self._last_trouble}, and it is still prepared"
                    return False
        except TROUBLES:
            return False
        return True

    def _is_prepared(self, statement: str) -> bool:
        """Whether MariaDB still lists the transaction of a statement such as `XA COMMIT 'name'`."""
        name = statement.split("'")[1]
        with closing(self.servers.connect("shop")) as connection, connection.cursor() as cursor:
            cursor.execute("XA RECOVER")
            return any(row[3] in (name, name.encode()) for row in cursor.fetchall())

    def _drop(self, *sources: str) -> None:
        for source in sources or ("crm", "shop"):
            with suppress(Exception):
                self._connections.pop(source).close()


def _announced(source: str, global_id: str) -> str:
    """What makes the open transaction a part of a global one."""
    if source == "crm":
        return f"SELECT {CRM_SLOT}_global.take_part('{global_id}', 'crm,shop')"
    return f"INSERT INTO _rollview_global (id, participants) VALUES ('{global_id}', 'crm,shop')"
