"""TRUNCATE at real servers: views that are empty after it continue without a gap; the others are loaded.

All writers go through one lock, so that the order of commits, which is that of the csn, and the state of the
tables after each are known. Every csn that can be read is compared with what Python makes of that state.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from crashing import Died, Executioner
from pyspark.sql import SparkSession

from pages.what_if import what_if
from rollview.errors import PointError, TableTruncated
from rollview.events import Event, Halted
from rollview.maintain.retry import Stop
from rollview.project.project import Project
from servers import mariadb, postgres

pytestmark = pytest.mark.slow

_numbers = itertools.count(1)
Rows = list[tuple[Any, ...]]
VIEWS = {
    "sold": "SELECT s.id, p.kind, s.amount FROM db.sale s JOIN db.product p ON s.product = p.id",
    "kinds": "SELECT kind, count(*) AS n FROM db.product GROUP BY kind",
    "products": "SELECT count(*) AS n, sum(id) AS total FROM db.product",
    "largest": "SELECT max(id) AS id FROM db.product",
    "pairs": "SELECT a.id, b.id AS other FROM db.product a JOIN db.product b ON a.kind = b.kind",
    "either": "SELECT id FROM db.product UNION ALL SELECT product FROM db.sale",
    "sales": "SELECT s.id, p.kind FROM db.sale s LEFT JOIN db.product p ON s.product = p.id",
    "by_kind": "SELECT kind, count(*) AS n, sum(amount) AS total FROM sold GROUP BY kind",
}


def expected(name: str, product: Rows, sale: Rows) -> Counter[tuple[Any, ...]]:
    """What a view is for these rows."""
    kinds = dict(product)
    sold = [(number, kinds[what], amount) for number, what, amount in sale if what in kinds]

    def grouped(rows: Rows, place: int) -> Iterator[tuple[Any, list[tuple[Any, ...]]]]:
        for key in {row[place] for row in rows}:
            yield key, [row for row in rows if row[place] == key]

    match name:
        case "sold":
            return Counter(sold)
        case "kinds":
            return Counter((kind, len(rows)) for kind, rows in grouped(product, 1))
        case "products":
            return Counter([(len(product), sum(row[0] for row in product) if product else None)])
        case "largest":
            return Counter([(max((row[0] for row in product), default=None),)])
        case "sales":
            return Counter((number, kinds.get(what)) for number, what, _ in sale)
        case "pairs":
            return Counter((a[0], b[0]) for a in product for b in product if a[1] == b[1])
        case "either":
            return Counter([(row[0],) for row in product] + [(row[1],) for row in sale])
    return Counter((kind, len(rows), sum(row[2] for row in rows)) for kind, rows in grouped(sold, 1))


class Database:
    """Two tables at a server, the project over them, and their rows after every commit since `begin`."""

    def __init__(self, folder: Path, kind: str, views: Iterable[str] = VIEWS) -> None:
        self.kind, self.folder, self.views = kind, folder, tuple(views)
        self.name = f"truncate_{os.getpid()}_{next(_numbers)}"
        self._server: Any = (postgres if kind == "postgres" else mariadb).shared_server()
        self.dsn = self._server.create_database(self.name)
        self._connection = self._connect()
        self._lock = threading.Lock()
        self.states: list[tuple[Rows, Rows]] = []
        self.execute("CREATE TABLE product (id INT PRIMARY KEY, kind VARCHAR(20))")
        self.execute("CREATE TABLE sale (id INT PRIMARY KEY, product INT, amount INT)")
        self.execute("INSERT INTO product VALUES (1, 'tea'), (2, 'cup'), (3, 'cup')")
        self.execute("INSERT INTO sale VALUES (1, 1, 10), (2, 2, 20), (3, 9, 5)")
        (folder / "views").mkdir(parents=True)
        (folder / "rollview.yml").write_text(
            f"name: emptied\nspark: {{master: 'local[2]'}}\n"
            f"sources:\n  db: {{type: {kind}, dsn: '{self.dsn}'}}\n"
        )
        for name in self.views:
            text = f"CREATE MATERIALIZED VIEW {name} AS {VIEWS[name]}"
            (folder / "views" / f"{name}.sql").write_text(text)

    def _connect(self) -> Any:
        if self.kind == "postgres":
            return psycopg.connect(self.dsn, autocommit=True)
        return self._server.connect(self.name, autocommit=True)

    def execute(self, statement: str) -> Rows:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)
            return [tuple(row) for row in cursor.fetchall()] if statement.startswith("SELECT") else []

    def commit(self, *statements: str) -> None:
        """One transaction, and the state behind it."""
        with self._lock:
            if len(statements) > 1:
                statements = ("BEGIN", *statements, "COMMIT")
            for statement in statements:
                self.execute(statement)
            self._note()

    def commit_each(self, *statements: str) -> None:
        for statement in statements:
            self.commit(statement)

    def begin(self) -> None:
        """From here on states are counted."""
        self.states.clear()
        self._note()

    def _note(self) -> None:
        product = self.execute("SELECT id, kind FROM product")
        self.states.append((product, self.execute("SELECT id, product, amount FROM sale")))

    def check(self, project: Project, first: int, gaps: Collection[str] = (), every: int = 1) -> None:
        """Views at every n-th csn since `first`, the csn of the first state; only some may have a gap."""
        assert project.status().last_csn == first + len(self.states) - 1
        numbered = list(enumerate(self.states, first))
        for name in self.views:
            refused = 0
            for csn, state in numbered[::every]:
                try:
                    rows = Counter(map(tuple, project.read(name, csn).collect()))
                except PointError:
                    refused += 1
                    continue
                assert rows == expected(name, *state), (name, csn)
            assert not refused or (name in gaps and refused < len(numbered[::every])), (name, refused)
            self.check_shown(project, name)

    def check_shown(self, project: Project, name: str) -> None:
        """A view is what it is for the last state."""
        shown = Counter(map(tuple, project.read(name).collect()))
        assert shown == expected(name, *self.states[-1]), name

    def close(self) -> None:
        self._connection.close()
        self._server.drop_database(self.name)


@pytest.fixture(params=["postgres", "mariadb"])
def database(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Database]:
    made = Database(tmp_path / "project", request.param)
    yield made
    made.close()


postgres_only = pytest.mark.parametrize("database", ["postgres"], indirect=True)


@pytest.fixture
def received() -> list[Event]:
    return []


@pytest.fixture
def project(database: Database, received: list[Event], spark: SparkSession) -> Iterator[Project]:
    with Project.open(database.folder, spark) as opened:
        opened.setup()
        opened.subscribe(received.append)
        database.begin()
        yield opened


def spans(project: Project) -> dict[str, int]:
    """How often each view was reloaded."""
    return {view.name: len(view.spans) for view in project.status().views}


@what_if(
    "MariaDB",
    "`TRUNCATE`",
    "views that are [empty without the table](../what-if.md) continue without a gap; `run` reloads the "
    "others automatically",
    "log",
    under="nothing stops",
)
def test_oracle_views_that_are_empty_continue_without_a_gap(
    database: Database, project: Project, received: list[Event]
) -> None:
    """First one TRUNCATE, then two in a batch with insertions before and after, one of an empty table."""
    first = project.status().last_csn
    database.commit("INSERT INTO sale VALUES (4, 3, 7)")
    project.run(once=True)
    database.commit("TRUNCATE TABLE product")
    project.run(once=True)
    assert spans(project) == dict.fromkeys(VIEWS, 0) | {"either": 1, "sales": 1}
    emptied = project.status().last_csn
    gone = project.deltas("sold", f"csn:{emptied - 1}", f"csn:{emptied}").collect()
    lost = [(-1, emptied, 1, "tea", 10), (-1, emptied, 2, "cup", 20), (-1, emptied, 4, "cup", 7)]
    assert sorted((row["_count"], row["_csn"], *tuple(row)[:3]) for row in gone) == lost
    database.commit_each(
        "INSERT INTO product VALUES (2, 'jug'), (3, 'jug')",
        "TRUNCATE TABLE product",
        "TRUNCATE TABLE product",
        "INSERT INTO product VALUES (1, 'pot')",
        "INSERT INTO sale VALUES (5, 1, 1)",
        "UPDATE product SET kind = 'tin'",
    )
    project.run(once=True)
    # A change of one product has to be joined with the others, which are gone.
    assert spans(project) == dict.fromkeys(VIEWS, 0) | {"either": 2, "sales": 2, "pairs": 1}
    database.check(project, first, {"either", "sales", "pairs"})
    assert all(verdict.is_right for verdict in project.verify())
    assert not [each for each in received if isinstance(each, Halted)]
    assert project.setup().loaded == {}


@postgres_only
def test_oracle_what_cannot_be_exact_is_loaded(database: Database, project: Project) -> None:
    """By the transaction itself, or because a view needs what was there before."""
    first = project.status().last_csn
    database.commit("DELETE FROM sale WHERE id = 3", "INSERT INTO product VALUES (7, 'map')")
    project.run(once=True)
    # Both at once: every block is empty, whatever else the transaction did.
    database.execute("ALTER TABLE sale ADD CONSTRAINT known FOREIGN KEY (product) REFERENCES product")
    database.commit("INSERT INTO sale VALUES (8, 7, 8)", "TRUNCATE product CASCADE")
    database.execute("ALTER TABLE sale DROP CONSTRAINT known")
    database.commit("INSERT INTO product VALUES (1, 'tea')", "INSERT INTO sale VALUES (1, 1, 1)")
    project.run(once=True)
    database.check(project, first)
    assert spans(project) == dict.fromkeys(VIEWS, 0)
    # The table is not empty behind its transaction, so its history begins again, at a csn of its own.
    database.commit("TRUNCATE product", "INSERT INTO product VALUES (2, 'cup'), (1, 'pot')")
    project.run(once=True)
    database.states.append(database.states[-1])
    assert spans(project) == dict.fromkeys(VIEWS, 1)
    # A change of sale needs product as it was, and that is gone; what reads product alone does not mind.
    database.commit_each(
        "INSERT INTO sale VALUES (2, 2, 2)", "TRUNCATE product", "INSERT INTO product VALUES (2, 'mug')"
    )
    project.capture()
    with pytest.raises(TableTruncated, match=r"db.product was truncated at csn \d+"):
        project.propagate("sold")
    project.run(once=True)
    alone = dict.fromkeys(("kinds", "products", "largest", "pairs"), 1)
    assert spans(project) == dict.fromkeys(VIEWS, 2) | alone
    database.commit_each("UPDATE product SET kind = 'jug'", "INSERT INTO sale VALUES (3, 2, 3)")
    project.run(once=True)
    database.check(project, first, VIEWS)
    assert all(verdict.is_right for verdict in project.verify())


def test_oracle_truncate_while_run_is_running(database: Database, project: Project) -> None:
    first, stop, halt = project.status().last_csn, Stop(), threading.Event()
    numbers = itertools.count(100)

    def write(statement: Callable[[int], str]) -> None:
        while not halt.is_set():
            database.commit(statement(next(numbers)))
            time.sleep(0.02)

    writers = [
        threading.Thread(target=write, args=[statement])
        for statement in (
            lambda n: f"INSERT INTO product VALUES ({n}, 'kind {n % 3}')",
            lambda n: f"INSERT INTO sale VALUES ({n}, {n - n % 7}, {n % 10})",
        )
    ]
    running = threading.Thread(target=project.run, args=(False, stop))
    running.start()
    try:
        for each in writers:
            each.start()
        for table in ("product", "sale", "product"):
            time.sleep(1.0)
            database.commit(f"TRUNCATE TABLE {table}")
        time.sleep(1.0)
    finally:
        halt.set()
        for each in writers:
            each.join()
        stop.now()
        running.join()
    project.run(once=True)
    # For these nothing is ever looked up.
    alone = {"kinds", "products", "largest"}
    database.check(project, first, VIEWS.keys() - alone, len(database.states) // 6)
    loads = spans(project)
    assert all(loads[name] == 0 for name in alone), loads


@pytest.mark.soak
def test_oracle_killed_at_every_durable_operation(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was done of it, the next process has every state, without a gap."""
    monkeypatch.setattr("rollview.run.run.RunDriver.maintain_lake", lambda driver: {})
    database = Database(tmp_path / "project", "postgres", ["sold"])
    with Project.open(database.folder, spark) as project:
        project.setup()
        first = project.status().last_csn
    executioner = Executioner(monkeypatch)
    database.begin()
    places: list[str] = []
    for moment in itertools.count():
        cup = f"INSERT INTO product VALUES (1, 'tea'), (2, 'cup {moment}')"
        database.commit_each("TRUNCATE TABLE product", cup)
        if _outlives(database, spark, executioner, moment):
            break
        places.append(executioner.place)
        executioner.revive()
        with Project.open(database.folder, spark) as again:
            again.run(once=True)
            database.check_shown(again, "sold")
    with Project.open(database.folder, spark) as again:
        assert spans(again) == {"sold": 0} and again.status().unfinished == ()
        database.check(again, first)
    database.close()
    for wanted in ("begin of propagate", "_commit of deltas/sold", "finish of propagate", "finish of apply"):
        assert any(wanted in place for place in places), (wanted, places)


def _outlives(database: Database, spark: SparkSession, executioner: Executioner, moment: int) -> bool:
    project = Project.open(database.folder, spark)
    executioner.kill_at(moment)
    try:
        project.run(once=True)
        return True
    except Died:
        return False
    finally:
        with suppress(Died):
            project.close()
