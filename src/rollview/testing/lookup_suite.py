"""The contract of `lookup` for every source: no match is missing, and none is there twice."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollview.algebra.join_graph import access_path
from rollview.algorithms.effects import Question
from rollview.planning import parse_view
from rollview.sources.source import IN, Comparison, Lookup, Table, arrow_type
from rollview.testing.driver import SCHEMAS, Driver, Row
from rollview.testing.script import FIRST_ROWS, TYPES, counted_rows, gap, held, opened, several
from rollview.views.lookup import Rules, plan_lookups

# Plans for tests, made as in the product: the look-ups for a change of a view's first relation.


def first_question(sql: str, tables: Iterable[Table], keys: Mapping[str, pa.Array]) -> Question[pa.Table]:
    """The first sub-query of a view of one block; `keys` by column of its first relation."""
    (block,) = parse_view(sql, tables).blocks
    (sub_query, *_) = access_path(block, 0).rounds[0]
    shipped: list[pa.Table | None] = []
    for join_step in sub_query.join_steps:
        if join_step.shipped:
            names = [parent for parent, _ in join_step.on]
            columns = [keys[name.partition(".")[2]] for name in names]
            shipped.append(pa.Table.from_arrays(columns, names=names) if names else None)
    return Question(block, sub_query, tuple(shipped))


def first_plan(
    rules: Rules, sql: str, tables: Iterable[Table], keys: Mapping[str, pa.Array]
) -> tuple[Lookup, ...]:
    """The plan of the first sub-query, for a source with these rules."""
    return plan_lookups(first_question(sql, tables, keys), rules)


_TESTS: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    IN: operator.eq,
    "<": operator.gt,
    "<=": operator.ge,
    ">": operator.lt,
    ">=": operator.le,
}
"""How the constant compares with the column's value."""
customers = st.lists(
    st.tuples(st.none() | st.integers(1, 4), st.sampled_from([None, "", "a", "b"])), max_size=8
).map(lambda rows: [(number, *row) for number, row in enumerate(rows, 1)])
pairs = st.lists(
    st.tuples(st.none() | st.integers(0, 6), st.sampled_from([None, "", "a", "b", "c"])), max_size=6
)


def planned(driver: Driver, sql: str, **keys: Sequence[Any]) -> tuple[Lookup, ...]:
    """The plan that a change of orders, the view's first table, leads to; keys by its columns."""
    kinds = dict(SCHEMAS["orders"])
    given_keys = {name: pa.array(list(each), arrow_type(kinds[name])) for name, each in keys.items()}
    return first_plan(driver.source, sql, driver.tables().values(), given_keys)


def looked_up(driver: Driver, plan: Sequence[Lookup]) -> list[Counter[Row]]:
    """The rows of every look-up; their order and place are not specified: rows are a bag."""
    found = driver.source.lookup(plan).rows
    return [counted_rows(rows, lookup.columns) for rows, lookup in zip(found, plan, strict=True)]


def _exactly(values: Sequence[Any], kind: str) -> pa.Array:
    """Those of the values that a type can hold as they are."""
    fitting = []
    for value in values:
        try:
            if value is not None and pa.array([value], arrow_type(kind)).to_pylist() == [value]:
                fitting.append(value)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            continue
    return pa.array(fitting, arrow_type(kind))


class LookupSuite:
    """Look-ups by one key, by several, along a chain, by conditions, and of whole tables."""

    driver: ClassVar[type[Driver]]

    @several
    @given(rows=customers, keys=pairs)
    def test_a_composite_key_finds_all_its_matches(self, rows: list[Row], keys: list[Row]) -> None:
        sql = (
            "SELECT o.id, c.id AS cust, c.name FROM s.orders o JOIN s.customer c "
            "ON o.cust = c.region AND o.note = c.name"
        )
        with opened(self.driver, rows={"customer": rows}) as driver:
            numbers, notes = ([key[place] for key in keys] for place in (0, 1))
            (found,) = looked_up(driver, planned(driver, sql, cust=numbers, note=notes))
            wanted = {key for key in keys if None not in key}
            assert Counter(row for row in rows if row[1:] in wanted) == Counter(
                {row: count for row, count in found.items() if row[1:] in wanted}
            )
            assert all(row in rows and count == 1 for row, count in found.items())

    @several
    @given(rows=customers, keys=st.lists(st.none() | st.integers(0, 9), max_size=6))
    def test_a_chain_at_one_site_finds_all_its_matches(self, rows: list[Row], keys: list[int | None]) -> None:
        sql = (
            "SELECT o.id, c.name, d.name AS parent FROM s.orders o "
            "JOIN s.customer c ON o.cust = c.id JOIN s.customer d ON c.region = d.id"
        )
        with opened(self.driver, rows={"customer": rows}) as driver:
            plan = planned(driver, sql, cust=keys)
            assert [lookup.parent for lookup in plan] in ([None, 0], [None, None])
            children, parents = looked_up(driver, plan)
            expected = Counter(row for row in rows if row[0] in keys)
            assert Counter({row: n for row, n in children.items() if row[0] in keys}) == expected
            looked_for = {row[1] for row in children} - {None}
            assert {row for row in parents if row[0] in looked_for} == {
                (row[0], row[2]) for row in rows if row[0] in looked_for
            }

    def test_a_column_may_be_compared_twice(self) -> None:
        sql = (
            "SELECT o.id, c.name, d.name AS other FROM s.orders o "
            "JOIN s.customer c ON o.cust = c.id AND o.id = c.id AND o.cust = c.region "
            "JOIN s.customer d ON c.id = d.region AND c.region = d.region"
        )
        rows: list[Row] = [(1, 1, "a"), (2, 1, "b"), (3, 3, "c"), (4, 3, None), (5, 6, "d"), (6, None, "e")]
        with opened(self.driver, rows={"customer": rows}) as driver:
            children, others = looked_up(driver, planned(driver, sql, cust=[1, 5, None], id=[1, 5, 3]))
            assert Counter([(1, 1, "a")]) <= children <= Counter(rows)
            assert Counter([(1, "a"), (1, "b")]) <= others <= Counter((row[1], row[2]) for row in rows)

    def test_no_keys_and_keys_of_nothing_but_null_are_no_error(self) -> None:
        sql = "SELECT o.id, c.name FROM s.orders o JOIN s.customer c ON o.cust = c.id"
        with opened(self.driver) as driver:
            everything = Counter((row[0], row[2]) for row in FIRST_ROWS["customer"])
            for keys in ([], [None]):
                (found,) = looked_up(driver, planned(driver, sql, cust=keys))
                assert found <= everything

    def test_a_product_is_the_whole_table_with_columns_of_conditions(self) -> None:
        sql = "SELECT o.id, c.id AS cust FROM s.orders o, s.customer c WHERE c.name <> 'x'"
        with opened(self.driver) as driver:
            (lookup,) = planned(driver, sql)
            assert (lookup.keys, lookup.parent, lookup.columns) == (None, None, ("id", "name"))
            expected = Counter((row[0], row[2]) for row in FIRST_ROWS["customer"])
            assert looked_up(driver, [lookup]) == [expected]

    def test_rows_are_counted_even_without_columns(self) -> None:
        with opened(self.driver) as driver:
            found = looked_up(driver, [Lookup(driver.tables()["customer"], ())])
            assert found == [Counter({(): len(FIRST_ROWS["customer"])})]

    @pytest.mark.parametrize("column", TYPES)
    def test_keys_and_conditions_of_every_type_lose_nothing(self, column: str) -> None:
        """`can_compare` and `can_push` may say no, but where they say yes every match is found, once."""
        gap(self.driver, f"type {column}")
        values = held(self.driver, column)
        rows = Counter(enumerate([*values, *values], 1))
        schemas = {"orders": (("id", "bigint"), ("value", column))}
        with opened(self.driver, schemas, {"orders": list(rows)}) as driver:
            table = driver.tables()["orders"]
            for kind in TYPES:
                if driver.source.can_compare(kind, column):
                    keys = _exactly(values[:2], kind)
                    wanted = _kept(rows, operator.contains, keys.to_pylist())
                    lookup = Lookup(table, table.columns, keys=pa.table({"value": keys}))
                    assert wanted <= looked_up(driver, [lookup])[0] <= rows
            for name, holds in _TESTS.items():
                comparison = Comparison("value", name, (values[0],))
                if driver.source.can_push(comparison, column):
                    wanted = _kept(rows, holds, values[0])
                    lookup = Lookup(table, table.columns, conditions=(comparison,))
                    assert wanted <= looked_up(driver, [lookup])[0] <= rows


def _kept(rows: Counter[Row], holds: Callable[[Any, Any], bool], constant: Any) -> Counter[Row]:
    """The rows whose value is on the right side of a constant; NULL is on none."""
    kept = {row: n for row, n in rows.items() if row[1] is not None and holds(constant, row[1])}
    return Counter(kept)
