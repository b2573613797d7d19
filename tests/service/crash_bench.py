"""A project that is killed at every moment of an action in turn, and what must hold after each recovery."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from crashing import Died, Executioner
from pyspark.sql import SparkSession
from shop import Shop, shown

from rollview.project.project import Project

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

STATEFUL_VIEWS = {
    "outer join": """SELECT c.cust_id, c.state, s.amount FROM crm.customer c
        LEFT JOIN shop.sales s ON c.cust_id = s.cust_id""",
    "semi join": """SELECT cust_id, state FROM crm.customer c
        WHERE NOT EXISTS (SELECT 1 FROM shop.sales s WHERE s.cust_id = c.cust_id AND s.amount > 2)""",
    "values": """SELECT c.state, min(s.amount) AS lo, count(DISTINCT s.product_id) AS kinds,
            sum(CAST(s.amount AS DOUBLE) / 4) AS total
        FROM shop.sales s JOIN crm.customer c ON s.cust_id = c.cust_id GROUP BY c.state""",
    "distinct rows": "SELECT DISTINCT c.state, s.product_id FROM shop.sales s, crm.customer c",
    "set operation": "SELECT cust_id AS id FROM crm.customer EXCEPT ALL SELECT cust_id FROM shop.sales",
    "window": """SELECT s.sale_id, c.state, rank() OVER (PARTITION BY c.state ORDER BY s.amount) AS place
        FROM shop.sales s JOIN crm.customer c ON s.cust_id = c.cust_id""",
    "first rows": """SELECT s.sale_id, c.state, s.amount FROM shop.sales s
            JOIN crm.customer c ON s.cust_id = c.cust_id
        QUALIFY row_number() OVER (PARTITION BY c.state ORDER BY s.amount DESC, s.sale_id) <= 2""",
    "recomputed part": """WITH RECURSIVE r AS (
            SELECT product_id AS id, product_id AS top, 0 AS depth FROM shop.product
            UNION ALL SELECT p.product_id, r.top, r.depth + 1 FROM shop.product p
                JOIN r ON p.parent_id = r.id WHERE r.depth < 2)
        SELECT r.top, count(*) AS n FROM r JOIN crm.customer c ON c.cust_id = r.id GROUP BY r.top""",
}
"""One of each operator that stores a state, over both databases."""


_OUTLIVED = 4


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
        """Kills the action at each of its moments in turn; the caller recovers and checks, as he does after
        an action that came to its end.

        What comes `first` each time is not killed. How many moments there are depends a little on the data,
        so it ends when the action has outlived the same moment several times. Deaths at the expected places
        must have been among them; tables are written side by side, so that the number of a moment may miss
        one of them each time, and then the action is killed at that place by name.
        """
        moment, outlived, deaths = 0, 0, list[str]()

        def dies(target: int | str) -> bool:
            self.change_every_source()
            if first is not None:
                assert self.do(first)
            died = not self.do(action, target)
            if died:
                deaths.append(self.executioner.place)
            self.executioner.revive()
            return died

        def last() -> str:
            return f"{len(deaths)} deaths, the last {deaths[-1]}" if deaths else "no death yet"

        while outlived < _OUTLIVED:
            moment, outlived = (moment + 1, 0) if dies(moment) else (moment, outlived + 1)
            yield last()
        for wanted in expected:
            for _ in range(_OUTLIVED):
                if not any(wanted in place for place in deaths):
                    dies(wanted)
                    yield last()
            assert any(wanted in place for place in deaths), (wanted, deaths)

    def change_every_source(self) -> None:
        """Transactions until every database has a new one in a table that is captured."""
        before = {name: len(states) for name, states in self.shop.states.items()}
        while any(len(self.shop.states[name]) == number for name, number in before.items()):
            self.shop.transact()

    def check(self, place: str, prepare: Callable[[Project], object] | None = None) -> None:
        """A new process continues; then everything is as if nothing had happened."""
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
                condensed = project._warehouse.catalog.views.condensed(view.name)
                older = (view.oldest + last) // 2
                while any(each.after < older < each.upto for each in condensed):
                    older -= 1
                if older < last:
                    at_that_time = shop.expected(project, view.name, older)
                    assert shown(project, view.name, older) == at_that_time, (place, view, older)
