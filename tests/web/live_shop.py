"""A shop at work: its views are maintained in this process, and a program writes to it on request."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from page_requests import Page, served
from shop import MORE_VIEWS, VIEWS, Shop

from rollview.maintain.retry import Stop
from rollview.project.project import Project
from rollview.web.address import Access

SHOWN = {**VIEWS, "states_of_size": MORE_VIEWS["states_of_size"]}


@dataclass(frozen=True)
class LiveShop:
    """The shop, its project and the page of that."""

    shop: Shop
    project: Project
    page: Page

    def write(self, transactions: int = 1) -> None:
        """Some random transactions."""
        for _ in range(transactions):
            self.shop.transact()

    def sell(self, sale: int, customer: int = 1, amount: int = 7) -> None:
        """A sale that every view shows."""
        row = (sale, customer, 1, amount)
        self.shop.connections["shop"].execute("INSERT OR REPLACE INTO sales VALUES (?, ?, ?, ?)", row)


@contextmanager
def at_work(folder: Path, spark: Any) -> Iterator[LiveShop]:
    """Sets a shop up and maintains it while the context lasts."""
    shop = Shop(folder, SHOWN)
    for connection, rows in (
        ("crm", [("customer", (each, "abc"[each % 3], "x")) for each in range(1, 7)]),
        ("shop", [("product", (each, "abc"[each % 3], None)) for each in range(1, 6)]),
    ):
        for table, row in rows:
            marks = ",".join("?" * len(row))
            shop.connections[connection].execute(f"INSERT INTO {table} VALUES ({marks})", row)
    for _ in range(12):
        shop.transact()
    stop, failed = Stop(), list[BaseException]()
    with Project.open(folder, spark) as project:
        project.setup()

        def run() -> None:
            try:
                project.run(stop=stop)
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=run, name="run")
        thread.start()
        clone = project.clone()
        try:
            with served(clone, Access(allows_actions=True), at_work=project) as page:
                yield LiveShop(shop, project, page)
        finally:
            stop.now()
            thread.join(120)
            clone.close()
            shop.close()
    assert not failed, failed
