"""The laws of signed bags (salem2000 §4), on arbitrary small bags."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rollview.algebra.bag import keep
from rollview.algebra.expression import Column, Literal, call
from rollview.lab.memory.bag import MemoryBag

values = st.sampled_from([None, 0, 1, 2])


def bags(*columns: str) -> st.SearchStrategy[MemoryBag]:
    rows = st.tuples(*([values] * len(columns)))
    pairs = st.lists(st.tuples(rows, st.integers(-2, 2)), max_size=6)
    return pairs.map(lambda items: MemoryBag.of_pairs(columns, items))


r_bags, s_bags, t_bags = bags("a", "b"), bags("a", "b"), bags("c", "d")
conditions = st.sampled_from(
    [
        call("<", Column("a"), Column("b")),
        call("OR", call("IS NULL", Column("a")), call("=", Column("b"), Literal(1))),
        call("NOT", call("=", Column("a"), Literal(0))),
    ]
)


@given(r_bags, s_bags, r_bags)
def test_plus_is_a_commutative_group(r: MemoryBag, s: MemoryBag, q: MemoryBag) -> None:
    assert r.plus(s) == s.plus(r)
    assert r.plus(s).plus(q) == r.plus(s.plus(q))
    assert r.plus(r.negate()).is_empty()


@given(r_bags, s_bags, t_bags)
def test_join_distributes_over_plus(r: MemoryBag, s: MemoryBag, t: MemoryBag) -> None:
    on = [("b", "c")]
    condition = call("<=", Column("a"), Column("d"))
    assert r.plus(s).join(t, on, condition) == r.join(t, on, condition).plus(s.join(t, on, condition))
    assert r.negate().join(t, on) == r.join(t, on).negate()


@given(r_bags, t_bags)
def test_join_is_a_product_with_a_condition(r: MemoryBag, t: MemoryBag) -> None:
    equal = call("=", Column("b"), Column("c"))
    assert r.join(t, [("b", "c")]) == r.join(t, []).select(equal)


@given(r_bags, t_bags)
def test_null_never_joins(r: MemoryBag, t: MemoryBag) -> None:
    assert all(row[1] is not None and row[2] is not None for row in r.join(t, [("b", "c")]).counts)


@given(r_bags, t_bags)
def test_counts_multiply(r: MemoryBag, t: MemoryBag) -> None:
    for row, count in r.join(t, []).counts.items():
        assert count == r.counts[row[:2]] * t.counts[row[2:]]


@given(r_bags, s_bags, conditions)
def test_select_and_project_are_linear(r: MemoryBag, s: MemoryBag, condition: object) -> None:
    assert r.plus(s).select(condition) == r.select(condition).plus(s.select(condition))  # type: ignore[arg-type]
    outputs = [("x", call("+", Column("a"), Column("b"))), ("b", Column("b"))]
    assert r.plus(s).project(outputs) == r.project(outputs).plus(s.project(outputs))


@given(r_bags)
def test_distinct_forgets_counts_but_no_row(r: MemoryBag) -> None:
    support = r.distinct(["a"])
    assert set(support.counts) == {(row[0],) for row in r.counts}
    assert set(support.counts.values()) <= {1}
    assert r.distinct(["a"]) == r.negate().distinct(["a"])


@given(r_bags, s_bags)
def test_summaries_add_up(r: MemoryBag, s: MemoryBag) -> None:
    """A summary delta applied to a summary is the summary of the sum (Mumick et al., beyer2000 §2)."""
    measures = [("n", Literal(1)), ("total", Column("b"))]
    sums = [("n", Column("n")), ("total", Column("total"))]
    both = r.summarize(["a"], measures).plus(s.summarize(["a"], measures)).summarize(["a"], sums)
    direct = r.plus(s).summarize(["a"], measures)
    nonzero = call("OR", call("<>", Column("n"), Literal(0)), call("<>", Column("total"), Literal(0)))
    assert both.select(nonzero) == direct.select(nonzero)


def test_a_summary_without_keys_has_one_group_even_of_nothing() -> None:
    nothing = MemoryBag.of(("a",), [])
    assert nothing.summarize([], [("n", Literal(1))]).counts == {(0,): 1}
    assert nothing.summarize(["a"], [("n", Literal(1))]).is_empty()


def test_keep_passes_columns_on() -> None:
    bag = MemoryBag.of(("a", "b"), [(1, 2), (1, 2)])
    assert bag.project(keep(["b"])).counts == {(2,): 2}
