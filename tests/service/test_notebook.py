"""A project in a notebook: HTML that is escaped and has no scripts, figures of what the catalog knows."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from io import BytesIO

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from shop import Shop, transact

from rollview import extras
from rollview.errors import MissingExtra
from rollview.service.figures_of_views import lag_figure, rolling_figure
from rollview.service.lags import LagSeries
from rollview.service.notebook import rows_html, status_html
from rollview.service.project import Project
from rollview.service.rolling_picture import Lane, LaneInterval, RollingPicture
from rollview.service.status import HaltStatus, SourceStatus, Status

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
    assert "&lt;script&gt;" in _check(status_html(Status(EVIL, 1, EVIL, (source,), (), ())))
    text = _check(rows_html(pa.table({EVIL: [EVIL, None], "n": [1, 2]})))
    assert "NULL" in text
    assert text.count("&lt;script&gt;") == 2


def test_of_many_rows_the_first_are_shown() -> None:
    text = _check(rows_html(pa.table({"n": range(1000)})))
    assert "… and 950 more" in text
    assert rows_html(pa.table({"n": range(1000)})).count("<tr>") == 51


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(extras.EXTRAS, "notebook", ("no_such_plots",))
    with pytest.raises(MissingExtra, match="the extra `notebook`") as refused:
        lag_figure([])
    assert "rollview[notebook]" in refused.value.hint


def test_the_lag_is_a_line_for_each_view() -> None:
    figure = lag_figure([LagSeries("sold", 1.8e9, (None, 3.0, 0.5)), LagSeries("total", 1.8e9, (0.0,) * 3)])
    (axes,) = figure.axes
    assert [line.get_label() for line in axes.lines] == ["sold", "total"]
    assert list(axes.lines[0].get_ydata())[1:] == [3.0, 0.5]
    _drawn(figure)


def test_the_rolling_picture_has_a_lane_for_each_relation() -> None:
    lanes = (
        Lane("s", "shop.sales", "sold", 8, (LaneInterval(2, 5, 1.0), LaneInterval(5, 8, 0.0))),
        Lane("c", "crm.customer", "sold", 10, ()),
    )
    figure = rolling_figure(RollingPicture("sold", lanes, 1, 7, 8, 12, ((2, 4),), ()))
    (axes,) = figure.axes
    assert [each.get_text() for each in axes.get_yticklabels()] == ["c\ncrm.customer", "s\nshop.sales"]
    assert [line.get_xdata()[0] for line in axes.lines] == [7, 8, 12]
    bars = sorted(
        (bar.get_x(), bar.get_x() + bar.get_width()) for bar in axes.patches if bar.get_height() < 0.5
    )
    assert bars == [(1, 8), (1, 10), (2, 5), (5, 8)]
    _drawn(figure)


def _drawn(figure: object) -> None:
    page = BytesIO()
    figure.savefig(page, format="png")  # type: ignore[attr-defined]
    assert page.getvalue().startswith(b"\x89PNG")


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
        assert {line.get_label() for line in project.plot_lag().axes[0].lines} == {"sales_by_state", "sold"}
        assert len(project.plot_rolling("sold").axes[0].get_yticklabels()) == 3
