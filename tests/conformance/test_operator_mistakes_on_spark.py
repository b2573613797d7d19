"""Operators that only Spark can compute, along a history: right at every csn, by their own text.

And realistic mistakes in each of them, planted one at a time, which this must catch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rollview.algebra import change_points
from rollview.algebra.bag import keep
from rollview.algebra.expression import Column, Literal, call
from rollview.algebra.history import CSN
from rollview.algebra.relation import Table
from rollview.algebra.view import View
from rollview.bags import PlacedBag
from rollview.operators import window
from rollview.operators.first_rows import FirstRows
from rollview.operators.generate import Generate
from rollview.operators.grouped_values import PartialGroups
from rollview.operators.recomputed import WHICH, Kept, Recomputed
from rollview.planning import parse_view
from rollview.spark.gate import answered
from rollview.views.content import block_contents

pytestmark = pytest.mark.slow

Patch = pytest.MonkeyPatch
Rows = dict[str, Counter[tuple[Any, ...]]]
TABLES = (Table("s", "t", ("k", "x")), Table("s", "u", ("id", "up")))
SCHEMAS = {"s.t": {"k": "bigint", "x": "bigint"}, "s.u": {"id": "bigint", "up": "bigint"}}
VIEWS = {
    "window": """SELECT k, x, sum(x) OVER (PARTITION BY k) AS total,
        row_number() OVER (PARTITION BY k ORDER BY x) AS place FROM s.t""",
    "first rows": "SELECT k, x FROM s.t ORDER BY x DESC, k LIMIT 2",
    "places": """SELECT place, k + 1 AS more
        FROM (SELECT k, x, row_number() OVER (ORDER BY x, k) AS place FROM s.t)
        WHERE place BETWEEN 2 AND 3 AND x > 0""",
    "first of each": "SELECT k, x FROM s.t QUALIFY rank() OVER (PARTITION BY k ORDER BY x) < 2",
    "generator": "SELECT t.k, e.one FROM s.t LATERAL VIEW explode(array(x, k, 2)) e AS one WHERE e.one > 1",
    "recursion": """WITH RECURSIVE r AS (SELECT id, up, 0 AS depth FROM s.u WHERE up IS NULL
        UNION ALL SELECT u.id, u.up, r.depth + 1 FROM s.u JOIN r ON u.up = r.id WHERE r.depth < 3)
        SELECT id, depth FROM r""",
    "values": """SELECT k % 2 AS p, count(DISTINCT k) AS d, count(*) AS n, min(x) AS low, max(x + 1) AS high,
        sum(x) AS total, avg(CAST(x AS DECIMAL(9, 2))) AS mean, round(sum(x), 1) AS r
        FROM s.t GROUP BY k % 2""",
    "all values": "SELECT count(DISTINCT x) AS d, count(*) AS n, max(k) AS high, sum(x) AS total FROM s.t",
    "two relations": """WITH RECURSIVE r AS (SELECT k AS id, 0 AS depth FROM s.t
        UNION ALL SELECT u.id, r.depth + 1 FROM s.u JOIN r ON u.up = r.id WHERE r.depth < 2)
        SELECT id, depth FROM r""",
}


@pytest.fixture(autouse=True)
def all_keys_are_hot(monkeypatch: Patch) -> None:
    """So that operators look at as little as they can."""
    monkeypatch.setattr(change_points, "FEW_PAIRS", -1)


def _history(random: Random) -> list[Rows]:
    def row(name: str) -> tuple[Any, ...]:
        second = None if random.random() < 0.3 else random.randint(1, 3)
        return (random.randint(1, 3), second) if name == "s.t" else (random.randint(1, 4), second)

    states: list[Rows] = [{name: Counter(row(name) for _ in range(4)) for name in SCHEMAS}]
    for _ in range(2):
        after = {name: Counter(rows) for name, rows in states[-1].items()}
        for name, rows in after.items():
            rows[row(name)] += 1
            gone = random.choice(sorted(rows.elements(), key=repr))
            after[name] = rows - Counter([gone])
        states.append(after)
    return states


def _ends() -> list[Rows]:
    """The first and the last rows of an order go, and one comes back."""
    states = [Counter((k, x) for k in (1, 2) for x in range(1, 6))]
    states.append(states[0] - Counter([(1, 5), (2, 5), (1, 1)]))
    states.append(states[1] + Counter([(1, 1)]))
    return [{"s.t": rows, "s.u": Counter()} for rows in states]


def _check(spark: SparkSession, view: View, states: list[Rows]) -> None:
    """What the operator shows, rolled along its timed delta, is what Spark makes of its text at every csn."""
    bags = [
        {name: PlacedBag.of(spark, SCHEMAS[name], rows) for name, rows in state.items()} for state in states
    ]
    root = view.root
    contents = [list(block_contents(root, tables)) for tables in bags]
    start = root.state_of(iter(contents[0]))
    delta = None
    for number in range(len(root.blocks)):
        for csn in range(1, len(states)):
            step = contents[csn][number].plus(contents[csn - 1][number].negate()).net_effect()
            timed = step.project((*keep(step.columns), (CSN, call("CAST AS BIGINT", Literal(csn)))))
            lifted = root.lift(number, timed, CSN)
            delta = lifted if delta is None else delta.plus(lifted)
    assert delta is not None
    changes = root.row_delta(start.computed(), delta.computed(), 0).computed()
    shown = root.present(start).computed()
    for csn, tables in enumerate(bags):
        upto = changes.select(call("<=", Column(CSN), Literal(csn))).project(keep(root.output_columns))
        rolled = shown.plus(upto).collect()
        frames = {name: bag.expanded_frame() for name, bag in tables.items()}
        with answered(spark, view.exact_sql, frames) as answer:
            assert rolled == dict(Counter(map(tuple, answer.collect()))), (csn, view.sql)


@pytest.mark.parametrize("sql", VIEWS.values(), ids=VIEWS)
def test_oracle_operators_of_spark(spark: SparkSession, sql: str) -> None:
    for states in (_ends(), *(_history(Random(seed)) for seed in (1, 2))):
        _check(spark, parse_view(sql, TABLES, "v"), states)


def partitions_of_all_points_together(patch: Patch) -> None:
    """A window runs over the rows of all points at once."""
    patch.setattr(window, "with_keys", lambda expression, _: expression)


def conditions_behind_generators_forgotten(patch: Patch) -> None:
    """What a generator makes is not filtered."""

    def absorb(node: Generate, position: int, rows: Any, *extra: str) -> Any:
        for each in node.generators:
            rows = rows.generated(each.function, each.names)
        return rows.project((*node.output, *keep(extra)))

    patch.setattr(Generate, "absorb", absorb)


def points_mixed(patch: Patch) -> None:
    """A query is answered from the rows of all points."""
    true = PlacedBag._answer

    def answer(bag: PlacedBag, sql: str, tables: Any, names: Any, point: Any) -> PlacedBag:
        found = true(bag, sql, tables, names, {})
        fixed = [(name, call("CAST AS BIGINT", Literal(value))) for name, value in point.items()]
        return found.project((*keep(found.columns), *fixed))

    patch.setattr(PlacedBag, "_answer", answer)


def relations_mixed(patch: Patch) -> None:
    """Every relation of a query has the rows of the first one."""
    first = property(lambda _: call("=", Column(WHICH), Literal(1)))
    patch.setattr(Kept, "is_of_it", first)


def nothing_keeps_the_query_there(patch: Patch) -> None:
    """A query has no answer once its relations are empty, and so no rows to take away or to add."""

    def state_from(node: Recomputed, inputs: Any) -> Any:
        return node.absorb(0, inputs[0]).net_effect()

    patch.setattr(Recomputed, "state_from", state_from)


def before_means_now(patch: Patch) -> None:
    """A change point takes away what the operator shows after it, not before."""
    true = change_points._rows_at
    patch.setattr(change_points, "_rows_at", lambda node, points, pieces, _: true(node, points, pieces, "<="))


def too_few_others(patch: Patch) -> None:
    """One row less than can be shown is looked at."""
    true = FirstRows.reduced

    def reduced(node: FirstRows, state: Any, delta: Any) -> Any:
        return node, *true(replace(node, most=node.most - 1), state, delta)[1:]

    patch.setattr(FirstRows, "reduced", reduced)


def touched_rows_forgotten(patch: Patch) -> None:
    """Of the rows before a step only those that stay are looked at."""

    def reduced(node: FirstRows, state: Any, delta: Any) -> Any:
        return node, state.plus(state.sharing(delta, node.state_columns).negate()).net_effect(), delta

    patch.setattr(FirstRows, "reduced", reduced)


def values_counted_twice(patch: Patch) -> None:
    """A value that is touched is among the untouched ones as well."""
    patch.setattr(PartialGroups, "touched", lambda _parts, state, delta: state.sharing(delta, state.columns))


MISTAKES: list[tuple[Callable[[Patch], None], str]] = [
    (partitions_of_all_points_together, "window"),
    (before_means_now, "window"),
    (too_few_others, "first rows"),
    (too_few_others, "first of each"),
    (touched_rows_forgotten, "first rows"),
    (values_counted_twice, "values"),
    (partitions_of_all_points_together, "first of each"),
    (conditions_behind_generators_forgotten, "generator"),
    (points_mixed, "recursion"),
    (relations_mixed, "two relations"),
    (before_means_now, "recursion"),
]


@pytest.mark.parametrize(
    ("mistake", "view"), MISTAKES, ids=[f"{mistake.__name__} in {view}" for mistake, view in MISTAKES]
)
def test_mistakes_are_caught(
    spark: SparkSession, mistake: Callable[[Patch], None], view: str, monkeypatch: Patch
) -> None:
    mistake(monkeypatch)
    with pytest.raises(AssertionError):
        for states in (_ends(), *(_history(Random(seed)) for seed in (2, 1))):
            _check(spark, parse_view(VIEWS[view], TABLES, "v"), states)


def test_a_query_has_an_answer_where_its_relations_are_empty(spark: SparkSession, monkeypatch: Patch) -> None:
    sql = """WITH RECURSIVE r AS (SELECT 1 AS id UNION ALL
        SELECT r.id + 1 FROM r WHERE r.id < 2 + (SELECT count(*) FROM s.t)) SELECT id FROM r"""
    states: list[Rows] = [
        {"s.t": Counter({(1, 1): 1}), "s.u": Counter()},
        {"s.t": Counter(), "s.u": Counter()},
    ]
    _check(spark, parse_view(sql, TABLES, "v"), states)
    nothing_keeps_the_query_there(monkeypatch)
    with pytest.raises(AssertionError):
        _check(spark, parse_view(sql, TABLES, "v"), states)


def test_of_many_rows_few_are_looked_at(spark: SparkSession) -> None:
    """However many rows stand in an order: those that a step touches, and as many more as are shown."""
    root = parse_view("SELECT k, x FROM s.t ORDER BY x DESC LIMIT 3", TABLES, "v").root
    columns = dict.fromkeys(root.state_columns, "bigint")
    state = PlacedBag.of(spark, columns, {(number % 7, number): 1 for number in range(500)})
    delta = {(0, 0, 1): -1, (1, 498, 1): -1, (1, 1000, 2): 1, (1, 1000, 3): -1}
    _, less, _ = root.reduced(state, PlacedBag.of(spark, columns | {CSN: "bigint"}, delta))
    found = less.collect()
    assert sorted(row[1] for row in found) == [0, 496, 497, 498, 499]
