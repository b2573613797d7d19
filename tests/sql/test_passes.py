"""Every pass by example: what a query looks like before it, and behind it.

`fixtures` has one file for each pass, called as its module. A case starts with `-- case: title`. Lines `-->`
are the query behind the pass; `--> the same` is one that it leaves alone. Lines `--!` are parts of an error.
That both queries mean the same is checked elsewhere, by DuckDB and Spark (`tests/planning`, `tests/service`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import sqlglot

from rollview.algebra.relation import Table
from rollview.sql.dialect import DIALECT
from rollview.sql.errors import NodeError
from rollview.sql.pipeline import SELECT_PASSES, SPELLING_PASSES, TABLE_PASSES, Pass

PASSES = {
    each.__module__.rpartition(".")[2]: each for each in (*SPELLING_PASSES, *TABLE_PASSES, *SELECT_PASSES)
}
FIXTURES = Path(__file__).parent / "fixtures"
TABLES = (
    Table("shop", "sales", ("sale_id", "cust_id", "product", "amount"), ("sale_id",)),
    Table("shop", "quarters", ("product", "q1", "q2")),
    Table("shop", "clicks", ("user", "at", "tags")),
    Table("shop", "visits", ("id", "place"), types=("bigint", "struct<town:string,at:struct<x:int,id:int>>")),
    Table("shop", "totals", ("a", "All")),
    Table("crm", "customer", ("cust_id", "name", "state"), ("cust_id",)),
)


@dataclass(frozen=True)
class Case:
    run: Pass
    sql: str
    after: str
    error: tuple[str, ...]


def cases_of(path: Path) -> Iterator[tuple[str, Case]]:
    for text in path.read_text(encoding="utf-8").split("-- case: ")[1:]:
        title, *lines = text.splitlines()
        sql = "\n".join(line for line in lines if not line.startswith(("-->", "--!")))
        after = "\n".join(line[4:] for line in lines if line.startswith("-->"))
        error = tuple(line[4:] for line in lines if line.startswith("--!"))
        yield title, Case(PASSES[path.stem], sql, after, error)


CASES = [
    pytest.param(case, id=f"{path.stem}: {title}")
    for path in sorted(FIXTURES.glob("*.sql"))
    for title, case in cases_of(path)
]


@pytest.mark.parametrize("case", CASES)
def test_fixture(case: Case) -> None:
    assert bool(case.after) != bool(case.error), "a case expects a query or an error"
    query = sqlglot.parse_one(case.sql, dialect=DIALECT)
    if case.error:
        with pytest.raises(NodeError) as raised:
            case.run(query, TABLES)
        for part in case.error:
            assert part in str(raised.value)
        return
    before = query.sql(dialect=DIALECT)
    found = case.run(query, TABLES)
    if case.after == "the same":
        assert found is query and found.sql(dialect=DIALECT) == before
    else:
        assert found.sql(dialect=DIALECT, pretty=True) == case.after


def test_every_pass_has_its_fixture() -> None:
    assert {path.stem for path in FIXTURES.glob("*.sql")} == set(PASSES)
