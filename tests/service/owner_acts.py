"""A PostgreSQL and a SQLite database whose owners do what owners do, between random transactions.

After each act the views are either right, by DuckDB over what the databases hold, or stopped with a reason
that names the table, the column or the source in question; then the command of the hint leads back. Every
state that was ever right stays readable, or is refused.
"""

from __future__ import annotations

import itertools
import os
import random
import re
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import psycopg
from pyspark.sql import SparkSession

from rollview.errors import PointError, RollviewError
from rollview.project.project import Project
from servers.postgres import shared_server

TABLES = {
    "crm.product": ("id", "kind", "price"),
    "crm.branch": ("id", "city"),
    "crm.visit": ("id", "day", "people"),
    "shop.sale": ("id", "product", "branch", "amount"),
}
VIEWS = {
    "sold": "SELECT s.id, p.kind, s.amount FROM shop.sale s JOIN crm.product p ON s.product = p.id",
    "kinds": "SELECT kind, count(*) AS n FROM crm.product GROUP BY kind",
    "cities": "SELECT b.city, sum(s.amount) AS total FROM shop.sale s JOIN crm.branch b ON s.branch = b.id"
    " GROUP BY b.city",
    "rest": "SELECT id, 100 % amount AS rest FROM shop.sale",
    "branches": "SELECT id, city FROM crm.branch",
    "people": "SELECT day, sum(people) AS people FROM crm.visit GROUP BY day",
}
_KINDS = {"kind": "TEXT", "city": "TEXT"}
_numbers = itertools.count(1)
Rows = Counter[tuple[Any, ...]]


class Owned:
    """Both databases, the project over them, and what was right at which csn."""

    def __init__(self, folder: Path, spark: SparkSession, seed: int) -> None:
        self.chance = random.Random(seed)
        self.folder, self._spark = folder, spark
        self.database = f"acts_{os.getpid()}_{next(_numbers)}"
        dsn = shared_server().create_database(self.database)
        self.crm = psycopg.connect(dsn, autocommit=True)
        self.crm.execute("CREATE TABLE product (id int PRIMARY KEY, kind text, price int, note text)")
        self.crm.execute("CREATE TABLE branch (id int PRIMARY KEY, city text, spare int)")
        self.crm.execute(
            "CREATE TABLE visit (id int, day int, people int, PRIMARY KEY (id, day)) PARTITION BY RANGE (day)"
        )
        for day in range(1, 4):
            self._partition(day)
        self.shop = sqlite3.connect(folder / "shop.db", isolation_level=None)
        self.shop.execute("PRAGMA journal_mode=WAL")
        self.shop.execute("CREATE TABLE sale (id INTEGER PRIMARY KEY, product INT, branch INT, amount INT)")
        (folder / "views").mkdir()
        (folder / "rollview.yml").write_text(
            "name: acts\nsources:\n  shop: {type: sqlite, path: ./shop.db}\n"
            f"  crm: {{type: postgres, dsn: '{dsn}'}}\n"
        )
        for name, sql in VIEWS.items():
            (folder / "views" / f"{name}.sql").write_text(f"CREATE MATERIALIZED VIEW {name} AS {sql}")
        self.right: dict[tuple[str, int], Rows] = {}
        self.deeds: Counter[str] = Counter()
        self.stops: Counter[str] = Counter()
        self.write()
        with self.open() as project:
            project.setup()
        self.judge("setup")

    def close(self) -> None:
        self.crm.close()
        self.shop.close()
        shared_server().drop_database(self.database)

    def open(self) -> Project:
        return Project.open(self.folder, self._spark)

    def round(self) -> str:
        """An act with transactions before, within and after it; what it was."""
        name = self.chance.choice([each for each in dir(self) if each.startswith("act_")])
        self.write()
        act: Callable[[], str] = getattr(self, name)
        named = act()
        self.deeds[name] += 1
        self.write()
        self.judge(named)
        return name.removeprefix("act_")

    def write(self) -> None:
        """A few random transactions; `amount` is never 0 here, which `rest` could not compute."""
        for _ in range(self.chance.randint(1, 4)):
            pick = self.chance.randint
            kind = self.chance.choice(["tea", "cup", "pot", None])
            with suppress(psycopg.Error):  # An act may have taken away what is written to.
                match pick(1, 6):
                    case 1:
                        upsert = "ON CONFLICT (id) DO UPDATE SET kind = excluded.kind"
                        self.crm.execute(
                            f"INSERT INTO product (id, kind, price) VALUES (%s, %s, 1) {upsert}".encode(),
                            (pick(1, 6), kind),
                        )
                    case 2:
                        self.crm.execute("DELETE FROM product WHERE id = %s", (pick(1, 6),))
                    case 3:
                        upsert = "ON CONFLICT (id) DO UPDATE SET city = excluded.city"
                        self.crm.execute(
                            f"INSERT INTO branch (id, city) VALUES (%s, %s) {upsert}".encode(),
                            (pick(1, 4), self.chance.choice(["Graz", "Linz"])),
                        )
                    case 4:
                        upsert = "ON CONFLICT (id, day) DO UPDATE SET people = excluded.people"
                        self.crm.execute(
                            f"INSERT INTO visit VALUES (%s, %s, %s) {upsert}".encode(),
                            (pick(1, 4), pick(1, 4), pick(1, 9)),
                        )
                    case _:
                        self.shop.execute(
                            "INSERT OR REPLACE INTO sale (id, product, branch, amount) VALUES (?, ?, ?, ?)",
                            (pick(1, 20), pick(1, 6), pick(1, 4), pick(1, 9)),
                        )

    def judge(self, named: str) -> None:
        """Every view is right, or stopped with a reason that names what happened, and led back."""
        for _ in range(4):
            with self.open() as project:
                hint = self._once(project, named)
            if not hint:
                return
            self._follow(hint)
        raise AssertionError(f"{named}: four commands of hints did not lead back")

    def _once(self, project: Project, named: str) -> str:
        error: RollviewError | None = None
        try:
            project.run(once=True)
        except RollviewError as caught:
            error = caught
        status = project.status()
        for view in status.views:
            rows = Counter(tuple(row) for row in project.read(view.name).collect())
            if view.state != "stopped":
                assert error is not None or view.materialized == status.last_csn, (view, error)
                assert rows == self.answer(view.name), (view.name, "is wrong after", named)
                self.right[view.name, view.materialized] = rows
                continue
            assert view.halted is not None
            self.stops[view.halted.kind] += 1
            assert re.search(named, view.halted.reason), (named, view.halted)
            known = self.right.get((view.name, view.materialized))
            assert known is None or known == rows, (view.name, "changed while it was stopped")
        self._check_past(project)
        if error is None:
            assert all(view.state != "stopped" for view in status.views), status.views
            return ""
        return error.hint

    def _check_past(self, project: Project) -> None:
        """Some states that were right are still there, or are refused."""
        for name, csn in self.chance.sample(sorted(self.right), min(3, len(self.right))):
            with suppress(PointError):
                rows = Counter(tuple(row) for row in project.read(name, csn).collect())
                assert rows == self.right[name, csn], (name, "is wrong as of csn", csn)

    def _follow(self, hint: str) -> None:
        command = re.search(r"`rollview setup( --reload (\w+))?`", hint)
        with self.open() as project:
            if command is not None:
                project.setup([command[2]] if command[2] else None)
            else:
                # The row is to be corrected; then the view continues automatically.
                self.shop.execute("UPDATE sale SET amount = 3 WHERE amount = 0")

    def answer(self, view: str) -> Rows:
        """What DuckDB says to the view over what the databases hold."""
        with duckdb.connect() as oracle:
            oracle.execute("CREATE SCHEMA crm; CREATE SCHEMA shop")
            for table, columns in TABLES.items():
                source, name = table.split(".")
                select = f"SELECT {', '.join(columns)} FROM {name}"
                rows = (self.crm if source == "crm" else self.shop).execute(select).fetchall()
                kinds = ", ".join(f"{each} {_KINDS.get(each, 'INT')}" for each in columns)
                oracle.execute(f"CREATE TABLE {table} ({kinds})")
                for row in rows:
                    oracle.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", list(row))
            return Counter(oracle.execute(VIEWS[view]).fetchall())

    def _alter_publication(self, change: str) -> None:
        ((name,),) = self.crm.execute("SELECT pubname::text FROM pg_publication").fetchall()
        self.crm.execute(f"ALTER PUBLICATION {name} {change}".encode())

    # Each act returns what a reason must name, if a view stops.

    def act_taken_out_and_put_back(self) -> str:
        self._alter_publication("DROP TABLE product")
        self.write()
        self._alter_publication("ADD TABLE product")
        return "product"

    def act_row_filter(self) -> str:
        self._alter_publication("SET TABLE product WHERE (id > 2), branch, visit")
        self.write()
        return "product|branch"

    def act_publish_less_for_a_while(self) -> str:
        self._alter_publication("SET (publish = 'insert')")
        self.write()
        self._alter_publication("SET (publish = 'insert, update, delete, truncate')")
        return "publication"

    def act_replica_identity(self) -> str:
        self.crm.execute("ALTER TABLE branch REPLICA IDENTITY DEFAULT")
        self.write()
        return "branch"

    def act_truncate(self) -> str:
        self.crm.execute(self.chance.choice([b"TRUNCATE product", b"TRUNCATE branch"]))
        return "truncated"

    def act_harmless(self) -> str:
        number = next(_numbers)
        statement = self.chance.choice(
            [
                f"ALTER TABLE product ADD COLUMN extra_{number} int DEFAULT 1",
                f"CREATE INDEX by_kind_{number} ON product (kind)",
                "COMMENT ON TABLE branch IS 'where we sell'",
                "VACUUM FULL product",
                "ANALYZE",
            ]
        )
        self.crm.execute(statement.encode())
        return "nothing may stop"

    def act_unused_column(self) -> str:
        for table, column in (("product", "note"), ("branch", "spare")):
            self.crm.execute(f"ALTER TABLE {table} DROP COLUMN IF EXISTS {column}".encode())
            self.crm.execute(f"ALTER TABLE {table} ADD COLUMN {column} text".encode())
        return "nothing may stop"

    def act_rename_there_and_back(self) -> str:
        self.crm.execute("ALTER TABLE branch RENAME COLUMN city TO town")
        with suppress(RollviewError), self.open() as project:
            project.run(once=True)
        self.write()
        self.crm.execute("ALTER TABLE branch RENAME COLUMN town TO city")
        return "city"

    def _partition(self, day: int) -> None:
        self.crm.execute(
            f"CREATE TABLE visit_{day} PARTITION OF visit FOR VALUES FROM ({day}) TO ({day + 1})".encode()
        )

    def _days(self) -> list[int]:
        """The days that have a partition."""
        names = self.crm.execute(
            "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'visit'::regclass ORDER BY 1"
        ).fetchall()
        return [int(name.removeprefix("visit_")) for (name,) in names]

    def act_partition_comes_or_goes(self) -> str:
        days = self._days()
        missing = [day for day in range(1, 5) if day not in days]
        if missing and self.chance.random() < 0.5:
            self._partition(missing[0])
        else:
            self.crm.execute(f"DROP TABLE visit_{self.chance.choice(days)}".encode())
            if len(days) == 1:
                self._partition(days[0])
        return "visit"

    def act_partition_is_away_for_a_while(self) -> str:
        day = self.chance.choice(self._days())
        self.crm.execute(f"ALTER TABLE visit DETACH PARTITION visit_{day}".encode())
        self.write()
        self.crm.execute(f"INSERT INTO visit_{day} VALUES (9, {day}, 1) ON CONFLICT DO NOTHING".encode())
        if self.chance.random() < 0.5:
            with suppress(RollviewError), self.open() as project:
                project.run(once=True)
        bounds = f"FOR VALUES FROM ({day}) TO ({day + 1})"
        self.crm.execute(f"ALTER TABLE visit ATTACH PARTITION visit_{day} {bounds}".encode())
        return "visit"

    def act_slot_is_dropped(self) -> str:
        ((name,),) = self.crm.execute("SELECT slot_name::text FROM pg_replication_slots").fetchall()
        self.crm.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots")
        for _ in range(50):
            with suppress(psycopg.errors.ObjectInUse):
                self.crm.execute("SELECT pg_drop_replication_slot(%s)", (name,))
                break
        return "crm"

    def act_row_that_cannot_be_computed(self) -> str:
        self.shop.execute("INSERT OR REPLACE INTO sale (id, product, branch, amount) VALUES (7, 1, 1, 0)")
        return "amount"

    def act_sqlite_trigger(self) -> str:
        triggers = self.shop.execute(
            "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' ORDER BY name"
        ).fetchall()
        name, text = self.chance.choice(triggers)
        self.shop.execute(f'DROP TRIGGER "{name}"')
        self.write()
        self.shop.execute(text)
        return "sale"

    def act_sqlite_column(self) -> str:
        self.shop.execute(f"ALTER TABLE sale ADD COLUMN extra_{next(_numbers)} TEXT")
        return "nothing may stop"
