"""An independent judge of queries of any shape: computed by us and by DuckDB, they must agree.

Twice: as a whole, from complete tables; and along a history of transactions, where every operator gets the
timed deltas of its inputs and gives its own, and the view must be right at every csn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

import duckdb
import pytest
from any_query import AnyQuery

from rollview.algebra.bag import MemoryBag, keep
from rollview.algebra.expression import Literal
from rollview.algebra.history import CSN
from rollview.algebra.relation import Table
from rollview.algebra.view import View
from rollview.errors import UnsupportedError
from rollview.planning import parse_view
from rollview.service.content import block_contents, with_stages

TABLES = (
    Table("north", "t", ("k", "x", "word")),
    Table("north", "u", ("k", "y", "word"), ("k",)),
    Table("south", "v", ("k", "z")),
)
TYPES = {"k": "BIGINT", "x": "BIGINT", "y": "BIGINT", "z": "BIGINT", "word": "VARCHAR"}
TRANSACTIONS = 4

Content = dict[str, Counter[tuple[Any, ...]]]


def random_row(random: Random, table: Table) -> tuple[Any, ...]:
    def value(name: str) -> Any:
        if name not in table.key and random.random() < 0.15:
            return None
        return random.choice("ab") if name == "word" else random.randint(0, 2)

    return tuple(value(name) for name in table.columns)


def change(random: Random, content: Content) -> None:
    """A few rows come and go; a key stays one."""
    for _ in range(random.randint(1, 3)):
        table = random.choice(TABLES)
        rows = content[table.qualified]
        row = random_row(random, table)
        if rows and random.random() < 0.45:
            gone = random.choice(sorted(rows, key=repr))
            rows[gone] -= 1
            if not rows[gone]:
                del rows[gone]
        elif not table.key or row[0] not in {other[0] for other in rows}:
            rows[row] += 1


def history(random: Random) -> list[Content]:
    """The tables at csn 0, 1, 2 …"""
    content: Content = {table.qualified: Counter() for table in TABLES}
    for _ in range(random.choice((0, 3, 6))):
        change(random, content)
    states = [{name: Counter(rows) for name, rows in content.items()}]
    for _ in range(TRANSACTIONS):
        change(random, content)
        states.append({name: Counter(rows) for name, rows in content.items()})
    return states


def bags(content: Content) -> dict[str, MemoryBag]:
    return {
        table.qualified: MemoryBag.of_pairs(table.columns, content[table.qualified].items())
        for table in TABLES
    }


def by_duckdb(sql: str, content: Content) -> dict[tuple[Any, ...], int]:
    with duckdb.connect() as database:
        for table in TABLES:
            database.execute(f"CREATE SCHEMA IF NOT EXISTS {table.source}")
            columns = ", ".join(f"{name} {TYPES[name]}" for name in table.columns)
            database.execute(f"CREATE TABLE {table.qualified} ({columns})")
            rows = list(content[table.qualified].elements())
            if rows:
                database.executemany(
                    f"INSERT INTO {table.qualified} VALUES ({', '.join('?' * len(rows[0]))})", rows
                )
        return dict(Counter(database.execute(sql).fetchall()))


def along(view: View, states: list[dict[str, MemoryBag]]) -> Iterator[MemoryBag]:
    """The view at every csn: its content at csn 0, rolled along timed deltas, part after part."""
    known = [dict(tables) for tables in states]
    for part in view.parts:
        root = part.root
        contents = [list(block_contents(root, tables)) for tables in known]
        start = root.state_of(iter(contents[0]))
        delta = None
        for number in range(len(root.blocks)):
            for csn in range(1, len(states)):
                step = contents[csn][number].plus(contents[csn - 1][number].negate())
                timed = step.project((*keep(step.columns), (CSN, Literal(csn))))
                lifted = root.lift(number, timed, CSN)
                delta = lifted if delta is None else delta.plus(lifted)
        assert delta is not None
        rows = root.present(start)
        changes = root.row_delta(start, delta, 0)
        for csn, tables in enumerate(known):
            upto = [(row, count) for row, count in changes.counts.items() if row[-1] <= csn]
            piece = MemoryBag.of_pairs(changes.columns, upto).project(keep(rows.columns))
            tables[part.name] = rows.plus(piece)
            rolled = root.roll(start, _up_to(delta, csn))
            assert root.present(rolled) == tables[part.name], (part.name, csn)
    return (tables[view.name] for tables in known)


def _up_to(delta: MemoryBag, csn: int) -> MemoryBag:
    place = delta.columns.index(CSN)
    return MemoryBag(delta.columns, {row: count for row, count in delta.counts.items() if row[place] <= csn})


def check(seed: int, depth: int) -> bool:
    """Whether a random query was tried: few are refused."""
    random = Random(seed)
    sql = AnyQuery(random).query(depth)
    try:
        view = parse_view(sql, TABLES, "v")
    except UnsupportedError as error:
        assert str(error).startswith(REFUSED), (seed, sql, str(error))
        return False
    states = history(random)
    expected: list[Mapping[tuple[Any, ...], int]] = [by_duckdb(sql, each) for each in states]
    contents = [bags(each) for each in states]
    for csn, tables in enumerate(contents):
        whole = view.root.rows_of(block_contents(view.root, with_stages(view, tables)))
        assert whole.counts == expected[csn], (seed, csn, sql)
    for csn, rows in enumerate(along(view, contents)):
        assert rows.counts == expected[csn], (seed, csn, sql)
    return True


REFUSED = (
    "a subquery with an aggregate, correlated by more than equality",
    "EXISTS inside an expression, correlated by more than equality",
)


@pytest.mark.parametrize("part", range(8))
def test_oracle_any_query(part: int) -> None:
    tried = sum(check(1000 * part + number, 1 + number % 4) for number in range(60))
    assert tried > 50
