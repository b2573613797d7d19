"""A project that is killed at every moment of an action in turn, and what must hold after each recovery."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from crashing import Died, Executioner
from pyspark.sql import SparkSession
from shop import Shop, shown

from rollview.service.project import Project

VIEWS = {
    "sales_by_state": """SELECT c.state, count(*) AS n, sum(s.amount) AS total FROM shop.sales s
        JOIN crm.customer c ON s.cust_id = c.cust_id GROUP BY c.state""",
    "states_of_size": "SELECT n, count(*) AS states FROM sales_by_state GROUP BY n",
}

DEEP_VIEWS = {
    "sales_by_state": VIEWS["sales_by_state"],
    "states_of_size": f"SELECT n, count(*) AS states FROM ({VIEWS['sales_by_state']}) t GROUP BY n",
}
"""The same in one view: the inner query is a stage."""


class Bench:
    """One project that is killed again and again."""

    def __init__(
        self,
        folder: Path,
        spark: SparkSession,
        executioner: Executioner,
        views: dict[str, str] | None = None,
    ) -> None:
        self.spark = spark
        self.executioner = executioner
        self.shop = Shop(folder, VIEWS if views is None else views)
        for _ in range(12):
            self.shop.transact()
        self.shop.begin()

    def do(self, action: Callable[[Project], object], kill_at: int | None = None) -> bool:
        """Whether the action came to its end; what dies, dies silently."""
        project = Project.open(self.shop.folder, self.spark)
        self.executioner.kill_at(kill_at)
        try:
            action(project)
            return True
        except Died:
            return False
        finally:
            with suppress(Died):
                project.close()

    def every_crash(
        self,
        action: Callable[[Project], object],
        *expected: str,
        first: Callable[[Project], object] | None = None,
    ) -> Iterator[str]:
        """Kills the action at each of its moments in turn; the caller recovers and checks.

        What comes `first` each time is not killed. How many moments there are depends a little on the data,
        so it ends when the action has outlived two. Deaths at the expected places must have been among them.
        """
        moment, outlived, places = 0, 0, []
        while outlived < 2:
            self.change_every_source()
            if first is not None:
                assert self.do(first)
            died = not self.do(action, moment)
            place = f"moment {moment}, {self.executioner.place}"
            self.executioner.revive()
            moment, outlived = moment + 1, 0 if died else outlived + 1
            if died:
                places.append(place)
                yield place
        for wanted in expected:
            assert any(wanted in place for place in places), (wanted, places)

    def change_every_source(self) -> None:
        """Transactions until every database has a new one in a table that is captured."""
        before = {name: len(states) for name, states in self.shop.states.items()}
        while any(len(self.shop.states[name]) == number for name, number in before.items()):
            self.shop.transact()

    def check(self, place: str, prepare: Callable[[Project], object] | None = None) -> None:
        """A new process goes on; then everything is as if nothing had happened."""
        shop = self.shop
        with Project.open(shop.folder, self.spark) as project:
            if prepare is not None:
                prepare(project)
            project.run(once=True)
            status = project.status()
            last = status.last_csn
            assert status.unfinished == (), place
            assert {view.name for view in status.views} == set(shop.views), place
            shop.match(project)
            for view in status.views:
                assert view.materialized == last, place
                assert shown(project, view.name) == shop.expected(project, view.name, last), (place, view)
                condensed = project._warehouse.catalog.condensed(view.name)
                older = (view.oldest + last) // 2
                while any(each.after < older < each.upto for each in condensed):
                    older -= 1
                if older < last:
                    at_that_time = shop.expected(project, view.name, older)
                    assert shown(project, view.name, older) == at_that_time, (place, view, older)
