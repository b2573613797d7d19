"""Where everything stands is computed once: all that show it show the same numbers of the same views.

One project with a view that lags, one whose schedule is not due, one whose schedule is overdue, one that is
stopped, one that waits for another source, and one that shows everything.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner
from page_requests import served
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from watched_project import add_views, catalog_of, commit, write_project

from rollview.catalog import Fault, Materialized, Waiting
from rollview.catalog.step_bounds import ApplyStep, CsnRange
from rollview.cli import main
from rollview.cli.run import LiveRun
from rollview.cli.status import print_status
from rollview.monitoring import Monitor, metrics_text
from rollview.project.project import Project

SALES, CUSTOMERS = "SELECT sale_id, amount FROM shop.sales", "SELECT cust_id, state FROM crm.customer"
AGO = 7510.0
"""Between two round numbers, so that nothing that is shown changes within a test."""


class Fact(NamedTuple):
    """What is known of a view."""

    state: str
    csn: int
    behind: int
    lags: bool
    late: bool


FACTS = {
    "fresh": Fact("running", 2, 0, lags=False, late=False),
    "lagging": Fact("catching up", 0, 2, lags=True, late=True),
    "not_due": Fact("running", 0, 2, lags=True, late=False),
    "overdue": Fact("catching up", 0, 2, lags=True, late=True),
    "halted": Fact("stopped", 0, 2, lags=True, late=True),
    "waiting": Fact("waiting for shop", 0, 2, lags=True, late=True),
}


def _text(name: str, query: str, schedule: str = "") -> str:
    properties = f" TBLPROPERTIES ('rollview.schedule' = '{schedule}')" if schedule else ""
    return f"CREATE MATERIALIZED VIEW {name}{properties} AS {query}"


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """Two transactions were committed two hours ago; only one view shows them."""
    with Project.open(write_project(tmp_path / "watched")) as found:
        catalog, when = catalog_of(found), time.time() - AGO
        views = {name: _text(name, SALES) for name in ("fresh", "lagging", "halted")}
        views["not_due"] = _text("not_due", SALES, "every 36500d")
        views["overdue"] = _text("overdue", SALES, "every 1h")
        views["waiting"] = _text("waiting", CUSTOMERS)
        add_views(catalog, {name: views[name] for name in FACTS})
        commit(catalog, [when])
        commit(catalog, [when], "crm.customer")
        with catalog.lease("apply") as lease:
            step = catalog.steps.begin(lease, "fresh", ApplyStep({"fresh": CsnRange(0, 2)}, "test"))
            catalog.steps.finish(lease, step, Materialized("fresh", 2, 1, 0))
        catalog.faults.note(Fault("view", "halted", "EvaluationError", "division by zero"))
        catalog.global_transactions.wait_for([Waiting("t-1", ("crm",), ("shop",))])
        yield found


def _lag(fact: Fact) -> object:
    return pytest.approx(AGO, abs=60) if fact.lags else 0.0


def test_as_json(project: Project) -> None:
    done = CliRunner().invoke(main, ["status", "--json", "--project", str(project._warehouse.project.path)])
    assert done.exit_code == 0, done.output
    shown = {each["name"]: each for each in json.loads(done.stdout)["views"]}
    for name, fact in FACTS.items():
        view = shown[name]
        numbers = (view["state"], view["materialized"], view["behind_csn"], view["late"])
        assert numbers == (fact.state, fact.csn, fact.behind, fact.late), name
        assert view["lag_seconds"] == _lag(fact), name


def test_in_the_tables_of_status(project: Project) -> None:
    page = StringIO()
    print_status(Console(file=page, width=160), project.status())
    for name, fact in FACTS.items():
        (line,) = re.findall(rf"^{name} {{2,}}({fact.state} .*)$", page.getvalue(), re.MULTILINE)
        csn, _, behind, lag = line.removeprefix(fact.state).split()[:4]
        assert (int(csn), int(behind)) == (fact.csn, fact.behind), name
        assert float(lag.replace(",", "")) == _lag(fact), name


def test_in_the_table_of_run(project: Project) -> None:
    live, page = LiveRun("watched"), StringIO()
    live.show(project.observe.state())
    Console(file=page, width=160).print(live.drawn(60))
    for name, fact in FACTS.items():
        state = "stopped: division by zero" if name == "halted" else fact.state
        (line,) = re.findall(rf"^{name} {{2,}}({state} .*)$", page.getvalue(), re.MULTILINE)
        csn, _, lag = line.removeprefix(state).split(maxsplit=2)
        assert int(csn) == fact.csn, name
        assert lag.strip() == ("2 h 5 min" if fact.lags else "0 s"), name


def test_in_a_notebook(project: Project) -> None:
    for text in (project._repr_html_(), project.status()._repr_html_()):
        rows = _rows(text)
        for name, fact in FACTS.items():
            state, csn, _, lag = rows[name][:4]
            assert (state, int(csn)) == (fact.state, fact.csn), name
            assert float(lag.removesuffix(" s").replace(",", "")) == _lag(fact), name


def test_as_metrics(project: Project) -> None:
    shown = {
        (sample.name.removeprefix("rollview_view_"), sample.labels["view"]): sample.value
        for family in text_string_to_metric_families(metrics_text(Monitor(project)).decode())
        for sample in family.samples
        if sample.name.startswith("rollview_view_")
    }
    for name, fact in FACTS.items():
        assert (shown["csn", name], shown["lag_csn", name]) == (fact.csn, fact.behind), name
        assert shown["lag_seconds", name] == _lag(fact), name
        assert shown["late", name] == fact.late, name
        assert shown["halted", name] == (name == "halted"), name
        assert shown["waiting", name] == (name == "waiting"), name


def test_on_the_page(project: Project) -> None:
    with served(project) as page:
        first = page.get("/").text
        rows = _rows(first[first.index('id="views"') :])
        for name, fact in FACTS.items():
            health, csn, _, lag = rows[name][:4]
            assert health.startswith(f"{fact.state} "), name
            assert (int(csn), lag) == (fact.csn, "2.1 h" if fact.lags else "0 s"), name
            own = page.get(f"/views/{name}").text
            assert f"<b>{lag}</b>" in own, name
            assert f"<dd>{fact.behind} transaction{'s' * (fact.behind != 1)} of all sources" in own, name
        line = re.search('<div id="standing".*?</div>', first, re.DOTALL)
        # A schedule that is not due is no reason to worry anybody.
        assert line is not None and "2 views of 6 are behind" in line[0]


class _Table(HTMLParser):
    """The cells of all rows."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self._is_inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, _: list[tuple[str, str | None]]) -> None:
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th") and self.rows:
            self.rows[-1].append("")
            self._is_inside = True

    def handle_endtag(self, tag: str) -> None:
        self._is_inside = self._is_inside and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self._is_inside:
            self.rows[-1][-1] += data


def _rows(text: str) -> dict[str, list[str]]:
    """The cells of a table by the first one of each row."""
    return {row[0].strip(): [cell.strip() for cell in row[1:]] for row in _Table(text).rows if row}
