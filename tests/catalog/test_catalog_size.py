"""A million units of work: what the drivers ask at every step stays a matter of milliseconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from catalog_world import DEAR_ON_POSTGRES, NO_CAPTURE, ORIGINS, TABLES, by_hand

from rollview.algebra.history import Seen
from rollview.catalog import Catalog, Part, Sequenced, Unit

UNITS = 1_000_000
LIMIT_SECONDS = 0.02
"""Ten times what is needed on an idle machine, a tenth of what reading a whole index takes."""

# Site x has all units, with growing source txids; y.t every tenth, with source txids that go up and down a
# little.
FILL = f"""
CREATE TEMP TABLE n AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {UNITS})
    SELECT i FROM n;
INSERT INTO unit_of_work SELECT i, i * 1.0 FROM n;
INSERT INTO part SELECT 'x', i, i, i * 3, '0-1-' || i, '', FALSE, i * 5 FROM n;
INSERT INTO part SELECT 'y.t', i / 10, i, i + (i / 10 % 2) * 25, '', '', FALSE, 0 FROM n WHERE i % 10 = 0;
INSERT INTO touch SELECT 'x.r', i, 2, i * 2 FROM n;
INSERT INTO touch SELECT 'x.s', i, 1, i / 100 FROM n WHERE i % 100 = 0;
INSERT INTO touch SELECT 'y.t', i, 1, i / 10 FROM n WHERE i % 10 = 0;
UPDATE site SET version = {UNITS} WHERE name = 'x';
UPDATE site SET version = {UNITS} / 10, source_txids_grow = FALSE WHERE name = 'y.t';
ANALYZE
"""


def _fastest_seconds(ask: Callable[[], Any]) -> float:
    """The best of some tries, so that a busy machine does not count."""
    times = []
    for _ in range(7):
        started = time.perf_counter()
        ask()
        times.append(time.perf_counter() - started)
    return min(times)


@pytest.mark.slow
@pytest.mark.parametrize("url", DEAR_ON_POSTGRES, indirect=True)
def test_answers_stay_fast_over_a_million_units(catalog: Catalog, url: str) -> None:
    catalog.captured.register(TABLES, ORIGINS)
    by_hand(url, *FILL.split(";"))
    middle = UNITS // 2
    seen = Seen(UNITS - 5, frozenset({middle, UNITS - 9}))
    questions: dict[str, tuple[Callable[[], Any], Any]] = {
        "last_csn": (catalog.history.last_csn, UNITS),
        "commit_time": (lambda: catalog.history.commit_time(middle), float(middle)),
        "csn_at": (lambda: catalog.history.csn_at(middle + 0.5), middle),
        "version_at": (lambda: catalog.history.version_at("y.t", middle + 5), middle // 10),
        "in_csn": (lambda: catalog.history.in_csn("x", seen), seen),
        "touched": (lambda: catalog.history.touched("x.r", 0, UNITS), 2 * UNITS),
        "next": (lambda: catalog.history.next_csn_touching(["x.s", "y.t"], middle, 100), middle + 1000),
        "latest": (lambda: catalog.history.source_txids("x").latest(middle * 3 + 2), middle),
        "latest of unordered source txids": (
            lambda: catalog.history.source_txids("y.t").latest(UNITS - 80),
            UNITS // 10 - 8,
        ),
        "versions": (
            lambda: catalog.history.source_txids("x").versions([3, 4, 3 * UNITS]),
            {3: 1, 3 * UNITS: UNITS},
        ),
        "reaching": (lambda: catalog.history.csn_reaching("x", middle * 5 + 2), middle),
        "reaching by id": (lambda: catalog.history.csn_reaching("x", f"0-1-{UNITS - 40}".__eq__), UNITS - 40),
        "last touching": (lambda: catalog.history.last_csn_touching(["x.s", "y.t"], middle + 7), middle),
        "sites": (lambda: len(catalog.captured.sites()), 2),
    }
    slow = {}
    for name, (ask, expected) in questions.items():
        assert ask() == expected, name
        if (seconds := _fastest_seconds(ask)) > LIMIT_SECONDS:
            slow[name] = seconds
    assert slow == {}
    with catalog.lease("capture") as lease:

        def capture_one() -> None:
            csn = catalog.history.last_csn() + 1
            step = catalog.steps.begin(lease, "", NO_CAPTURE)
            unit = Unit(csn, float(csn), (Part("x", csn, 3 * csn),), {"x.r": 2})
            catalog.steps.finish(lease, step, Sequenced((unit,), {"x": str(csn)}))

        assert _fastest_seconds(capture_one) < 5 * LIMIT_SECONDS
