"""Plans of look-ups: which keys are shipped, which conditions are pushed, which columns are read."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from rollview.sources.source import Comparison, Lookup, Table, distinct_keys, run_plan
from rollview.testing.lookup_suite import first_plan

AWAY = Table("x", "away", ("k", "d", "w"), types=("int", "double", "string"))
ITEM = Table(
    "s", "item", ("id", "k", "ratio", "word", "day", "price", "unused"),
    types=("bigint", "bigint", "double", "string", "date", "decimal(9,2)", "string"),
)  # fmt: skip
PART = Table("s", "part", ("id", "item", "word"), types=("bigint", "bigint", "string"))


class Rules:
    """A source with configurable comparisons."""

    def __init__(self, compare: Callable[[str, str], bool], push: bool = True) -> None:
        self.can_compare = compare
        self.push = push
        self.offered: list[tuple[Comparison, str]] = []

    def can_push(self, comparison: Comparison, column_type: str) -> bool:
        self.offered.append((comparison, column_type))
        return self.push


def anything(key_type: str, column_type: str) -> bool:
    return True


def planned(sql: str, rules: Rules, **keys: Any) -> tuple[Lookup, ...]:
    arrays = {name: each if isinstance(each, pa.Array) else pa.array(each) for name, each in keys.items()}
    return first_plan(rules, sql, [AWAY, ITEM, PART], arrays)


def test_keys_are_distinct_without_null_and_have_the_tables_own_names() -> None:
    sql = "SELECT a.k, i.id FROM x.away a JOIN s.item i ON a.k = i.k AND a.w = i.word"
    (lookup,) = planned(sql, Rules(anything), k=[1, 1, None, 2, 1], w=["a", "a", "b", None, "c"])
    assert lookup.table is ITEM
    assert lookup.columns == ("id", "k", "word")
    assert lookup.keys.to_pylist() == [{"k": 1, "word": "a"}, {"k": 1, "word": "c"}]


def test_a_column_that_the_source_cannot_compare_is_left_out_and_the_rest_made_distinct_again() -> None:
    sql = "SELECT a.k, i.id FROM x.away a JOIN s.item i ON a.k = i.k AND a.w = i.word"
    asked = []

    def numbers(key_type: str, column_type: str) -> bool:
        asked.append((key_type, column_type))
        return key_type != "string"

    (lookup,) = planned(sql, Rules(numbers), k=pa.array([1, 1, 2], pa.int32()), w=["a", "b", "a"])
    assert asked == [("int", "bigint"), ("string", "string")]
    assert lookup.keys.to_pydict() == {"k": [1, 2]}
    (whole,) = planned(sql, Rules(lambda *_: False), k=[1], w=["a"])
    assert (whole.keys, whole.parent) == (None, None)


@pytest.mark.parametrize("keys", [[], [None, None]])
def test_without_keys_nothing_is_looked_for_whatever_can_be_compared(keys: list[Any]) -> None:
    sql = "SELECT a.k, i.id FROM x.away a JOIN s.item i ON a.d = i.ratio"
    (lookup,) = planned(sql, Rules(lambda *_: False), d=pa.array(keys, pa.float64()))
    assert lookup.keys.num_rows == 0
    assert lookup.keys.schema == pa.schema([("ratio", pa.float64())])


def test_values_that_spark_takes_for_equal_are_one_key() -> None:
    values = pa.array([0.0, -0.0, math.nan, -math.nan, 1.5, 1.5, None])
    one = distinct_keys(pa.table({"d": values}), [("d", "ratio")])
    assert [math.copysign(1, value) for value in one["ratio"].to_pylist()[:1]] == [1]
    assert sorted(map(str, one["ratio"].to_pylist())) == ["0.0", "1.5", "nan"]
    both = distinct_keys(pa.table({"d": values, "k": [7] * 7}), [("d", "ratio"), ("k", "k")])
    assert sorted(map(str, both["ratio"].to_pylist())) == ["0.0", "1.5", "nan"]


def test_a_relation_behind_another_one_of_the_site_is_found_by_its_rows() -> None:
    sql = "SELECT a.k, p.id FROM x.away a JOIN s.item i ON a.k = i.k JOIN s.part p ON i.id = p.item"
    item, part = planned(sql, Rules(anything), k=[1])
    assert (part.parent, part.on, part.keys) == (0, (("id", "item"),), None)
    assert "id" in item.columns
    # Rows that are known give keys; a scan gives none.
    rows = pa.table({"id": [4, 4, None], "_count": [1, 1, 1]})
    given: list[Any] = []

    def find(lookup: Lookup, keys: pa.Table | None) -> pa.Table:
        given.append(None if keys is None else keys.to_pydict())
        return rows

    run_plan((item, part), find)
    assert given == [{"k": [1]}, {"item": [4]}]
    item, part = planned(sql, Rules(lambda key, _: key == "int"), k=pa.array([1], pa.int32()))
    assert (item.keys.to_pydict(), part.keys, part.parent) == ({"k": [1]}, None, None)


def test_simple_comparisons_are_pushed_as_data_where_the_source_allows() -> None:
    sql = (
        "SELECT a.k FROM x.away a JOIN s.item i ON a.k = i.k WHERE i.id > 5 AND i.word IN ('a', 'b')"
        " AND i.day <= DATE '2020-01-02' AND i.price = 1.50 AND i.id + 1 > 3 AND i.word <> 'x'"
        " AND i.id IN (1, NULL) AND i.word LIKE 'a%' AND i.id < i.k"
    )
    expected = (
        Comparison("id", ">", (5,)),
        Comparison("word", "IN", ("a", "b")),
        Comparison("day", "<=", (date(2020, 1, 2),)),
        Comparison("price", "=", (Decimal("1.50"),)),
    )
    rules = Rules(anything)
    (lookup,) = planned(sql, rules, k=[1])
    assert set(lookup.conditions) == set(expected)
    assert dict(rules.offered)[expected[3]] == "decimal(9,2)"
    (unpushed,) = planned(sql, Rules(anything, push=False), k=[1])
    assert unpushed.conditions == ()
    # The caller tests conditions again, so their columns are read; nobody needs the others.
    assert lookup.columns == unpushed.columns == ("id", "k", "word", "day", "price")
