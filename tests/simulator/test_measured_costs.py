"""What transactions cost: in a burst, and while others commit."""

from __future__ import annotations

import random
from collections import Counter

from rollview.algebra.levels import Scenario
from rollview.simulator.generate import Size, generate_over
from rollview.simulator.measured_costs import STREAM_RATES, chain, measure_cost, measure_stream


def test_answers_of_a_stream_have_to_be_corrected() -> None:
    """In a burst everything is known before the first answer; rows of a stream are seen before that."""
    stream = {name: measure_stream(name) for name in ("sweep", "rolling", "propagate", "version-numbers")}
    assert all(cost.rows_compensated > 0 for cost in stream.values())
    assert stream["sweep"].queries < stream["propagate"].queries
    alone = measure_cost("sweep", 3, 0)
    assert alone.rows_compensated < stream["sweep"].rows_compensated


def test_rolling_takes_an_interval_per_relation() -> None:
    """Relations that change at other rates have other intervals, so it is not equal to propagating all."""
    rolling, propagate = measure_stream("rolling"), measure_stream("propagate")
    assert (rolling.queries, rolling.questions) != (propagate.queries, propagate.questions)


def test_rates_say_how_often_tables_change() -> None:
    size = Size(3, 400, snapshots=False, rates=STREAM_RATES)
    for sources in (0, 1):
        world = generate_over(chain(3, sources), random.Random(1), Scenario.SINGLE_UPDATE, size)
        changed = Counter(
            change.table.split(".")[1]
            for script in world.scripts.values()
            for transaction in script
            for change in transaction.changes
        )
        assert changed["t1"] > 1.5 * changed["t2"] > 3 * changed["t3"] > 0, changed
