"""Look-ups and whole reads: nothing that is needed is missing, nothing is there twice."""

from __future__ import annotations

import tempfile
from collections import Counter
from contextlib import closing
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlite_history import bag, database, drain, ready

from rollview.algebra.expression import conjunction
from rollview.algebra.join_graph import access_path
from rollview.algebra.node import Block
from rollview.algebra.relation import Table
from rollview.algorithms.effects import Question
from rollview.lab.memory.compiled import compile_expression
from rollview.planning import parse_view
from rollview.rows import FileScan, arrow_schema
from rollview.sources.source import ReadResult
from rollview.sources.sqlite import lookup
from rollview.views.lookup import columns_to_read, plan_lookups

SCHEMA = (
    "CREATE TABLE a(id INTEGER PRIMARY KEY, word TEXT COLLATE NOCASE, day DATE, ratio REAL, flag BOOLEAN)",
    "CREATE INDEX a_word ON a(word)",
    "CREATE TABLE b(word TEXT, id INTEGER, price DECIMAL(6,2), data BLOB, moment DATETIME)",
    "CREATE INDEX b_id ON b(id, word)",
    "CREATE TABLE c(word TEXT PRIMARY KEY, n BIGINT) WITHOUT ROWID",
)
AWAY = Table(
    "x", "away", ("i", "w", "d", "f", "y", "p", "s", "z", "t"),
    types=(
        "int", "string", "date", "double", "boolean", "decimal(6,2)", "smallint", "binary", "timestamp_ntz",
    ),
)  # fmt: skip
VIEWS = (
    "SELECT a.word, away.i FROM x.away JOIN s.a ON away.i = a.id",
    "SELECT a.day FROM x.away JOIN s.a ON away.w = a.word WHERE a.id > 1",
    "SELECT a.id FROM x.away JOIN s.a ON away.d = a.day AND away.f = a.ratio AND away.y = a.flag",
    "SELECT a.id, b.price FROM x.away JOIN s.a ON away.w = a.word"
    " JOIN s.b ON a.id = b.id AND a.word = b.word",
    "SELECT b.id, c.n FROM x.away JOIN s.b ON away.p = b.price"
    " JOIN s.c ON b.word = c.word WHERE c.word = 'A'",
    "SELECT b.id FROM x.away JOIN s.b ON away.s = b.id AND away.z = b.data AND away.t = b.moment",
    "SELECT a.id FROM x.away JOIN s.a ON away.w = a.word JOIN s.a AS again ON a.word = again.word",
    "SELECT away.i FROM x.away, s.c",
    "SELECT away.i FROM x.away JOIN s.c ON away.w = c.n",
    "SELECT away.i, c.word FROM x.away JOIN s.c ON away.i = c.n WHERE c.n <= 2 AND c.word <> 'b'",
)
WORDS = st.sampled_from(["a", "A", "b", "é", ""])
NUMBERS = st.integers(0, 3)
DAYS = st.sampled_from([date(2024, 1, 1), date(2024, 1, 2)])
PRICES = st.decimals(0, 2, places=1)


def _maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


ROWS: dict[str, st.SearchStrategy[tuple[Any, ...]]] = {
    "a": st.tuples(
        _maybe(WORDS), _maybe(DAYS.map(str)), _maybe(st.sampled_from([0.5, -0.0, 0.0])), st.booleans(),
    ),
    "b": st.tuples(
        _maybe(WORDS), _maybe(NUMBERS), _maybe(PRICES.map(str)), _maybe(st.binary(max_size=1)), st.none(),
    ),
    "c": st.tuples(WORDS, _maybe(NUMBERS)),
}  # fmt: skip
KEYS = st.tuples(
    _maybe(NUMBERS), _maybe(WORDS), _maybe(DAYS), _maybe(st.sampled_from([0.5, 0.0])), _maybe(st.booleans()),
    _maybe(PRICES), _maybe(NUMBERS), _maybe(st.binary(max_size=1)), st.none(),
)  # fmt: skip


def question_of(block: Block, keys: list[tuple[Any, ...]]) -> Question[pa.Table]:
    """The first question that the view asks source s, with these rows of `away` known."""
    ((sub_query,),) = access_path(block, 0).rounds
    schema = arrow_schema(zip(block.relations[0].columns, AWAY.types, strict=True))
    rows = [dict(zip(schema.names, key, strict=True)) for key in keys]
    known = pa.Table.from_pylist(rows, schema)
    shipped = [
        None
        if join_step.parent is None
        else known.select([parent for parent, _ in join_step.on])
        .group_by([p for p, _ in join_step.on])
        .aggregate([])
        for join_step in sub_query.join_steps
        if join_step.shipped
    ]
    return Question(block, sub_query, tuple(shipped))


def check(question: Question[pa.Table], answer: ReadResult, whole: dict[str, Any]) -> None:
    """What is needed ≤ what was answered ≤ what is there, relation by relation, as bags."""
    block = question.block
    needed: dict[int, list[tuple[Any, ...]]] = {}
    shipped = iter(question.keys)
    for join_step, rows in zip(question.sub_query.join_steps, answer.rows, strict=True):
        relation = block.relations[join_step.relation]
        holds = compile_expression(conjunction(block.local[join_step.relation]), relation.columns)
        places = [relation.columns.index(own) for _, own in join_step.on]
        wanted: set[tuple[Any, ...]] | None = None
        keys = next(shipped) if join_step.shipped else None
        if keys is not None:
            wanted = {tuple(row.values()) for row in keys.to_pylist()}
        elif join_step.parent is not None:
            parent = block.relations[join_step.parent]
            theirs = [parent.columns.index(name) for name, _ in join_step.on]
            wanted = {tuple(row[place] for place in theirs) for row in needed[join_step.parent]}
        present = [row for row, n in whole[relation.table.name].items() for _ in range(n)]
        needed[join_step.relation] = [
            row
            for row in present
            if holds(row) is True
            and (wanted is None or ((key := tuple(row[p] for p in places)) in wanted and None not in key))
        ]
        names = columns_to_read(block, join_step.relation)
        assert isinstance(rows, pa.Table)
        assert rows.column_names == [*names, "_count"]
        kept = [relation.table.columns.index(name) for name in names]
        answered = bag(rows)
        assert answered >= Counter(tuple(row[i] for i in kept) for row in needed[join_step.relation])
        assert answered <= Counter(tuple(row[i] for i in kept) for row in present)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    data=st.fixed_dictionaries({name: st.lists(rows, max_size=6) for name, rows in ROWS.items()}),
    keys=st.lists(KEYS, max_size=4),
)
def test_oracle_an_answer_holds_all_that_is_needed_and_no_row_twice(
    data: dict[str, list[tuple[Any, ...]]], keys: list[tuple[Any, ...]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.db"
        with closing(database(path, *SCHEMA)) as connection:
            connection.executemany("INSERT INTO a(word, day, ratio, flag) VALUES (?, ?, ?, ?)", data["a"])
            connection.executemany("INSERT INTO b VALUES (?, ?, ?, ?, ?)", data["b"])
            connection.executemany("INSERT OR IGNORE INTO c VALUES (?, ?)", data["c"])
            source, _ = ready(path)
            tables = source.tables()
            found = source.read({table: table.columns for table in tables}, path.parent)
            whole = {table.name: bag(rows) for table, rows in zip(tables, found.rows, strict=True)}
            for sql in VIEWS:
                question = question_of(parse_view(sql, [AWAY, *tables]).blocks[0], keys)
                answer = source.lookup(plan_lookups(question, source))
                assert answer.read_point == found.read_point
                check(question, answer, whole)
            source.close()


def test_keys_are_looked_up_and_not_everything_read(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(database(path, *SCHEMA)) as connection:
        connection.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)"
            " INSERT INTO a SELECT i, 'w' || i, '2024-01-01', i, 0 FROM n"
        )
        source, _ = ready(path)
        tables = source.tables()
        keys: list[Any] = [(i, f"W{i}", None, None, None, None, i, None, None) for i in range(2000)]
        for sql, expected in ((VIEWS[0], 1999), (VIEWS[1], 1998)):
            question = question_of(parse_view(sql, [AWAY, *tables]).blocks[0], keys)
            (rows,) = source.lookup(plan_lookups(question, source)).rows
            # The NOCASE column finds more than Spark will keep, but only what was looked for.
            assert isinstance(rows, pa.Table)
            assert rows.num_rows == expected
        source.close()


def test_many_rows_go_to_files_at_one_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "LARGE_ROWS", 1000)
    monkeypatch.setattr(lookup, "_PARTITION_ROWS", 700)
    monkeypatch.setattr(lookup, "_CHUNK_ROWS", 300)
    path = tmp_path / "a.db"
    with closing(database(path, *SCHEMA)) as connection:
        connection.executemany(
            "INSERT INTO a(id, word, day) VALUES (?, ?, ?)",
            [(i * i - 2000, f"w{i}", "2024-01-01") for i in range(3000)],
        )
        connection.executemany("INSERT INTO c VALUES (?, ?)", [(f"w{i}", i) for i in range(1500)])
        connection.execute("INSERT INTO b(id) VALUES (1)")
        source, log_position = ready(path)
        wanted = {table: table.columns[:2] for table in source.tables()}
        found = source.read(wanted, tmp_path / "scratch")
        sizes = {}
        for table, rows in zip(wanted, found.rows, strict=True):
            if isinstance(rows, FileScan):
                files = [pyarrow.parquet.read_table(file.path) for file in rows.files]
                assert rows.schema[-1] == ("_count", "bigint")
                assert files[0].schema == arrow_schema(rows.schema)
                sizes[table.name] = len(files)
                rows = pa.concat_tables(files)  # noqa: PLW2901
            names = ", ".join(table.columns[:2])
            assert bag(rows) == Counter(connection.execute(f"SELECT {names} FROM {table.name}").fetchall())
        assert sizes == {"a": 5, "c": 1}
        assert drain(source, log_position)[0] == []
        source.close()
