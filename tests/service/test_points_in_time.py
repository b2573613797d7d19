"""What users may write for a point in time, and what is refused."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rollview.algebra.relation import Table
from rollview.catalog import CaptureStep, Catalog, Part, Sequenced, Unit
from rollview.errors import PointError
from rollview.runtime.sites import Sites
from rollview.storage.points_in_time import PointsInTime

NOW = time.time()


class _Numbered:
    """A source whose positions are numbers."""

    kind = "numbered"

    def reach(self, site: str, position: str, captured: str) -> int:
        assert (site, captured) == ("x", "end")
        return int(position)


@pytest.fixture
def points(tmp_path: Path) -> PointsInTime:
    catalog = Catalog.open(f"sqlite:///{tmp_path / 'catalog.db'}")
    tables = [Table("x", "t", ("a",), types=("int",)), Table("y", "u", ("a",), types=("int",))]
    catalog.captured.register(tables, {"x": ("x", ""), "y": ("y", "")})
    units = [
        Unit(csn, NOW - 3600.0 * (4 - csn), (Part("x", csn, csn, place=10 * csn),), {"x.t": 1})
        for csn in (1, 2, 3)
    ]
    with catalog.lease("capture") as lease:
        step = catalog.steps.begin(lease, "", CaptureStep(sites={}, units=(), versions={}))
        catalog.steps.finish(lease, step, Sequenced(tuple(units), {"x": "end"}))
    sources: dict[str, Any] = {"x": _Numbered(), "y": SimpleNamespace(kind="silent")}
    return PointsInTime(catalog, cast(Sites, SimpleNamespace(source_at=sources.__getitem__)))


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


@pytest.mark.parametrize(
    ("text", "csn"),
    [
        ("latest", 7),
        (" Latest ", 7),
        (2, 2),
        ("csn:2", 2),
        ("CSN: 2", 2),
        ("-90m", 2),
        ("-1h30m", 2),
        ("-2.5h", 1),
        ("-0s", 3),
        pytest.param(_iso(NOW - 3600.0 * 2.5), 1, id="an ISO time"),
        ("x:10", 1),
        ("x: 29", 2),
        ("x:31", 3),
    ],
)
def test_what_is_meant(points: PointsInTime, text: str | int, csn: int) -> None:
    assert points.resolve(text, latest=7) == csn


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("csn:two", "is not a valid csn"),
        ("-5 parsecs", "is not a valid point in time"),
        ("-", "is not a valid point in time"),
        ("yesterday", "is not a valid point in time"),
        ("z:10", "is not a valid point in time"),
        ("y:10", "a source of type silent has no positions"),
        pytest.param(_iso(NOW + 3600.0), "has not come yet", id="in an hour"),
        ("-9000d", "is before the project was set up"),
    ],
)
def test_what_is_refused(points: PointsInTime, text: str, why: str) -> None:
    with pytest.raises(PointError, match=why):
        points.resolve(text, latest=7)
