"""A project in a notebook: HTML that is escaped and has no scripts, charts of what the catalog knows."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pyarrow as pa
import pytest
from jinja2 import Environment
from pyspark.sql import SparkSession
from shop import Shop, transact

from rollview.observe.lag_chart import lag_chart
from rollview.observe.lags import LagSeries
from rollview.observe.notebook import rows_html
from rollview.observe.rolling_chart import rolling_chart
from rollview.observe.rolling_picture import Lane, LaneInterval, RollingPicture
from rollview.observe.status import HaltStatus, SourceStatus, Status
from rollview.observe.svg import Chart, Charts
from rollview.project.project import Project

SVG = "{http://www.w3.org/2000/svg}"
SHAPES = {"svg", "title", "g", "line", "path", "rect", "text", "defs", "pattern"}
EVIL = "<script>alert('x')</script><img src=x onerror=y> & \"z\""


class _Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.seen.add(tag)
        assert {name for name, _ in attrs} <= {"style"}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def _check(text: str) -> str:
    """Well-formed, no scripts, no colours of its own; the text without tags."""
    tags = _Tags(text)
    assert tags.open == []
    assert tags.seen <= {
        *("div", "p", "b", "table", "thead", "tbody", "tr", "th", "td", "ul", "li", "pre", "span", "code"),
    }
    colours = re.findall(r"(?<![-\w])(?:color|background):([^;\"]+)", text)
    assert set(colours) <= {"inherit", "transparent"}
    return re.sub(r"<[^>]+>", " ", text)


def test_everything_is_escaped() -> None:
    halt = HaltStatus(EVIL, "SourceFailed", EVIL, 0, "")
    source = SourceStatus(EVIL, EVIL, 1, EVIL, {}, EVIL, halt)
    assert "&lt;script&gt;" in _check(Status(EVIL, 1, EVIL, (source,), (), ())._repr_html_())
    text = _check(rows_html(pa.table({EVIL: [EVIL, None], "n": [1, 2]})))
    assert "NULL" in text
    assert text.count("&lt;script&gt;") == 2


def test_of_many_rows_the_first_are_shown() -> None:
    text = _check(rows_html(pa.table({"n": range(1000)})))
    assert "… and 950 more" in text
    assert rows_html(pa.table({"n": range(1000)})).count("<tr>") == 51


def _svg(chart: Chart, kind: str) -> ElementTree.Element:
    """The chart as a notebook shows it: well-formed, and nothing in it that runs or that is fetched."""
    root = ElementTree.fromstring(chart._repr_svg_())
    assert {each.tag.removeprefix(SVG) for each in root.iter()} <= SHAPES
    names = {name for each in root.iter() for name in each.attrib}
    assert not {name for name in names if name.startswith("on") or name in ("style", "href")}
    assert root.get("class") == kind
    return root


def _of(root: ElementTree.Element, name: str, kind: str) -> list[ElementTree.Element]:
    return [each for each in root.iter(f"{SVG}{name}") if each.get("class") == kind]


def test_the_lag_is_a_chart_for_each_view(tmp_path: Path) -> None:
    series = LagSeries("sold", 1.8e9, (None, 3.0, 0.5)), LagSeries(EVIL, 1.8e9, (0.0,) * 3)
    charts = Charts(tuple((each.view, lag_chart(each)) for each in series))
    root = _svg(charts, "charts")
    assert [each.text for each in _of(root, "text", "title")] == ["sold", EVIL]
    assert len(_of(root, "path", "line")) == len(_of(root, "path", "area")) == 2
    assert float(root.get("height", "0")) > 2 * lag_chart(None).height
    charts.save(tmp_path / "lag.svg")
    assert ElementTree.parse(tmp_path / "lag.svg").getroot().get("class") == "charts"


def test_the_page_and_the_notebook_show_the_same_chart() -> None:
    chart = lag_chart(LagSeries("sold", 1.8e9, (None, 3.0, 0.5)))
    assert Environment(autoescape=True).from_string("{{ chart }}").render(chart=chart) == chart._repr_svg_()
    assert chart.svg() in Charts((("sold", chart),)).svg()


def test_the_rolling_picture_has_a_lane_for_each_relation() -> None:
    lanes = (
        Lane("s", "shop.sales", "sold", 8, (LaneInterval(2, 5, 1.0), LaneInterval(5, 8, 0.0))),
        Lane("c", EVIL, "sold", 10, ()),
    )
    picture = RollingPicture("sold", lanes, 1, 7, 8, 12, ((2, 4),), ())
    root = _svg(rolling_chart(picture, 0, {}, by_time=False), "rolling")
    assert [each.text for each in _of(root, "text", "name")] == ["s", "c"]
    assert [each.text for each in _of(root, "text", "note")] == ["shop.sales", f"{EVIL[:29]}…"]
    kinds = [each.get("data-kind") for each in _of(root, "rect", "bar")]
    assert kinds == ["loaded", "odd", "under-way", "loaded"]
    marks = [each.find(f"{SVG}text") for each in _of(root, "g", "mark")]
    assert [each.text for each in marks if each is not None] == [
        "shown 7",
        "high-water mark 8",
        "captured 12",
    ]
    assert len(_of(root, "rect", "pruned")) == len(_of(root, "rect", "condensed")) == 1
    assert "c propagated to 10" in root.get("aria-label", "")


@pytest.mark.slow
def test_a_real_project(shop: Shop, spark: SparkSession) -> None:
    transact(shop, 10)
    with Project.open(shop.folder, spark) as project:
        assert "not set up yet" in _check(project._repr_html_())
        project.setup()
        transact(shop, 3)
        project.run(once=True)
        assert "sales_by_state" in _check(project._repr_html_())
        assert "high-water mark" in _check(project.status()._repr_html_())
        assert "sub-queries per update" in _check(project.explain("sold")._repr_html_())
        answer = project.query("SELECT state, n FROM sales_by_state")
        assert "as of csn" in _check(answer._repr_html_())
        plan = project.explain_query("SELECT state, n FROM sales_by_state")
        assert "sales_by_state" in _check(plan._repr_html_())
        titles = _of(_svg(project.plot_lag(), "charts"), "text", "title")
        assert {each.text for each in titles} == {"sales_by_state", "sold"}
        assert len(_of(_svg(project.plot_rolling("sold"), "charts"), "g", "lane")) == 3
