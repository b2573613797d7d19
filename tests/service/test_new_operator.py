"""Operators are open: one written here, as one class, is maintained with no change anywhere else.

`AtLeastTwice` shows each row that occurs at least twice, once. It is not linear: a row appears with its
second copy, and goes when the last but one is deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from shop import VIEWS, Shop, check_all, shown, transact
from sqlglot import exp

from rollview.algebra.bag import Bag, keep
from rollview.algebra.expression import Column, Literal, call
from rollview.algebra.history import CSN
from rollview.algebra.node import Node
from rollview.algebra.relation import Table
from rollview.lab.memory.bag import MemoryBag
from rollview.operators.block import sum_of
from rollview.operators.registry import added
from rollview.operators.translation import Translation
from rollview.planning import parse_view, render
from rollview.project.project import Project
from rollview.sql.grammar import Syntax

B = TypeVar("B", bound=Bag)
_COPIES = "_copies"


@dataclass(frozen=True)
class AtLeastTwice(Node):
    """SELECT columns FROM … GROUP BY the same columns HAVING count(*) >= 2."""

    input: Node

    name: ClassVar[str] = "at least twice"
    comes_first: ClassVar[bool] = True
    syntax: ClassVar[Syntax] = {exp.Select: ("having",), exp.Having: ("this",)}

    @staticmethod
    def claims(query: exp.Expr) -> bool:
        return isinstance(query, exp.Select) and bool(query.args.get("having"))

    @classmethod
    def translate(cls, query: exp.Expr, translation: Translation) -> Node:
        assert query.args["having"].this.sql() == "COUNT(*) >= 2"
        plain = query.copy()
        plain.set("having", None)
        plain.set("group", None)
        return cls(sum_of(translation.drafts(plain), translation))

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    @property
    def output_columns(self) -> tuple[str, ...]:
        return self.input.output_columns

    def absorb(self, position: int, rows: B, *extra: str) -> B:  # noqa: ARG002
        return rows.project(keep((*self.output_columns, *extra)))

    def present(self, state: B, *extra: str) -> B:
        columns = (*self.output_columns, *extra)
        counted = state.summarize(columns, [(_COPIES, Literal(1))])
        return counted.select(call(">=", Column(_COPIES), Literal(2))).project(keep(columns))

    def render(self, place: str = "") -> Iterator[str]:
        yield f"{self.name}{place}"
        yield from self.input.render()

    def explain(self) -> str:
        return "all rows with their counts; a row is shown from its second copy on"


@pytest.fixture(autouse=True)
def operator() -> Iterator[None]:
    with added(AtLeastTwice):
        yield


_TABLE = Table("s", "r", ("a", "b"))
_SQL = "SELECT a, b FROM s.r GROUP BY a, b HAVING count(*) >= 2"
_ROW = st.tuples(st.one_of(st.none(), st.integers(0, 1)), st.integers(0, 1))


@given(
    first=st.lists(_ROW, max_size=6),
    changes=st.lists(st.tuples(_ROW, st.booleans(), st.integers(1, 4)), max_size=12),
)
def test_oracle_every_csn_in_memory(
    first: list[tuple[int | None, int]], changes: list[tuple[tuple[int | None, int], bool, int]]
) -> None:
    """The rows shown at each csn, rolled and by change points, against counting from scratch."""
    root = parse_view(_SQL, [_TABLE]).root
    there, timed, expected = Counter(first), Counter(), []
    for csn in range(1, 5):
        for row, deleted, at in changes:
            if at == csn and (not deleted or there[row]):
                there[row] += -1 if deleted else 1
                timed[*row, csn] += -1 if deleted else 1
        expected.append({row: 1 for row, count in there.items() if count >= 2})
    state = root.state_of(iter([MemoryBag.of(("a", "b"), first)]))
    delta = root.lift(0, MemoryBag.of_pairs(("a", "b", CSN), timed.items()), CSN)
    rows, shown_now = root.row_delta(state, delta, 0), root.present(state)
    for csn, wanted in enumerate(expected, 1):
        own = delta.select(call("=", Column(CSN), Literal(csn)))
        state = root.roll(state, own)
        changed = rows.select(call("=", Column(CSN), Literal(csn))).project(keep(("a", "b")))
        shown_now = shown_now.plus(changed)
        assert root.present(state).counts == shown_now.counts == wanted


REPEATED = """SELECT s.cust_id, c.state FROM shop.sales s JOIN crm.customer c ON s.cust_id = c.cust_id
    GROUP BY s.cust_id, c.state HAVING count(*) >= 2"""


@pytest.mark.slow
def test_maintained_on_spark_with_no_change_elsewhere(tmp_path: Path, spark: SparkSession) -> None:
    """Load, propagate, apply, as-of, deltas, condense, verify, explain; another view reads it."""
    views = {
        **VIEWS,
        "repeated": REPEATED,
        "repeats": "SELECT state, count(*) AS n FROM repeated GROUP BY state",
    }
    shop = Shop(tmp_path / "shop", views)
    transact(shop, 40)
    shop.begin()
    with Project.open(shop.folder, spark) as project:
        project.setup()
        assert shown(project, "repeated") == shop.expected_now("repeated") != Counter()
        transact(shop, 25)
        check_all(shop, project)
        last = project.status().last_csn
        for csn in range(last + 1):
            assert shown(project, "repeated", csn) == shop.expected(project, "repeated", csn), csn
        total = Counter(shown(project, "repeated", 0))
        for *row, count, csn in (
            project.deltas("repeated", 0).select("cust_id", "state", "_count", "_csn").collect()
        ):
            assert 1 <= csn <= last
            total[tuple(row)] += count
        assert +total == shown(project, "repeated", last)
        project.condense("repeated", last - 10, last - 2)
        for csn in (0, last - 10, last - 2, last):
            assert shown(project, "repeated", csn) == shop.expected(project, "repeated", csn), csn
        transact(shop, 5)
        check_all(shop, project)
        assert all(each.is_right for each in project.verify())
        explanation = project.explain("repeated")
        assert "at least twice" in explanation.normal_form
        assert ("at least twice", AtLeastTwice.explain(None)) in explanation.operators  # type: ignore[arg-type]
    shop.close()


def test_rendered_alone() -> None:
    assert render(parse_view(_SQL, [_TABLE])).splitlines()[1] == "at least twice"
