"""The script of `rollview demo`: every number that it prints is measured while it runs."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rollview.demo import demo_writers
from rollview.demo.starter_project import (
    CRM,
    PROJECT_FILE,
    SHOP_SCHEMA,
    VIEWS,
    fill_in,
    write_customers,
    write_database,
)
from rollview.errors import RollviewError
from rollview.observe.status import Status
from rollview.project.project import Project
from rollview.sources.postgres import EmbeddedPostgres
from rollview.upkeep.verify import Verification

SALES, CUSTOMERS = 2_000, 200
_WRITERS = (("sell", "1"), ("sell", "2"), ("move", "3"))
_WHILE_SECONDS = 2.0

_INTRODUCTION = """\
[bold]Two databases, two views, and three programs that never stop writing[/bold]

A SQLite file has {sales:,} sales, a PostgreSQL has {customers} customers; neither knows of the other, and no
transaction spans both. [bold]sale_lines[/bold] joins them, [bold]sales_by_state[/bold] sums up the same join
by state. The state of a sale is in the other database: whenever a customer moves, old sales move to another
state.
"""
_SETUP = """\
[bold]1. The views are loaded while everybody writes[/bold]

Nothing was locked: each table was read at whatever version it showed, and rolled to a common version with the
change log, so that each view starts in a state that it really had: {moments}.
"""
_FOLLOW = """\
[bold]2. The views follow[/bold]

Every transaction of both databases has its place in one order, its csn (commit sequence number). The delta of
a view says what each single transaction did to the view; the stored tables have been rolled along it.
"""
_ROLL = """\
[bold]3. Both views are refreshed to the same point in time[/bold]

The writers kept writing. Both views were rolled to exactly csn {csn}, somewhere in the middle: a state that
no database shows any more. If one view were off by a single transaction, the totals would not agree:
"""
_BACK = """\
[bold]4. The same views are read as of an earlier point in time[/bold]

`rollview read VIEW --as-of T` rolls back just as easily, for one answer, and leaves the stored tables as they
are:
"""
_LATEST = """\
[bold]5. The views are refreshed to the latest state and verified[/bold]

The writers have stopped after {written:,} transactions, the first of them before capture was installed. Both
views were rolled to the last one, recomputed by Spark from the databases, and compared row by row:
"""


class Progress(Protocol):
    """The progress line of the command."""

    def __call__(self, what: str) -> None:
        """Shows what is being done."""

    def aside(self) -> AbstractContextManager[None]:
        """Makes way for lines of the script."""


class OpenProject(Protocol):
    """A project as a command has opened it."""

    @property
    def project(self) -> Project:
        """Its API."""

    @property
    def progress(self) -> Progress:
        """Its progress line."""


@dataclass(frozen=True)
class CommandLine:
    """The part of the command line that the script uses: opening and printing as commands do."""

    console: Console
    open_project: Callable[[Path], AbstractContextManager[OpenProject]]
    print_status: Callable[[Console, Status], None]
    print_verification: Callable[[Console, Verification], None]


def run_demo(command_line: CommandLine, folder: Path) -> dict[str, Any]:
    """Runs the script in a folder; returns what was measured."""
    console = command_line.console
    server = EmbeddedPostgres(folder / CRM)
    crm_address = _write_project(folder, server)
    _print_text(console, _INTRODUCTION.format(sales=SALES, customers=CUSTOMERS))
    with command_line.open_project(folder) as at:
        started = time.monotonic()
        at.project.spark.range(1).count()
        facts: dict[str, Any] = {"spark_seconds": round(time.monotonic() - started, 1)}
        started = time.monotonic()
        with _writers({"sell": str(folder / "shop.db"), "move": crm_address}) as writers:
            _load(console, at, facts)
            _follow(command_line, at)
            _roll(console, at, facts)
            _read_back(console, at, facts)
            facts["transactions_written"] = _finish(writers)
        _latest(command_line, at, facts)
        at.progress("removing everything that setup installed")
        at.project.remove()
        facts["seconds"] = round(time.monotonic() - started, 1)
    console.print(f"\n{facts['seconds']:.0f} seconds, after {facts['spark_seconds']:.0f} to start Spark.")
    return facts


def _print_text(console: Console, text: str) -> None:
    """Paragraphs, broken into lines where this terminal ends, or at 100 columns."""
    for paragraph in text.strip().split("\n\n"):
        console.print(" ".join(paragraph.splitlines()), width=min(100, console.width))
        console.print()


def _write_project(folder: Path, server: EmbeddedPostgres) -> str:
    """Writes the project and starts the customers' server; its address."""
    chance = random.Random(0)
    (folder / "views").mkdir()
    (folder / "rollview.yml").write_text(fill_in(PROJECT_FILE), encoding="utf-8")
    for name in ("sale_lines", "sales_by_state"):
        (folder / "views" / f"{name}.sql").write_text(VIEWS[name], encoding="utf-8")
    sales = tuple(
        (number, chance.randint(1, CUSTOMERS), chance.randint(100, 50_000) / 100)
        for number in range(1, SALES + 1)
    )
    customers = tuple(
        (number, f"customer {number}", chance.choice(demo_writers.STATES))
        for number in range(1, CUSTOMERS + 1)
    )
    write_database(folder / "shop.db", SHOP_SCHEMA, "INSERT INTO sales VALUES (?, ?, ?)", sales)
    address = server.start()
    write_customers(address, customers)
    return address


@contextmanager
def _writers(addresses: dict[str, str]) -> Iterator[list[subprocess.Popen[str]]]:
    """Programs that write until the block ends."""
    started: list[subprocess.Popen[str]] = []
    try:
        for kind, seed in _WRITERS:
            command = [sys.executable, demo_writers.__file__, kind, seed]
            # Not on the command line, which everybody can read: the address has a password.
            environment = {**os.environ, demo_writers.ADDRESS_VARIABLE: addresses[kind]}
            started.append(
                subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
                )
            )
        yield started
    finally:
        for writer in started:
            if writer.poll() is None:
                writer.kill()
            writer.communicate()


def _finish(writers: list[subprocess.Popen[str]]) -> int:
    """Ends the writers' input; returns how many transactions they committed."""
    counts = [writer.communicate("\n")[0] for writer in writers]
    if any(writer.returncode for writer in writers):
        raise RollviewError("a writer of the demo failed", subject="demo")
    return sum(int(each) for each in counts)


def _load(console: Console, at: OpenProject, facts: dict[str, Any]) -> None:
    started = time.monotonic()
    at.project.setup()
    facts["setup_seconds"] = round(time.monotonic() - started, 1)
    facts["loaded_csn"] = {view.name: view.materialized for view in at.project.status().views}
    moments = " and ".join(f"{name} at csn {csn}" for name, csn in facts["loaded_csn"].items())
    with at.progress.aside():
        _print_text(console, _SETUP.format(moments=moments))


def _follow(command_line: CommandLine, at: OpenProject) -> None:
    # Twice: the first time catches up with what was written during the load.
    at.project.refresh()
    at.project.refresh()
    status = at.project.status()
    with at.progress.aside():
        _print_text(command_line.console, _FOLLOW)
        command_line.print_status(command_line.console, status)
        command_line.console.print()


def _roll(console: Console, at: OpenProject, facts: dict[str, Any]) -> None:
    shown = min(view.materialized for view in at.project.status().views)
    at.progress("letting the writers write")
    time.sleep(_WHILE_SECONDS)
    csn = facts["chosen_csn"] = (shown + at.project.capture().csn) // 2
    at.project.refresh("sale_lines", "sales_by_state", to=f"csn:{csn}")
    facts["at_chosen_csn"] = _totals(at, None)
    with at.progress.aside():
        _print_text(console, _ROLL.format(csn=csn))
        _print_totals(console, {csn: facts["at_chosen_csn"]})


def _read_back(console: Console, at: OpenProject, facts: dict[str, Any]) -> None:
    oldest = max(view.oldest for view in at.project.status().views)
    csn = facts["earlier_csn"] = (oldest + facts["chosen_csn"]) // 2
    at.progress(f"reading as of csn {csn}")
    facts["at_earlier_csn"] = _totals(at, csn)
    with at.progress.aside():
        _print_text(console, _BACK)
        _print_totals(console, {csn: facts["at_earlier_csn"], facts["chosen_csn"]: facts["at_chosen_csn"]})


def _latest(command_line: CommandLine, at: OpenProject, facts: dict[str, Any]) -> None:
    facts["latest_csn"] = at.project.refresh().csn
    at.progress("verifying")
    verdicts = at.project.verify()
    facts["at_latest_csn"] = _totals(at, None)
    facts["verified"] = all(verdict.is_right for verdict in verdicts)
    with at.progress.aside():
        _print_text(command_line.console, _LATEST.format(written=facts["transactions_written"]))
        for verdict in verdicts:
            command_line.print_verification(command_line.console, verdict)
    if not facts["verified"]:
        raise RollviewError(
            "a view differs from its recomputation",
            hint="`rollview demo --keep` keeps the folder for inspection",
        )


def _totals(at: OpenProject, csn: int | None) -> dict[str, str]:
    """The number of sales and their total, by each of the two views."""
    joined = (
        at.project.read("sale_lines", csn).selectExpr("count(*) AS n", "sum(amount) AS total").collect()[0]
    )
    grouped = (
        at.project.read("sales_by_state", csn).selectExpr("sum(n) AS n", "sum(total) AS total").collect()[0]
    )
    if tuple(joined) != tuple(grouped):
        raise RollviewError(f"the views disagree: {tuple(joined)} and {tuple(grouped)}", subject="demo")
    return {"sales": str(joined["n"]), "total": str(joined["total"])}


def _print_totals(console: Console, by_csn: dict[int, dict[str, str]]) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for title in (
        "csn",
        "rows of sale_lines",
        "sum of its amounts",
        "sum of n by state",
        "sum of total by state",
    ):
        table.add_column(title, justify="right")
    for csn, totals in by_csn.items():
        sales, total = escape(totals["sales"]), escape(totals["total"])
        table.add_row(str(csn), sales, total, sales, total)
    console.print(table, "")
