"""A view along a history: the state at every csn is the first one plus all deltas, bit by bit.

The row that a delta takes away has to be the very row that is stored, in however many parts Spark has the
rows below.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from rollview.algebra.bag import COUNT, keep
from rollview.algebra.expression import Literal, call
from rollview.algebra.history import CSN
from rollview.algebra.view import View
from rollview.bags import PlacedBag
from rollview.views.content import block_contents

Rows = Counter[tuple[Any, ...]]


def _counts(rows: PlacedBag) -> Rows:
    """Rows with their bits: Python, too, takes 0.0 for −0.0, and no NaN for another."""
    found: Rows = Counter()
    table = rows.table() if rows.place == "driver" else rows.frame.toArrow()
    counts = table[COUNT].to_pylist()
    columns = [map(bits, table[name].to_pylist()) for name in rows.columns]
    for row, count in zip(zip(*columns, strict=True), counts, strict=True):
        found[row] += count
    return _net(found)


def bits(value: Any) -> Any:
    """A value that is equal to no other: to Python, 0.0 is -0.0, and no NaN is another."""
    if isinstance(value, float):
        return struct.pack(">d", value) if value == value else "NaN"  # noqa: PLR0124
    if isinstance(value, dict):
        return tuple(map(bits, value.values()))
    return tuple(map(bits, value)) if isinstance(value, list) else value


def _net(rows: Rows) -> Rows:
    return Counter({row: count for row, count in rows.items() if count})


def states_by_deltas(
    spark: SparkSession, schema: Mapping[str, str], view: View, states: list[Rows]
) -> Iterator[Rows]:
    """The view's rows at every csn, by its first state and its deltas; the stored states show the same."""
    root = view.root
    contents = [
        next(block_contents(root, {"s.t": PlacedBag.of(spark, schema, state)})).computed() for state in states
    ]
    start = root.state_of(iter(contents[:1])).computed()
    delta = None
    for csn, (after, before) in enumerate(zip(contents[1:], contents[:-1], strict=True), start=1):
        step = after.plus(before.negate()).net_effect()
        timed = root.lift(0, step.project((*keep(step.columns), (CSN, _number(csn)))), CSN)
        delta = timed if delta is None else delta.plus(timed)
    assert delta is not None
    delta = delta.computed()
    changes = _counts(root.row_delta(start, delta, 0))
    rows = _counts(root.present(start))
    for csn, content in enumerate(contents):
        for row, count in changes.items():
            if row[-1] == csn:
                rows[row[:-1]] += count
        assert min(_net(rows).values()) > 0, f"a row is there less than never at csn {csn}"
        if csn in (1, len(states) - 1):
            state = root.state_of(iter([content])).computed()
            parts = PlacedBag(state.frame.repartition(csn + 1, f.rand(csn)))
            assert _counts(root.present(state)) == _counts(root.present(parts)) == _net(rows), csn
        yield _net(rows)


def _number(csn: int) -> Any:
    return call("CAST AS BIGINT", Literal(csn))
