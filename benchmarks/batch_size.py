"""What a transaction costs a view, and how stale the view is, by the number of transactions in a step.

    python benchmarks/batch_size.py --seconds 40 --bound 10 --write docs/reference/batch-size.md

A program commits sales at a steady rate to one SQLite database, and a view joins them with the customers of
another one. `run`'s rounds are made by steps of fixed sizes, and by what `rollview.max_staleness` chooses, in
turns, `--rounds` times, so that a busy machine is unfair to none. Only ratios within one run mean anything.
At the end the view is compared with SQLite's own answer. With `--write` that section of the page is replaced.

    python benchmarks/batch_size.py --busy --write docs/reference/batch-size.md

With `--busy`, the customers are in a PostgreSQL where four programs update another table all the time, and a
backlog of sales is propagated with intervals of fixed widths and with `auto`, in turns: how long each look-up
keeps the server busy, how long the backlog takes, and how long the updates of the four take meanwhile.
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import sys
import threading
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory

import psycopg

from rollview import Project
from rollview.catalog import Catalog
from rollview.maintain.batches import Batches
from rollview.maintain.retry import POLL_SECONDS

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from servers.postgres import PostgresServer

SIZES = (1, 10, 30, 60, 90, 120)
CHOSEN = 0
"""In the place of a size: what the bound chooses."""
CUSTOMERS = 10_000
QUERY = """SELECT c.state, count(*) AS n, sum(s.amount) AS total
    FROM {}sales s JOIN {}customer c ON s.cust_id = c.cust_id GROUP BY c.state"""
HEAD = """# What the size of a step costs

[How long a view waits](views.md#how-long-a-view-waits) is chosen under a bound on its staleness; design note
[027](../design/027-batch-size.md) says why the largest step that the bound allows is the cheapest.

"""


BUSY = """
## How wide an interval is, where a source is busy

"""
WIDTHS = ("10000", "1000", "auto")
BACKLOG = 10_000
UPDATERS = 4


@dataclass
class Measured:
    """The steps of one size: what they had, took and looked up, and how old that was when shown."""

    steps: int = 0
    transactions: int = 0
    seconds: float = 0.0
    lookups: int = 0
    lookup_seconds: float = 0.0
    ages: list[float] = field(default_factory=list)


class Sized(Batches):
    """Steps of a fixed number of transactions, or as many as the bound allows; notes what each one cost."""

    size = CHOSEN
    measured: Measured

    def waiting(self, names: Collection[str], halted: Iterable[str]) -> frozenset[str]:
        if self.size == CHOSEN:
            return super().waiting(names, halted)
        history = self._catalog.history
        touching = history.touching(["shop.sales"], self._shown, history.last_csn())["shop.sales"]
        return frozenset() if len(touching) >= self.size else frozenset(self.bounds())

    @property
    def _shown(self) -> int:
        return self._catalog.views.get("by_state").materialized_csn

    def took(self, seconds: float, batches: Mapping[str, tuple[int, float]]) -> None:
        for rows, own in batches.values():
            self.measured.steps += 1
            self.measured.transactions += rows
            self.measured.seconds += own
        super().took(seconds, batches)


class World:
    """The databases, the writer, and a project with the view."""

    def __init__(self, folder: Path, bound: float, rate: float) -> None:
        self.folder, self.rate = folder, rate
        self.shop = _database(
            folder / "shop.db", "sales (sale_id INTEGER PRIMARY KEY, cust_id INT, amount INT)"
        )
        self.crm = _database(folder / "crm.db", "customer (cust_id INTEGER PRIMARY KEY, state TEXT)")
        customers = ((n, f"state {n % 50}") for n in range(CUSTOMERS))
        self.crm.execute("BEGIN")
        self.crm.executemany("INSERT INTO customer VALUES (?, ?)", customers)
        self.crm.execute("COMMIT")
        self.crm.execute("CREATE INDEX by_state ON customer (state)")
        (folder / "views").mkdir()
        (folder / "rollview.yml").write_text(
            "name: batches\nspark: {master: 'local[2]'}\nsources:\n"
            "  shop: {type: sqlite, path: ./shop.db}\n  crm: {type: sqlite, path: ./crm.db}\n"
        )
        said = f"TBLPROPERTIES ('rollview.max_staleness' = '{bound:g}s')"
        text = f"CREATE MATERIALIZED VIEW by_state {said} AS {QUERY.format('shop.', 'crm.')}"
        (folder / "views" / "by_state.sql").write_text(text)
        self.stop = threading.Event()

    def write(self) -> None:
        """Commits sales, each a transaction, as evenly as sleeping allows."""
        chance, due = random.Random(1), time.monotonic()
        while not self.stop.is_set():
            row = (chance.randrange(CUSTOMERS), chance.randint(1, 9))
            self.shop.execute("INSERT INTO sales (cust_id, amount) VALUES (?, ?)", row)
            due += 1.0 / self.rate
            self.stop.wait(max(0.0, due - time.monotonic()))

    def expected(self) -> set[tuple[str, int, int]]:
        """What the view must show of all that is committed."""
        joined = sqlite3.connect(self.folder / "shop.db")
        joined.execute("ATTACH ? AS crm", (str(self.folder / "crm.db"),))
        return set(joined.execute(QUERY.format("main.", "crm.")))


def _database(path: Path, table: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, timeout=30.0, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"CREATE TABLE {table}")
    return connection


def measure(seconds: float, bound: float, rate: float, rounds: int) -> dict[int, Measured]:
    """What steps of each size cost, and of the chosen one."""
    with TemporaryDirectory() as folder:
        world = World(Path(folder), bound, rate)
        with Project.open(world.folder) as project:
            project.setup()
            each_round, parts = project._drivers.run.round, project._warehouse
            sized = Sized(parts.catalog, parts.views)
            object.__setattr__(each_round, "batches", sized)
            writer = threading.Thread(target=world.write)
            writer.start()
            try:
                found = {size: Measured() for size in (*SIZES, CHOSEN)}
                # The first steps of a process are slower than all others; the chosen one learns meanwhile.
                for size in (*SIZES[:2], CHOSEN):
                    _run(project, sized, size, Measured(), 1.5 * bound)
                for _ in range(rounds):
                    for size, measured in found.items():
                        _run(project, sized, size, measured, seconds / rounds)
            finally:
                world.stop.set()
                writer.join()
            project.run(once=True)
            shown = {tuple(row) for row in project.read("by_state").collect()}
            assert shown == world.expected(), "the view is not what its sources say"
    return found


def _run(project: Project, sized: Sized, size: int, measured: Measured, seconds: float) -> None:
    """Rounds as `run` makes them; they begin with a view that is up to date."""
    catalog = project._warehouse.catalog
    project.run(once=True)
    sized.size, sized.measured = size, measured
    before, shown = catalog.works.lookups("by_state"), sized._shown
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        busy = project._drivers.run.round.run().busy
        if sized._shown > shown:
            measured.ages += _ages(catalog, shown, sized._shown)
            shown = sized._shown
        if not busy:
            time.sleep(POLL_SECONDS)
    for each in catalog.works.lookups("by_state"):
        known = next((one for one in before if one.tables == each.tables), None)
        measured.lookups += each.number - (known.number if known else 0)
        measured.lookup_seconds += each.seconds - (known.seconds if known else 0.0)


def _ages(catalog: Catalog, after: int, upto: int) -> list[float]:
    """How old the transactions were when the view showed them."""
    shown_at = catalog.observations.refreshed_at("by_state", upto) or time.time()
    times = catalog.observations.commit_times(range(after + 1, upto + 1))
    return [shown_at - each for each in times.values()]


def page(found: Mapping[int, Measured], bound: float, rate: float) -> list[str]:
    """The table, and what it says of the choice."""
    rows, costs, ages = [], {}, {}
    for size, each in found.items():
        if len(each.ages) < 2 or not each.transactions:
            continue
        costs[size] = 1000 * each.seconds / each.transactions
        ages[size] = quantiles(each.ages, n=100)[98]
        rows.append(
            f"| {size or f'chosen for {bound:g} s'} | {each.steps} | {each.transactions / each.steps:.1f} "
            f"| {costs[size]:.1f} ms | {each.lookups / each.transactions:.3f} "
            f"| {1000 * each.lookup_seconds / max(1, each.lookups):.2f} ms "
            f"| {median(each.ages):.1f} s | {ages[size]:.1f} s |"
        )
    lines = [
        "Written by `python benchmarks/batch_size.py --write docs/reference/batch-size.md`. One project,",
        f"one join of two SQLite databases, {rate:g} transactions a second; the sizes take turns in one run.",
        "",
        "| transactions in a step | steps | had | cost per transaction | look-ups per transaction "
        "| one look-up | median age when shown | 99 % |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
        *rows,
        "",
    ]
    kept = {size: cost for size, cost in costs.items() if size != CHOSEN and ages[size] <= bound}
    if kept and CHOSEN in costs:
        best = min(kept, key=lambda size: kept[size])
        lines += [
            f"Of the fixed sizes that show 99 % of the transactions within {bound:g} s, {best} is the",
            f"cheapest. The chosen steps cost {costs[CHOSEN] / kept[best]:.2f} of that,",
            f"and {costs[CHOSEN] / costs[min(kept)]:.2f} of steps of {min(kept)}.",
        ]
    return lines


class BusySource:
    """Customers in a PostgreSQL that is busy, sales in SQLite, and a view over both for each width."""

    def __init__(self, folder: Path, server: PostgresServer, lookup_seconds: float) -> None:
        self.dsn = server.create_database("crm")
        with psycopg.connect(self.dsn) as connection:
            connection.execute("CREATE TABLE customer (cust_id INT PRIMARY KEY, state TEXT)")
            connection.execute(
                "INSERT INTO customer SELECT n, 'state ' || n % 50 FROM generate_series(0, 199999) n"
            )
            connection.execute("CREATE TABLE account (cust_id INT PRIMARY KEY, seen INT)")
            connection.execute("INSERT INTO account SELECT n, 0 FROM generate_series(0, 199999) n")
        columns = "sale_id INTEGER PRIMARY KEY, cust_id INT, amount INT"
        self.shop = _database(folder / "shop.db", f"sales ({columns})")
        (folder / "views").mkdir()
        (folder / "rollview.yml").write_text(
            f"name: busy\nspark: {{master: 'local[2]'}}\nstep_seconds: 600\n"
            f"lookup_seconds: {lookup_seconds:g}\nsources:\n  shop: {{type: sqlite, path: ./shop.db}}\n"
            f'  crm: {{type: postgres, dsn: "{self.dsn}"}}\n'
        )
        for width in WIDTHS:
            said = f"TBLPROPERTIES ('rollview.interval.s' = '{width}')"
            text = f"CREATE MATERIALIZED VIEW by_{width} {said} AS {QUERY.format('shop.', 'crm.')}"
            (folder / "views" / f"by_{width}.sql").write_text(text)
        self.chance = random.Random(2)
        self.stop = threading.Event()
        self.taken: list[float] = []

    def commit(self, number: int) -> None:
        """So many sales, each a transaction."""
        for _ in range(number):
            row = (self.chance.randrange(200_000), self.chance.randint(1, 9))
            self.shop.execute("INSERT INTO sales (cust_id, amount) VALUES (?, ?)", row)

    def update(self, seed: int) -> None:
        """Updates accounts, one after the other; notes how long each update takes."""
        chance = random.Random(seed)
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            while not self.stop.is_set():
                began = time.monotonic()
                row = (chance.randrange(200_000),)
                connection.execute("UPDATE account SET seen = seen + 1 WHERE cust_id = %s", row)
                self.taken.append(time.monotonic() - began)
                time.sleep(0.01)


def measure_busy(lookup_seconds: float, rounds: int) -> list[str]:
    """A row of the table for each width."""
    server = PostgresServer()
    server.start()
    found: dict[str, list[tuple[float, float, int, list[float]]]] = {width: [] for width in WIDTHS}
    try:
        with TemporaryDirectory() as name:
            busy = BusySource(Path(name), server, lookup_seconds)
            with Project.open(name) as project:
                project.setup()
                updaters = [threading.Thread(target=busy.update, args=(n,)) for n in range(UPDATERS)]
                for each in updaters:
                    each.start()
                try:
                    # The first steps of a process are slower than all others, and `auto` knows nothing yet.
                    for _ in range(3):
                        busy.commit(BACKLOG // 10)
                        project.refresh()
                    for _ in range(rounds):
                        busy.commit(BACKLOG)
                        project.capture()
                        for width in WIDTHS:
                            found[width].append(_propagated(project, busy, width))
                finally:
                    busy.stop.set()
                    for each in updaters:
                        each.join()
                project.refresh()
                shown = {w: {tuple(row) for row in project.read(f"by_{w}").collect()} for w in WIDTHS}
                assert all(each == shown["auto"] for each in shown.values()), "views of one query differ"
    finally:
        server.remove()
    return busy_page(found, lookup_seconds)


def _propagated(project: Project, busy: BusySource, width: str) -> tuple[float, float, int, list[float]]:
    """Seconds of look-ups, of propagation, the number of look-ups, and what updates took meanwhile."""
    works, first = project._warehouse.catalog.works, len(busy.taken)
    before, began = works.lookups(f"by_{width}"), time.monotonic()
    project.propagate(f"by_{width}")
    seconds = time.monotonic() - began
    of_crm = [each for each in works.lookups(f"by_{width}") if each.tables == ("crm.customer",)]
    known = [each for each in before if each.tables == ("crm.customer",)]
    number = sum(each.number for each in of_crm) - sum(each.number for each in known)
    spent = sum(each.seconds for each in of_crm) - sum(each.seconds for each in known)
    return spent, seconds, number, busy.taken[first:]


def busy_page(
    found: Mapping[str, list[tuple[float, float, int, list[float]]]], lookup_seconds: float
) -> list[str]:
    """The table."""
    rows = []
    for width, each in found.items():
        number = sum(one[2] for one in each)
        taken = [update for one in each for update in one[3]]
        late = quantiles(taken, n=100)[98] if len(taken) > 1 else 0.0
        one_lookup = 1000 * sum(one[0] for one in each) / max(1, number)
        seconds = sum(one[1] for one in each) / len(each)
        rows.append(
            f"| {width} | {number / len(each):.0f} | {one_lookup:.0f} ms | {seconds:.2f} s "
            f"| {1000 * late:.1f} ms |"
        )
    return [
        "Written by `python benchmarks/batch_size.py --busy --write docs/reference/batch-size.md`.",
        f"{BACKLOG:,} sales, each a transaction, join customers in a PostgreSQL where {UPDATERS}",
        f"programs update another table; `lookup_seconds` is {lookup_seconds:g}. The widths take turns in",
        "one run.",
        "",
        "| transactions in an interval | look-ups | one look-up | the backlog | an update meanwhile, 99 % |",
        "|---|---:|---:|---:|---:|",
        *rows,
    ]


def main() -> None:
    """Measures, prints the table, and writes the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=40.0, help="for each size")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--bound", type=float, default=10.0, help="seconds")
    parser.add_argument("--rate", type=float, default=10.0, help="transactions a second")
    parser.add_argument("--busy", action="store_true", help="measure widths of intervals instead")
    parser.add_argument("--lookup-seconds", type=float, default=0.05)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    if options.busy:
        lines = measure_busy(options.lookup_seconds, options.rounds)
    else:
        found = measure(options.seconds, options.bound, options.rate, options.rounds)
        lines = page(found, options.bound, options.rate)
    print("\n".join(lines))
    if options.write is not None:
        before, _, behind = options.write.read_text(encoding="utf-8").partition(BUSY)
        text = "\n".join(lines) + "\n"
        before, behind = (before, text) if options.busy else (HEAD + text, behind)
        options.write.write_text(before + (BUSY + behind if behind else ""), encoding="utf-8")


if __name__ == "__main__":
    main()
