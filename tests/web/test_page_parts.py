"""What pages are made of: lags from the record of refreshes, places in pictures, rows at any csn."""

from __future__ import annotations

import re
import sqlite3
import time
from collections import Counter
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest
from page_requests import served
from paper_project import Size, fill, project_file

from rollview.catalog import Catalog, VerifyRecord
from rollview.observe import times
from rollview.observe.lag_chart import lag_chart, sparkline
from rollview.observe.lags import LagSeries, Trend, trend_of
from rollview.observe.lineage import Lineage, LineageEdge, LineageNode
from rollview.observe.rolling_chart import rolling_chart, shown_range
from rollview.observe.rolling_picture import Lane, LaneInterval, RollingPicture
from rollview.project.project import Project
from rollview.web import formats
from rollview.web.attention import FirstLine, first_line
from rollview.web.lineage_chart import around, lineage_chart
from rollview.web.row_history import Change, Window, marked


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A project without anything in it."""
    return project_file(tmp_path / "paper")


def _sql(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path.parent / "lake" / "catalog.db")) as database:
        for statement in statements:
            database.execute(statement)
        database.commit()


def _series(now: float, *lags: float | None) -> LagSeries:
    return LagSeries("v", now, tuple(lags))


def test_where_a_lag_is_going_and_since_when() -> None:
    now = 6000.0 + 45  # in the minute that ends at 6060
    assert trend_of(_series(now, 1.0, 0.5, 40.0, 90.0), 130.0, now) == Trend("falling back", 5940.0)
    assert trend_of(_series(now, 1.0, 400.0, 300.0, 200.0), 150.0, now) == Trend("catching up", 5940.0)
    assert trend_of(_series(now, 300.0, 100.0, 101.0, 100.0), 101.0, now).direction == "steady"
    # Nothing is known of the time before: it was not behind when the first change was committed.
    assert trend_of(_series(now), 113.0, now) == Trend("falling back", now - 113.0)
    assert trend_of(_series(now, None, None, None), 113.0, now) == Trend("falling back", now - 113.0)
    # A minute that has just ended says as much as now.
    assert trend_of(_series(6001.0, 1.0, 50.0, 112.0, 112.5), 113.0, 6001.0).direction == "falling back"


def _line(project: Project) -> FirstLine:
    def lags(names: list[str]) -> dict[str, LagSeries]:
        return {each.view: each for each in project.observe.lags(names)}

    found = project.observe.state()
    return first_line(found, lags, found.at)


def _looked_at(path: Path, *sites: str) -> None:
    """These sources have just been read; the page then knows all that they committed."""
    for site in sites:
        _sql(path, f"UPDATE site SET looked_at = {time.time()} WHERE name = '{site}'")


def test_the_first_line_says_how_far_behind_the_views_are(path: Path) -> None:
    """Also while nothing needs anybody: `up to date` is said of views that are."""
    fill(path, Size(views=4, transactions=200), time.time() - 100)
    _looked_at(path, "shop", "crm")
    with Project.open(path) as project:
        assert _line(project) == FirstLine("fine", "All views are up to date.")
        _sql(path, "UPDATE materialized_view SET materialized_csn = 7")
        found = _line(project)
        assert found.level == "warning" and found.trend == "falling further behind since"
        assert re.fullmatch(r"All 4 views are behind, by up to \S+ (s|min) and 193 transactions", found.text)
        assert found.since is not None and time.time() - found.since < 3600
        with served(project) as page:
            text = page.get("/").text
            assert "All 4 views are behind" in text and "falling further behind since" in text
            assert "up to date.<" not in text and "Nothing waits" not in text
        _sql(path, "INSERT INTO fault VALUES ('view', 'view_001', 'X', 'it broke', 'mend it', 41, 5.0, '[]')")
        assert _line(project).level == "error" and _line(project).text.startswith(
            "1 view of 4 is stopped. 3 views of 4 are behind"
        )


def test_the_first_line_of_views_that_are_nearly_up_to_date(path: Path) -> None:
    """What `run` is about to show is no cause for alarm."""
    fill(path, Size(views=4, transactions=200), time.time() - 0.5)
    with Project.open(path) as project:
        _sql(path, "UPDATE materialized_view SET materialized_csn = 199")
        found = _line(project)
        assert found.level == "fine" and not found.trend
        assert re.fullmatch(r"All views are at most \S+ m?s and 1 transaction behind\.", found.text)


def test_views_that_wait_for_another_source_are_not_called_up_to_date(path: Path) -> None:
    fill(path, Size(views=4, transactions=40))
    with Project.open(path) as project:
        _sql(path, f"INSERT INTO waiting VALUES ('g1', '[\"shop\"]', '[\"crm\"]', {time.time() - 180})")
        found = _line(project)
        assert found.level == "warning"
        assert found.text == (
            "All 4 views are waiting for a part of a global transaction from crm, for 3 min."
        ), found
        _sql(path, "INSERT INTO fault VALUES ('view', 'view_001', 'X', 'it broke', 'mend it', 41, 5.0, '[]')")
        found = _line(project)
        assert found.level == "error"
        assert found.text.startswith("1 view of 4 is stopped. 3 views of 4 are waiting for "), found
        with served(project) as page:
            first = re.search('<div id="standing".*?</div>', page.get("/").text, re.S)
            assert first is not None and "up to date" not in first[0]


def test_the_first_line_when_every_view_is_stopped_or_none_is_set_up(path: Path) -> None:
    """Nothing is said of others where there are none."""
    with Project.open(path) as project:
        assert _line(project).text == "No view is set up."
    fill(path, Size(views=4, transactions=40))
    with Project.open(path) as project:
        for number in range(4):
            row = f"('view', 'view_00{number}', 'X', 'it broke', 'mend it', 41, 5.0, '[]')"
            _sql(path, f"INSERT INTO fault VALUES {row}")
        assert _line(project) == FirstLine("error", "All 4 views are stopped.")


def test_the_first_line_does_not_vouch_for_what_nobody_has_captured(path: Path) -> None:
    """A source that is away, or a `run` that ended: then views show all that is known, and that is old."""
    fill(path, Size(views=4, transactions=40), time.time() - 600)
    _looked_at(path, "shop")
    with Project.open(path) as project:
        found = _line(project)
        assert found.level == "warning"
        assert found.text == (
            "All views show all that was captured, but nothing was captured from crm for 10 min."
        )
        _looked_at(path, "crm")
        assert _line(project) == FirstLine("fine", "All views are up to date.")


def test_the_first_page_does_without_the_last_hour(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(path, Size(views=4, transactions=200), time.time() - 100)
    _sql(path, "UPDATE materialized_view SET materialized_csn = 7")

    def lags(*_: object) -> None:
        raise OSError("the catalog is away")

    with Project.open(path) as project:
        monkeypatch.setattr("rollview.web.watch.Watch.lags", lags)
        with served(project) as page:
            answer = page.get("/")
            assert answer.status == 200 and "All 4 views are behind" in answer.text


def test_the_overview_says_what_status_says(path: Path) -> None:
    fill(path, Size(views=4, transactions=40))
    _sql(
        path,
        "UPDATE materialized_view SET materialized_csn = 30 WHERE name = 'view_000'",
        "UPDATE forward_position SET csn = 33 WHERE view_name = 'view_000' AND relation = 0",
        "INSERT INTO fault VALUES ('view', 'view_001', 'X', 'it broke', 'mend it', 41, 5.0, '[]')",
        "INSERT INTO waiting VALUES ('g1', '[\"shop\"]', '[\"crm\"]', 5.0)",
    )
    with Project.open(path) as project:
        status, quick = project.status(), project.observe.state()
    assert quick.last_csn == status.last_csn == 40
    assert quick.waiting == status.waiting and len(quick.waiting) == 1
    found = {view.name: view for view in status.views}
    for view in quick.views:
        other = found[view.name]
        assert (view.state, view.halted, view.materialized, view.high_water, view.oldest, view.policy) == (
            other.state,
            other.halted,
            other.materialized,
            other.high_water,
            other.oldest,
            other.policy,
        )
        assert view.lag_seconds == pytest.approx(other.lag_seconds, abs=5)
    lines = {view.name: view for view in quick.views}
    assert lines["view_000"].state == "waiting for crm" and lines["view_000"].high_water == 33
    assert lines["view_001"].state == "stopped"
    assert lines["view_003"].tables == ("crm.customer", "shop.sales")
    shop = next(source for source in quick.sources if source.site == "shop")
    assert (shop.hour_transactions, shop.hour_rows) == (30, 60)


def test_lags_of_the_last_hour_come_from_the_catalog(path: Path) -> None:
    """A transaction each second, shown half a second later; then nothing is shown for some minutes."""
    now = time.time() // 60 * 60 + 30
    fill(path, Size(views=1, transactions=1200, refreshes=1000), now=now)
    # The last refresh that is left was seven minutes ago.
    _sql(path, "DELETE FROM refresh WHERE to_csn > 780")
    with Project.open(path) as project:
        (series,) = project.observe.lags(["view_000"])
        (again,) = project.observe.lags(["view_000"])
    assert len(series.seconds) == 60 and series.seconds[:-2] == again.seconds[:-2]
    known = [each for each in series.seconds if each is not None]
    # Refreshes 200 to 780 are kept: some ten minutes, and seven more without any.
    assert 16 <= len(known) <= 19
    assert all(each == pytest.approx(0.5, abs=1.1) for each in known[:8])
    late = known[-6:-1]
    assert all(b - a == pytest.approx(60, abs=1) for a, b in pairwise(late))
    assert 360 < max(known) < 500


def test_lags_are_none_where_nothing_is_known(path: Path) -> None:
    fill(path, Size(views=1, transactions=10, refreshes=0))
    _sql(path, "DELETE FROM refresh")
    with Project.open(path) as project:
        (series,) = project.observe.lags(["view_000"])
    assert set(series.seconds) == {None}
    assert sparkline(series).line == "" and "no refresh" in sparkline(series).summary


def test_the_line_of_lags_has_gaps_and_a_scale() -> None:
    chart = lag_chart(LagSeries("v", 3600.0, (None, 1.0, 2.0, None, 90.0)))
    assert chart.line.count("M") == 2
    assert [tick.label for tick in chart.up] == ["0 s", "30 s", "60 s", "90 s"]
    assert "at most 90 s in the last hour, 90 s in the last minute" in chart.summary


def test_transactions_come_page_by_page_and_table_by_table(path: Path) -> None:
    fill(path, Size(transactions=30))
    with Project.open(path) as project:
        observe = project.observe
        assert [unit.csn for unit in observe.recent(0, 3)] == [30, 29, 28]
        assert [unit.csn for unit in observe.recent(28, 2)] == [27, 26]
        assert [unit.csn for unit in observe.recent(0, 2, "crm.customer")] == [28, 24]
        (unit,) = observe.recent(5, 1)
        assert (unit.parts[0].site, unit.parts[0].version, unit.rows) == ("crm", 1, {"crm.customer": 1})
        detail = observe.transaction(29, 10)
        assert detail is not None and observe.transaction(31, 10) is None
        # There is no lake: what it changed is counted, and the rows are gone.
        assert [(each.table, each.number, each.rows) for each in detail.changes] == [("shop.sales", 2, None)]
        assert {effect.state for effect in detail.effects} == {"shown"}
        shown_at = [effect.shown_at for effect in detail.effects]
        assert all(moment == pytest.approx(detail.unit.commit_time + 0.5) for moment in shown_at)


def test_a_rolling_picture_of_a_catalog(path: Path) -> None:
    fill(path, Size(transactions=100))
    _sql(
        path,
        "UPDATE materialized_view SET oldest_csn = 60, materialized_csn = 90 WHERE name = 'view_000'",
        "UPDATE forward_position SET csn = 95 WHERE view_name = 'view_000' AND relation = 1",
        "INSERT INTO condensed VALUES ('view_000', 70, 80)",
    )
    with Project.open(path) as project:
        picture = project.observe.rolling("view_000")
    assert [(lane.relation, lane.table, lane.position) for lane in picture.lanes] == [
        ("s", "shop.sales", 100),
        ("c", "crm.customer", 95),
    ]
    assert (picture.oldest, picture.materialized, picture.high_water) == (60, 90, 95)
    assert picture.lanes[0].intervals[-1].upto == 100
    assert picture.condensed == ((70, 80),)


PICTURE = RollingPicture(
    view="v",
    lanes=(
        Lane("a", "x.a", "v", 30, (LaneInterval(10, 20, 1.0), LaneInterval(20, 30, 2.0))),
        Lane("b", "x.b", "v", 20, (LaneInterval(0, 20, 1.0), LaneInterval(20, 25, 0.0))),
    ),
    oldest=5,
    materialized=15,
    high_water=20,
    last_csn=40,
    condensed=((6, 8),),
    spans=(),
)


def test_a_rolling_picture_has_everything_in_its_place() -> None:
    assert shown_range(PICTURE, 0) == (0, 40) and shown_range(PICTURE, 10) == (30, 40)
    chart = rolling_chart(PICTURE, 0, {}, by_time=False)
    assert [[bar.kind for bar in lane.bars] for lane in chart.lanes] == [
        ["loaded", "even", "odd"],
        ["odd", "under-way"],
    ]
    shown, high, captured = chart.lines
    assert chart.left < shown.x < high.x < captured.x == chart.right
    assert chart.lanes[1].at == high.x and chart.pruned is not None and len(chart.condensed) == 1
    first, second = chart.lanes[0].bars[1:]
    assert first.x + first.width == pytest.approx(second.x, abs=0.2)
    # By time, what took long is wide.
    times = {0: 0.0, 10: 90.0, 20: 95.0, 30: 98.0, 40: 100.0, 5: 60.0, 15: 92.0, 25: 97.0}
    timed = rolling_chart(PICTURE, 0, times, by_time=True)
    assert timed.lanes[0].bars[1].width < first.width / 2


GRAPH = Lineage(
    9,
    (
        LineageNode("source", "x", 0, 9),
        LineageNode("relation", "x.a", 1, 9),
        LineageNode("relation", "x.b", 1, 9),
        LineageNode("view", "v", 2, 8),
        LineageNode("view", "w", 3, 7),
        LineageNode("view", "u", 2, 9),
    ),
    (
        LineageEdge(("source", "x"), ("relation", "x.a"), 9),
        LineageEdge(("source", "x"), ("relation", "x.b"), 9),
        LineageEdge(("relation", "x.a"), ("view", "v"), 8),
        LineageEdge(("view", "v"), ("view", "w"), 7),
        LineageEdge(("relation", "x.b"), ("view", "u"), 9),
    ),
)


def test_a_graph_is_laid_out_in_layers() -> None:
    chart = lineage_chart(GRAPH)
    at = {node.name: node for node in chart.nodes}
    assert at["x"].x < at["x.a"].x == at["x.b"].x < at["v"].x < at["w"].x
    boxes = [(node.x, node.y, node.height) for node in chart.nodes]
    for x, y, height in boxes:
        assert y >= 0 and y + height <= chart.height
        assert not any(a == x and y < b < y + height for a, b, _ in boxes)
    assert {edge.behind for edge in chart.edges} == {0, 1, 2}
    assert "v → w: up to csn 7, 2 behind" in {edge.title for edge in chart.edges}


def test_around_a_view_is_what_it_is_made_of_and_what_is_made_of_it() -> None:
    assert {node.name for node in around(GRAPH, "v").nodes} == {"x", "x.a", "v", "w"}
    assert {node.name for node in around(GRAPH, "u").nodes} == {"x", "x.b", "u"}


def test_rows_at_any_csn_of_a_window() -> None:
    changes = (Change(2, ("a",), 1), Change(3, ("b",), 2), Change(3, ("a",), -1), Change(5, ("b",), -1))
    window = Window(1, 6, 3, ("x",), Counter({("b",): 2, ("z",): 1}), changes, (2, 3, 3, 5))
    states = {csn: Counter(row for row, mark in window.at(csn, csn).rows) for csn in range(1, 7)}
    assert states[1] == Counter({("z",): 1})
    assert states[2] == Counter({("z",): 1, ("a",): 1})
    assert states[3] == states[4] == Counter({("z",): 1, ("b",): 2})
    assert states[5] == states[6] == Counter({("z",): 1, ("b",): 1})
    assert window.at(3, 2).rows == ((("a",), -1), (("b",), 1), (("b",), 1), (("z",), 0))
    # Backwards, what came goes.
    assert window.at(2, 3).rows == ((("a",), 1), (("b",), -1), (("b",), -1), (("z",), 0))
    assert window.at(5, 3).total == 2 and window.at(5, 3).changed == 1


def test_rows_are_in_order_whatever_their_values() -> None:
    rows = marked({(None, 2): 1, (3, 1): 2, ("x", 0): 1, (True, 5): 1}, {})
    assert [row for row, _ in rows] == [(None, 2), (True, 5), (3, 1), (3, 1), ("x", 0)]


def test_words() -> None:
    lengths = [times.duration(each) for each in (None, 0, 0.4, 4.21, 42, 600, 9000, 200_000, 999_999)]
    assert lengths == ["—", "0 s", "400 ms", "4.2 s", "42 s", "10 min", "2.5 h", "2 d", "12 d"]
    assert [formats.size(each) for each in (5, 1700, 2_500_000)] == ["5 B", "1.7 kB", "2.5 MB"]
    assert formats.cell("a\nb\x00") == "a\\nb\\x00" and formats.cell(None) == "NULL"
    assert formats.cell(b"\x01") == "X'01'" and formats.cell({"a": [1]}) == '{"a": [1]}'
    assert len(formats.cell("x" * 1000)) == 300
    assert formats.heads(["a", "b"], [(1, "x"), (None, "y")]) == [("a", "num"), ("b", "")]


def test_verifications_are_remembered_and_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollview.catalog.observations.KEPT", 3)
    times = iter(range(1, 100))
    catalog = Catalog.open(f"sqlite:///{tmp_path}/catalog.db", lambda: float(next(times)))
    for csn in range(6):
        catalog.verifications.note(VerifyRecord("v", 0.0, csn, 10, csn % 2, "", ("(1,): x",), 0.5))
    catalog.verifications.note(VerifyRecord("w", 0.0, 9, 1, 0, "half", (), 0.1))
    found = catalog.verifications.of(["v"], 10)
    assert [each.csn for each in found] == [5, 4, 3]
    assert found[0].different == 1 and found[0].differences == ("(1,): x",)
    assert [each.csn for each in catalog.verifications.of(["v", "w"], 2)] == [9, 5]
    catalog.close()
