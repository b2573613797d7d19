"""An independent judge of queries of any shape: computed by us and by DuckDB, they must agree.

Twice: as a whole, from complete tables; and along a history of transactions, where every operator gets the
timed deltas of its inputs and gives its own, and the view must be right at every csn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from random import Random
from typing import Any
from unittest.mock import patch

import duckdb
import pytest
from any_query import AnyQuery

from rollview.algebra import change_points
from rollview.algebra.bag import keep
from rollview.algebra.expression import Literal
from rollview.algebra.history import CSN
from rollview.algebra.relation import Table
from rollview.algebra.view import View, is_stage
from rollview.lab.memory.bag import MemoryBag
from rollview.planning import parse_view
from rollview.views.content import block_contents, with_stages
from rollview.views.lookup import used_tables

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


@cache
def _database() -> duckdb.DuckDBPyConnection:
    """One DuckDB for all: a new one for every state takes longer than what is asked of it."""
    database = duckdb.connect()
    for table in TABLES:
        database.execute(f"CREATE SCHEMA IF NOT EXISTS {table.source}")
        columns = ", ".join(f"{name} {TYPES[name]}" for name in table.columns)
        database.execute(f"CREATE TABLE {table.qualified} ({columns})")
    return database


def by_duckdb(sql: str, content: Content) -> dict[tuple[Any, ...], int]:
    database = _database()
    for table in TABLES:
        database.execute(f"DELETE FROM {table.qualified}")
        rows = list(content[table.qualified].elements())
        if rows:
            one = f"({', '.join('?' * len(rows[0]))})"
            statement = f"INSERT INTO {table.qualified} VALUES {', '.join([one] * len(rows))}"
            database.execute(statement, [value for row in rows for value in row])
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


def check(seed: int, depth: int) -> None:
    """A random query."""
    random = Random(seed)
    sql = AnyQuery(random).query(depth)
    check_along(parse_view(sql, TABLES, "v"), sql, history(random), seed)


def check_along(view: View, sql: str, states: list[Content], seed: int) -> None:
    """The view at every csn, as a whole and along the history."""
    expected: list[Mapping[tuple[Any, ...], int]] = [by_duckdb(sql, each) for each in states]
    contents = [bags(each) for each in states]
    for csn, tables in enumerate(contents):
        whole = view.root.rows_of(block_contents(view.root, with_stages(view, tables)))
        assert whole.counts == expected[csn], (seed, csn, sql)
    # In every second history all keys count as hot.
    few = change_points.FEW_PAIRS if seed % 2 else -1
    with patch.object(change_points, "FEW_PAIRS", few):
        for csn, rows in enumerate(along(view, contents)):
            assert rows.counts == expected[csn], (seed, csn, sql)


@pytest.mark.parametrize("part", range(8))
def test_oracle_any_query(part: int) -> None:
    for number in range(60):
        check(1000 * part + number, 1 + number % 4)


WRITTEN = {
    "columns of a star with one name": "SELECT * FROM north.t JOIN north.u ON t.k = u.k",
    "such a star inside": """SELECT a.*, v.z FROM (SELECT t.*, u.* FROM north.t JOIN north.u ON t.x = u.y) a
        LEFT JOIN south.v ON a.x = v.k""",
    "a query inside a sum": """SELECT k, sum(CASE WHEN EXISTS (SELECT 1 FROM north.u WHERE u.k = t.k)
        THEN x ELSE 0 END) AS s FROM north.t GROUP BY k""",
    "a query inside FILTER": """SELECT k, count(*) FILTER (WHERE x IN (SELECT z FROM south.v)) AS n
        FROM north.t GROUP BY k""",
    "a query as a key": """SELECT EXISTS (SELECT 1 FROM north.u WHERE u.k = t.x) AS e, count(*) AS n
        FROM north.t GROUP BY 1""",
    "a query as a key that is not shown": """SELECT count(*) AS n FROM north.t
        GROUP BY EXISTS (SELECT 1 FROM north.u WHERE u.k = t.x)""",
    "a query about a group": """SELECT t.k, (SELECT max(y) FROM north.u WHERE u.k = t.k) AS m, sum(x) AS s
        FROM north.t GROUP BY t.k""",
    "a query about a sum of a group": """SELECT k FROM north.t GROUP BY k
        HAVING EXISTS (SELECT 1 FROM south.v WHERE v.z < min(t.x))""",
    "a query about a group inside a query": """SELECT k FROM south.v WHERE EXISTS (
        SELECT t.k FROM north.t WHERE t.k = v.k GROUP BY t.k
        HAVING (SELECT count(*) FROM north.u WHERE u.k = t.k) < count(*))""",
    "one group with HAVING alone": "SELECT 1 AS one FROM north.t HAVING EXISTS (SELECT 1 FROM south.v)",
    "correlated, with HAVING alone": """SELECT k FROM north.t
        WHERE x IN (SELECT 1 FROM north.u WHERE u.k = t.k HAVING count(*) = 0)""",
    "groups that exist": """SELECT k FROM north.t
        WHERE EXISTS (SELECT max(z) FROM south.v GROUP BY k HAVING max(z) = t.x LIMIT 1)""",
    "a row that is not there": "SELECT k, x FROM north.t WHERE (k, x) NOT IN (SELECT k, z FROM south.v)",
    "a row, perhaps": "SELECT k, (k, x) IN (SELECT k, y FROM north.u) AS b FROM north.t",
    "ON of a right join asks about the left": """SELECT t.k, u.y FROM north.t RIGHT JOIN north.u
        ON t.k = u.k AND EXISTS (SELECT 1 FROM south.v WHERE v.k = t.x)""",
    "ON of a full join asks about the right": """SELECT t.k, u.y FROM north.t FULL JOIN north.u
        ON t.k = u.k AND u.y NOT IN (SELECT z FROM south.v)""",
    "ON of a full join asks about nothing": """SELECT t.k, u.y FROM north.t FULL JOIN north.u
        ON t.k = u.k AND (SELECT count(*) FROM south.v) > 2""",
    "no keys at all": "SELECT count(*) AS n, max(x) AS m FROM north.t GROUP BY GROUPING SETS (())",
    "constants before what some find": """SELECT v.a, t.x FROM (VALUES (1, 'a'), (2, 'b')) v(a, b)
        RIGHT JOIN north.t ON t.k = v.a""",
    "a query without a name among the outputs": """SELECT k, (SELECT max(y) FROM north.u WHERE u.k = t.k)
        FROM north.t""",
    "WITH names the columns of VALUES": """WITH c(a, b) AS (VALUES (1, 2), (0, 1))
        SELECT t.k, c.b FROM north.t JOIN c ON t.k = c.a""",
    "FROM names the columns of WITH": """WITH c(a, b) AS (SELECT k, sum(z) FROM south.v GROUP BY k)
        SELECT d.x, d.y, c.b FROM c AS d(x, y) JOIN c ON d.x = c.a""",
    "VALUES in a union": "SELECT k FROM north.t UNION ALL VALUES (7)",
    "LIMIT of one row": "SELECT k FROM north.t WHERE x = (SELECT max(z) FROM south.v LIMIT 1)",
    "an output names another one": "SELECT k + 1 AS j, j * 2 AS m FROM north.t",
    "a subquery names its columns": """SELECT q.b FROM (
        SELECT k, count(*) AS n FROM north.t GROUP BY k) AS q(a, b)""",
    "a table names its columns": "SELECT t.b FROM south.v AS t(a, b) WHERE a > 0",
    "row values": "SELECT k FROM north.t WHERE (k, word) IN (SELECT k, word FROM north.u)",
    "the same name inside": "SELECT k FROM north.t WHERE x IN (SELECT k AS x FROM south.v)",
    "the same name inside, negated": "SELECT k FROM north.t WHERE x NOT IN (SELECT k AS x FROM south.v)",
    "all columns inside": "SELECT k FROM north.t WHERE x IN (SELECT * FROM (SELECT z FROM south.v) v)",
    "an edge in every side of OR": """SELECT a.k, b.z FROM north.t a, south.v b
        WHERE (a.k = b.k AND a.x = 1) OR (a.k = b.k AND a.word = 'a')""",
    "others of the same group": """SELECT a.k, b.y FROM north.t a, north.u b WHERE a.k = b.k
        AND EXISTS (SELECT 1 FROM north.t c WHERE c.k = a.k AND c.x <> a.x)
        AND NOT EXISTS (SELECT 1 FROM north.t d WHERE d.k = a.k AND d.x <> a.x AND d.word = 'a')""",
    "an outer join with a key": "SELECT t.k, u.y FROM north.t LEFT JOIN north.u ON t.k = u.k",
    "an outer join that is none": "SELECT t.k, u.y FROM north.t LEFT JOIN north.u ON t.x = u.k WHERE u.y > 0",
    "a chain of outer joins": """SELECT t.k, u.y, v.z FROM north.t LEFT JOIN north.u ON t.k = u.k
        LEFT JOIN south.v ON v.k = u.y""",
    "an outer join of an outer join": """SELECT t.k, q.y, q.z FROM north.t
        LEFT JOIN (SELECT y, z FROM north.u FULL JOIN south.v ON u.k = v.z) q ON t.k = q.y""",
    "the largest of each group": """SELECT a.k, a.x FROM north.t a
        WHERE a.x = (SELECT max(b.x) FROM north.t b WHERE b.k = a.k)""",
    "more than its share": """SELECT k, sum(x) AS s FROM north.t GROUP BY k
        HAVING sum(x) > (SELECT sum(x) / 2.0 FROM north.t)""",
    "many outer joins": """SELECT a.x, b.y, c.z, d.word, e.y AS more FROM north.t a
        LEFT JOIN north.u b ON b.k = a.x LEFT JOIN south.v c ON c.k = b.y
        LEFT JOIN north.t d ON d.k = c.z LEFT JOIN north.u e ON e.k = a.k AND e.word = d.word""",
    "a sum of queries, joined with itself": """WITH c AS (SELECT k, x AS n FROM north.t
          UNION ALL SELECT k, count(*) FROM north.u GROUP BY k UNION ALL SELECT k, z FROM south.v)
        SELECT p.k, p.n, q.n AS m, r.n AS o FROM c p, c q, c r WHERE p.k = q.k AND q.n = r.k""",
    "what all sides of OR have in common, in a subquery": """SELECT DISTINCT k FROM north.t a WHERE
        (SELECT count(*) FROM north.u b WHERE (b.k = a.k AND b.y > 0) OR (b.k = a.k AND b.word = 'a')) > 0""",
    "rows of constants": """SELECT t.k, v.name, t.x FROM north.t
        JOIN (VALUES (0, 'none'), (1, 'one'), (1, 'uno')) AS v(n, name) ON t.k = v.n
        WHERE v.name <> 'none' OR t.x > 0""",
    "a constant beside": """SELECT t.k, c.n FROM north.t, (SELECT 1 AS n UNION ALL SELECT 2) c
        WHERE t.x >= c.n""",
    "all columns beside a subquery": "SELECT * FROM north.t WHERE x > (SELECT avg(y) FROM north.u)",
    "a value where there is nothing": """SELECT a.x, (
        SELECT coalesce(max(b.y), 0) FROM north.u b WHERE b.word = a.word) AS m FROM north.t a""",
    "a count of some where there is nothing": """SELECT a.x, (
        SELECT count(*) FILTER (WHERE b.y > 0) FROM north.u b WHERE b.word = a.word) AS n FROM north.t a""",
    "correlated in a query in FROM": """SELECT a.x, (SELECT max(n) FROM (
        SELECT count(*) AS n FROM north.u b WHERE b.word = a.word GROUP BY b.y) c) AS m FROM north.t a""",
    "correlated on both sides of UNION": """SELECT a.x FROM north.t a WHERE a.x IN (
        SELECT b.y FROM north.u b WHERE b.word = a.word
        UNION ALL SELECT c.k FROM south.v c WHERE c.z = a.x)""",
    "correlated beside a RIGHT JOIN": """SELECT a.x, (SELECT sum(v.z - u.y) FROM north.u
        RIGHT JOIN south.v ON u.k = v.k WHERE v.z <> a.x) AS s FROM north.t a""",
    "lateral with a count": """SELECT a.x, l.n, l.m FROM north.t a, LATERAL (
        SELECT count(*) AS n, max(b.y) AS m FROM north.u b WHERE b.y < a.x) l""",
    "lateral over lateral": """SELECT a.x, l.m, p.n FROM north.t a, LATERAL (SELECT a.x + 1 AS m) l,
        LATERAL (SELECT count(*) AS n FROM south.v b WHERE b.z > l.m) p""",
    "all columns of lateral": """SELECT * FROM (SELECT x FROM north.t) a,
        LATERAL (SELECT max(b.y) AS m FROM north.u b WHERE b.y < a.x) l""",
    "lateral that names its columns": """SELECT a.x, l.m FROM north.t a
        LEFT JOIN LATERAL (SELECT b.y FROM north.u b WHERE b.k = a.k) l(m) ON l.m > 0""",
    "lateral alone": "SELECT l.x FROM LATERAL (SELECT x FROM north.t) l",
    "a column from outside in parentheses": """SELECT l.w, l.y FROM north.t a
        CROSS JOIN LATERAL (SELECT (a.word) AS w, b.y FROM north.u b WHERE b.k < a.k) l""",
    "a RIGHT JOIN behind lateral": """SELECT a.x, l.y, v.z FROM north.t a
        CROSS JOIN LATERAL (SELECT b.y FROM north.u b WHERE b.k <= a.k) l
        RIGHT JOIN south.v ON v.k = l.y WHERE a.x IS NULL""",
    "a subquery in ON, about the right": """SELECT a.x, b.y FROM north.t a
        LEFT JOIN north.u b ON b.k = a.k AND b.y IN (SELECT z FROM south.v)""",
    "a subquery in ON, about both": """SELECT a.x, b.y FROM north.t a LEFT JOIN north.u b ON b.k = a.k
        AND EXISTS (SELECT 1 FROM south.v c WHERE c.z > a.x AND c.k = b.y)""",
    "a subquery in ON of a semi join": """SELECT a.x FROM north.t a
        SEMI JOIN north.u b ON b.k = a.k AND b.y > (SELECT min(z) FROM south.v)""",
    "NULL finds NULL": """SELECT a.k, a.x, b.y FROM north.t a
        FULL JOIN north.u b ON a.word IS NOT DISTINCT FROM b.word""",
    "constants with rows of their own": """SELECT v.a, t.x FROM (
        VALUES (1, 'a'), (2, 'b'), (NULL, 'c')) v(a, b) LEFT JOIN north.t ON t.k = v.a""",
    "constants that some rows find": """SELECT t.x, v.b FROM north.t
        FULL JOIN (VALUES (1, 'a'), (2, 'b')) v(a, b) ON t.k = v.a""",
    "one more row": "SELECT x FROM north.t UNION ALL SELECT 7",
    "values beside each other": """SELECT (SELECT count(*) FROM north.t) AS n,
        (SELECT max(y) FROM north.u) AS m""",
    "a subquery inside of one": """SELECT k FROM north.t WHERE k IN (
        SELECT k FROM north.u WHERE y > (SELECT min(z) FROM south.v WHERE v.k = u.k))""",
}


PIVOTED = {
    "all columns as arguments": (
        "SELECT coalesce(*) AS c, greatest(v.*, 1) AS g FROM south.v",
        "SELECT coalesce(k, z), greatest(k, z, 1) FROM south.v",
    ),
    # DuckDB writes these differently; Spark's meaning of them, written out, is what it is asked.
    "all but a column": ("SELECT * EXCEPT (word) FROM north.t", "SELECT k, x FROM north.t"),
    "all but a column of one": (
        "SELECT t.* EXCEPT (k, x), v.z FROM north.t JOIN south.v ON t.k = v.k",
        "SELECT t.word, v.z FROM north.t JOIN south.v ON t.k = v.k",
    ),
    "pivot": (
        "SELECT * FROM north.t PIVOT (sum(x) FOR word IN ('a', 'b' AS other, NULL)) p",
        """SELECT k, sum(CASE WHEN word = 'a' THEN x END), sum(CASE WHEN word = 'b' THEN x END),
            sum(CASE WHEN word IS NULL THEN x END) FROM north.t GROUP BY k""",
    ),
    "pivot with several functions": (
        """SELECT k, a_n, a_hi FROM (SELECT k, x, word FROM north.t)
            PIVOT (count(*) AS n, max(x) AS hi FOR word IN ('a'))""",
        """SELECT k, CASE WHEN count(*) FILTER (word = 'a') > 0 THEN count(*) FILTER (word = 'a') END,
            max(x) FILTER (word = 'a') FROM north.t GROUP BY k""",
    ),
    "pivot of all rows": (
        "SELECT a FROM (SELECT x, word FROM north.t) PIVOT (min(x) FOR word IN ('a'))",
        "SELECT min(x) FILTER (word = 'a') FROM north.t",
    ),
    "unpivot": (
        "SELECT * FROM north.t UNPIVOT (v FOR which IN (k, x AS other)) u WHERE v > 0",
        """SELECT word, 'k', k FROM north.t WHERE k > 0 UNION ALL
            SELECT word, 'other', x FROM north.t WHERE x > 0""",
    ),
    "unpivot with NULLs": (
        "SELECT which, v FROM (SELECT k, x FROM north.t) UNPIVOT INCLUDE NULLS (v FOR which IN (k, x))",
        "SELECT 'k', k FROM north.t UNION ALL SELECT 'x', x FROM north.t",
    ),
}


@pytest.mark.parametrize(("sql", "plainly"), PIVOTED.values(), ids=PIVOTED)
def test_oracle_what_duckdb_writes_differently(sql: str, plainly: str) -> None:
    view = parse_view(sql, TABLES, "v")
    for seed in range(25):
        check_along(view, plainly, history(Random(seed)), seed)


@pytest.mark.parametrize("sql", [pytest.param(sql, id=title) for title, sql in WRITTEN.items()])
def test_oracle_written_queries(sql: str) -> None:
    view = parse_view(sql, TABLES, "v")
    for seed in range(25):
        check_along(view, sql, history(Random(seed)), seed)


RANDOM = [AnyQuery(Random(seed)).query(3) for seed in range(200)]
UNUSED = {
    "a column that nobody reads": "SELECT a.k FROM (SELECT k, word AS w FROM north.t) a",
    "a column left out": "SELECT * EXCEPT (word) FROM north.t",
    "columns by their places": "SELECT t.b FROM north.t AS t(a, b, c)",
    "in EXISTS": "SELECT k FROM south.v WHERE EXISTS (SELECT u.word FROM north.u WHERE u.k = v.k)",
}


@pytest.mark.parametrize("sql", [*UNUSED.values(), *WRITTEN.values(), *(sql for sql, _ in PIVOTED.values())])
def test_a_text_can_be_read_over_the_columns_that_it_names(sql: str) -> None:
    _check_used(sql)


@pytest.mark.slow
def test_random_texts_can_be_read_over_the_columns_that_they_name() -> None:
    for sql in RANDOM:
        _check_used(sql)


@pytest.mark.parametrize("sql", [*WRITTEN.values(), *(sql for sql, _ in PIVOTED.values())])
def test_the_text_of_a_stage_can_be_read_alone(sql: str) -> None:
    _check_alone(sql)


@pytest.mark.slow
def test_the_text_of_a_stage_of_random_queries_can_be_read_alone() -> None:
    for sql in RANDOM:
        _check_alone(sql)


def _check_alone(sql: str) -> None:
    """A load that died leaves stages without their view; each is then known by its text."""
    parts = {part.name: part for part in parse_view(sql, TABLES, "v").parts}
    for name, part in parts.items():
        if is_stage(name):
            for alone in parse_view(part.sql, TABLES, name).parts:
                known = parts[alone.name]
                assert (alone.sql, alone.root) == (known.sql, known.root), alone.name


def _check_used(sql: str) -> None:
    view = parse_view(sql, TABLES, "v")
    used = used_tables(view, TABLES)
    again = parse_view(sql, used.values(), "v")
    assert again.root.output_columns == view.root.output_columns
    assert len(again.parts) == len(view.parts)


def test_a_column_of_the_same_name_elsewhere_is_not_used() -> None:
    sql = "SELECT t.word, u.y FROM north.t JOIN north.u ON t.k = u.k"
    used = used_tables(parse_view(sql, TABLES, "v"), TABLES)
    assert {name: table.columns for name, table in used.items()} == {
        "north.t": ("k", "word"),
        "north.u": ("k", "y"),
    }
