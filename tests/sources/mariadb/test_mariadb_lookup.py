"""Look-ups find all that Spark would join, whatever MariaDB's own idea of equality is."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from mariadb_database import Database, counted, look_up, planned

from rollview.rows import arrow_type
from rollview.sources.mariadb.read import lookup as load_module

pytestmark = pytest.mark.slow
_JOIN = "SELECT k.id, t.id AS found FROM s.k k JOIN s.t t ON k.v = t.v"
# Both columns as declared, the values that are stored on the looked-up side, and those that are looked for.
EQUALITIES: dict[str, tuple[str, str, str, list[Any], list[str]]] = {
    "case and accents": (
        "VARCHAR(20) COLLATE utf8mb4_general_ci",
        "VARCHAR(20) COLLATE utf8mb4_general_ci",
        "string",
        ["a", "é", "ß"],
        ["'a'", "'A'", "'e'", "'é'", "'s'", "'ß'", "'ss'"],
    ),
    "trailing blanks": (
        "VARCHAR(9)",
        "VARCHAR(9)",
        "string",
        ["a", "b ", ""],
        ["'a'", "'a '", "'b '", "' '", "''"],
    ),
    "blanks that CHAR has not": ("VARCHAR(9)", "CHAR(9)", "string", ["a", "b  "], ["'a  '", "'b'"]),
    "another collation": (
        "VARCHAR(9)",
        "VARCHAR(9) COLLATE utf8mb4_bin",
        "string",
        ["a", "A"],
        ["'a'", "'A'", "'á'"],
    ),
    "another charset": (
        "VARCHAR(9)",
        "VARCHAR(9) CHARACTER SET latin1",
        "string",
        ["é", "中", "?"],
        ["'é'", "'?'"],
    ),
    "utf16": ("VARCHAR(9)", "VARCHAR(9) CHARACTER SET utf16", "string", ["é", "中"], ["'é'", "'中'"]),
    "longer than the column": ("VARCHAR(30)", "VARCHAR(3)", "string", ["abc", "abcdef"], ["'abc'"]),
    "text": ("TEXT", "TEXT", "string", ["x" * 1000, "y"], ["REPEAT('x', 1000)", "'y'"]),
    "enum": ("VARCHAR(9)", "ENUM('a','2','B')", "string", ["a", "2", "B", "none"], ["'a'", "'2'", "'B'"]),
    "set": ("VARCHAR(9)", "SET('a','b')", "string", ["a,b", "b,a", ""], ["'a,b'", "''", "'b'"]),
    "uuid": (
        "VARCHAR(40)",
        "UUID",
        "string",
        ["123e4567-e89b-12d3-a456-426655440000", "no uuid"],
        ["'123e4567-e89b-12d3-a456-426655440000'"],
    ),
    "scale": (
        "DECIMAL(10,4)",
        "DECIMAL(10,2)",
        "decimal(10,4)",
        [Decimal("1.5000"), Decimal("1.5049")],
        ["1.5", "1.50"],
    ),
    "whole and decimal": ("DECIMAL(10,2)", "INT", "decimal(10,2)", [Decimal("2.00"), Decimal("2.40")], ["2"]),
    "unsigned": (
        "BIGINT UNSIGNED",
        "BIGINT",
        "decimal(20,0)",
        [Decimal(2**63), Decimal(5), Decimal(2**63 - 1)],
        ["5", str(2**63 - 1), "-1"],
    ),
    "below an unsigned": ("INT", "INT UNSIGNED", "int", [-1, 0, 7], ["0", "7", "4294967295"]),
    "beyond a small one": ("BIGINT", "TINYINT", "bigint", [300, 127, -128, -500], ["127", "-128"]),
    "bits": ("BIT(1)", "BIT(1)", "boolean", [True], ["b'1'", "b'0'"]),
    "bits as numbers": ("INT", "BIT(10)", "int", [513, 1], ["513", "1", "2"]),
    "year": ("INT", "YEAR", "int", [2024, 24, 0], ["2024", "0", "1999"]),
    "double": ("DOUBLE", "DOUBLE", "double", [0.0, 1.5], ["0", "-0.0", "1.5", "2"]),
    "float and double": ("DOUBLE", "FLOAT", "double", [0.5, 0.10000000149011612], ["0.5", "0.1"]),
    "bytes": (
        "VARBINARY(9)",
        "VARBINARY(9)",
        "binary",
        [b"a", b"a\0", b"\xff"],
        ["'a'", "'a '", "X'6100'", "X'FF'"],
    ),
    "padded bytes": ("VARBINARY(9)", "BINARY(2)", "binary", [b"a\0", b"a"], ["'a'"]),
    "dates": ("DATE", "DATE", "date", [date(2024, 2, 29)], ["'2024-02-29'", "'2024-03-01'"]),
    "zones": (
        "TIMESTAMP(6) NULL",
        "TIMESTAMP NULL",
        "timestamp",
        [
            datetime(2024, 7, 1, 14, tzinfo=timezone(timedelta(hours=2))),
            datetime(2024, 7, 1, 12, 0, 0, 1, UTC),
        ],
        ["'2024-07-01 12:00:00'", "'2024-07-01 14:00:00'"],
    ),
    "fractions": (
        "DATETIME(6)",
        "DATETIME(3)",
        "timestamp_ntz",
        [datetime(2024, 1, 1, 1, 1, 1, 500000), datetime(2024, 1, 1, 1, 1, 1, 500400)],
        ["'2024-01-01 01:01:01.5'"],
    ),
}


@pytest.mark.parametrize("name", EQUALITIES)
def test_oracle_all_that_is_equal_in_spark_is_found(database: Database, name: str) -> None:
    theirs, own, kind, keys, stored = EQUALITIES[name]
    database.execute(
        f"CREATE TABLE k (id INT PRIMARY KEY, v {theirs})",
        f"CREATE TABLE t (id INT PRIMARY KEY, v {own}, INDEX (v{'(10)' if own == 'TEXT' else ''}))",
        "SET time_zone = '+00:00'",
        *(f"INSERT INTO t VALUES ({number}, {text})" for number, text in enumerate(stored)),
        "INSERT INTO t VALUES (99, NULL)",
    )
    database.setup()
    everything = database.read("t")
    (found,) = look_up(database, _JOIN, {"v": pa.array([*keys, None], arrow_type(kind))})
    wanted = Counter(
        {row: count for row, count in everything.items() if row[1] is not None and row[1] in keys}
    )
    # Nothing is missing, nothing is there twice, and nothing is there that the table has not.
    assert wanted <= found <= everything


def test_keys_that_no_column_can_hold_find_nothing_and_are_no_error(database: Database) -> None:
    database.execute(
        "CREATE TABLE k (id INT, v TEXT)", "CREATE TABLE t (id INT, v VARCHAR(5) CHARACTER SET ascii)"
    )
    database.execute("INSERT INTO t VALUES (1, 'a')")
    database.setup()
    assert look_up(database, _JOIN, {"v": pa.array(["é" * 100_000, "中", "b\0"])}) == [Counter()]
    assert look_up(database, _JOIN, {"v": pa.array([], pa.string())}) == [Counter()]


def test_many_keys_are_shipped_as_a_set_and_looked_up_by_the_index(database: Database) -> None:
    database.execute(
        "CREATE TABLE k (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE t (id INT PRIMARY KEY, v INT, INDEX (v))",
        "INSERT INTO t SELECT seq, seq * 10 FROM seq_1_to_20000",
    )
    database.setup()
    before = questions(database)
    (found,) = look_up(database, _JOIN, {"v": pa.array(range(0, 100_000, 5), pa.int32())})
    assert found == Counter((number, number * 10) for number in range(1, 10_000))
    assert questions(database) - before < 200


def questions(database: Database) -> int:
    """How many statements the server has run."""
    return int(database.execute("SHOW GLOBAL STATUS LIKE 'Questions'")[0][1])


def test_local_conditions_are_tested_at_the_server_where_that_is_safe(database: Database) -> None:
    database.execute(
        "CREATE TABLE k (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE t (id INT PRIMARY KEY, v INT, name VARCHAR(9), day DATE, price DECIMAL(9,2))",
        "INSERT INTO t VALUES (1, 1, 'a', '2024-01-01', 5), (2, 1, 'A', '2024-01-02', 6),"
        " (3, 1, 'b', NULL, 7.5), (4, 2, '''\\\\', '2024-01-03', 8)",
    )
    database.setup()

    def found(condition: str) -> set[int]:
        sql = f"SELECT k.id, t.id AS t, t.name FROM s.k k JOIN s.t t ON k.v = t.v WHERE {condition}"
        plan = planned(database, sql, {"v": pa.array([1, 2], pa.int32())})
        return set(database.source.lookup(plan).rows[0].column("id").to_pylist())

    assert found("t.id > 2") == {3, 4}
    assert found("t.price >= 7.5") == {3, 4}
    assert found("t.name = 'a'") == {1, 2}
    assert found("t.name = '\\'\\\\'") == {4}
    assert found("t.name IN ('b', 'c')") == {3}
    assert found("t.name > 'a'") == {1, 2, 3, 4}
    assert found("t.day < DATE '2024-01-02'") == {1}
    assert found("t.id + 1 > 3") == {1, 2, 3, 4}


def test_no_trace_is_left_in_the_log_or_the_connection(database: Database) -> None:
    database.execute(
        "CREATE TABLE k (id INT, v INT)", "CREATE TABLE t (id INT, v INT)", "INSERT INTO t VALUES (1, 1)"
    )
    database.setup()
    before = database.execute("SHOW MASTER STATUS")
    for _ in range(3):
        assert look_up(database, _JOIN, {"v": pa.array([1], pa.int32())}) == [Counter([(1, 1)])]
    database.source.close()
    assert database.execute("SHOW MASTER STATUS") == before


def test_large_tables_come_in_files(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load_module, "LARGE_ROWS", 2_000)
    monkeypatch.setattr(load_module, "_CHUNK_ROWS", 500)
    database.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))",
        "INSERT INTO t SELECT seq, CONCAT('v', seq) FROM seq_1_to_5300",
        "CREATE TABLE small (id INT PRIMARY KEY)",
        "INSERT INTO small SELECT seq FROM seq_1_to_1999",
        "CREATE TABLE nothing (id INT PRIMARY KEY)",
    )
    database.setup()
    tables = database.tables()
    wanted = {tables["t"]: ("v",), tables["small"]: ("id",), tables["nothing"]: ("id",)}
    large, small, nothing = database.source.read(wanted, tmp_path).rows
    assert len(large.files) == 3  # type: ignore[union-attr]
    assert counted(large, ("v",)) == Counter((f"v{number}",) for number in range(1, 5301))
    assert counted(small) == Counter((number,) for number in range(1, 2000))
    assert counted(nothing) == Counter()


def test_a_table_that_changes_while_it_is_read_is_read_as_it_was(database: Database) -> None:
    database.execute("CREATE TABLE k (id INT, v INT)", "CREATE TABLE t (id INT PRIMARY KEY, v INT, w INT)")
    database.setup()
    sql = "SELECT k.id, a.id AS a, b.id AS b FROM s.k k JOIN s.t a ON k.v = a.v JOIN s.t b ON a.w = b.id"
    database.execute("INSERT INTO t VALUES (1, 1, 2), (2, 9, 9)")
    plan = planned(database, sql, {"v": pa.array([1], pa.int32())})
    with closing(database.connect()) as writer:
        snapshots = database.source._snapshots
        original = snapshots._attempt

        def attempt(cursor: Any) -> Any:
            position = original(cursor)
            writer.query("UPDATE t SET v = v + 1, w = 1")
            return position

        snapshots._attempt = attempt  # type: ignore[method-assign]
        children, parents = database.source.lookup(plan).rows
    assert counted(children) == Counter([(1, 1, 2)])
    assert counted(parents) == Counter([(2,)])
