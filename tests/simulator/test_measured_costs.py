"""What transactions cost: in a burst, and while others commit."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

from rollview.algorithms.algorithm import Scenario
from rollview.lab.simulator.generate import Size, generate_over
from rollview.lab.tables.measured_costs import (
    REST_RATES,
    STREAM_RATES,
    STREAM_TRANSACTIONS,
    CostTables,
    MeasuredCost,
    MeasuredRest,
    chain,
    measure_batches,
    measure_cost,
    measure_keyed,
    measure_rest,
    measure_stream,
)
from rollview.lab.tables.report import has_costs, replace_costs, rest_section


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


def test_only_what_needs_rest_is_kept_from_showing_anything() -> None:
    """zhuge1996 §6: with continuous updates, Strobe may reach no moment at which it can show the view."""
    waits = {
        (name, rate): measure_rest(name, rate, worlds=2).longest_wait
        for name in ("strobe", "nested-sweep", "eca", "c-strobe", "agrawal-sweep", "version-numbers")
        for rate in (0.25, 4.0)
    }
    assert all(wait < 0.05 for (_, rate), wait in waits.items() if rate < 1)
    assert all(waits[name, 4.0] > 0.5 for name in ("strobe", "nested-sweep", "eca"))
    assert all(waits[name, 4.0] < 0.4 for name in ("c-strobe", "agrawal-sweep", "version-numbers"))


def test_the_page_has_what_is_measured_of_rest() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "algorithms.md").read_text(encoding="utf-8")
    rests: list[MeasuredRest] = [measure_rest("strobe", rate) for rate in REST_RATES]
    *_, head, row, _ = rest_section(rests)
    assert head.startswith("|---")
    assert row in page.splitlines()


def test_tables_of_costs_are_replaced_alone() -> None:
    """The least among those that show every state is marked, also if a weaker algorithm needs less."""
    stream = [
        _cost("sweep", 0.2),
        _cost("version-numbers", 0.3),
        _cost("net-effect", 0.1),
        _cost("ipda", 0.0),
    ]
    batches = {4: [_cost("sweep", 0.25), _cost("net-effect", 0.15)]}
    costs = CostTables(stream, stream, {Scenario.SINGLE_UPDATE: stream[:2]}, batches)
    page = "# Page\n\nlevels\n\n## What a transaction costs\n\nstale figures\n\n## Counted claims\n\nclaims\n"
    assert has_costs(page) and not has_costs("## Counted claims\n\n## What a transaction costs\n")
    changed = replace_costs(page, costs)
    before, _, rest = changed.partition("## What a transaction costs\n")
    assert before == "# Page\n\nlevels\n\n" and rest.endswith("\n\n## Counted claims\n\nclaims\n")
    assert "stale figures" not in rest and replace_costs(changed, costs) == changed
    assert "| sweep | **0.20** | **0.20** | **0.20** | **0.20** | 0.20 |" in rest
    assert "| net-effect | 0.10 | 0.10 | 0.10 | 0.10 | 0.10 |" in rest
    assert "| ipda | 0.00 |" in rest and "| sweep | 0.25 |" in rest


def _cost(name: str, value: float) -> MeasuredCost:
    return MeasuredCost(name, 3, 0, value, value, value, value, value, 1)


def test_batches_wait_until_they_are_full() -> None:
    alone, together = (measure_batches("sweep", least, worlds=5) for least in (1, STREAM_TRANSACTIONS))
    assert together.questions < alone.questions and together.rounds < alone.rounds
    keyed = measure_keyed("version-numbers", Scenario.SINGLE_UPDATE, worlds=3)
    assert keyed is not None and measure_keyed("strobe", Scenario.SINGLE_UPDATE, worlds=3) is None


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
