"""Values on their way out of SQLite: exactly as stored, or an error that names them."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlite_history import database, drain, ready

from pages.what_if import what_if
from rollview.errors import SourceFailed, UnrepresentableValue
from rollview.sources.sqlite.types import arrow_column, spark_type_of

FITTING: list[tuple[str, Any, Any]] = [
    ("INTEGER", 2**63 - 1, 2**63 - 1),
    ("INTEGER", -(2**63), -(2**63)),
    ("INTEGER", "12", 12),
    ("TEXT", "naïve 🙂 'quoted'\0", "naïve 🙂 'quoted'\0"),
    ("TEXT", 5, "5"),
    ("TEXT", "", ""),
    ("REAL", 3, 3.0),
    ("REAL", 1e300, 1e300),
    ("DOUBLE", float("inf"), float("inf")),
    ("BLOB", b"\0\xff", b"\0\xff"),
    ("", b"", b""),
    ("BOOLEAN", 1, True),
    ("BOOLEAN", False, False),
    ("DECIMAL(10,2)", 0.1, Decimal("0.10")),
    ("DECIMAL(10,2)", "12.30", Decimal("12.30")),
    ("DECIMAL(10,2)", 7, Decimal("7.00")),
    ("DECIMAL(20,2)", "1234567890.12", Decimal("1234567890.12")),
    ("NUMERIC", 2**62, Decimal(2**62)),
    ("NUMERIC", 0.125, Decimal("0.125")),
    ("DATE", "2024-02-29", date(2024, 2, 29)),
    ("DATETIME", "2024-02-29 12:30:00", datetime(2024, 2, 29, 12, 30)),
    ("TIMESTAMP", "2024-02-29T12:30:01.000001", datetime(2024, 2, 29, 12, 30, 1, 1)),
    ("TIMESTAMP", "2024-02-29", datetime(2024, 2, 29)),
    ("UUID", "0c7f", "0c7f"),
    ("INTEGER", None, None),
    ("DATE", None, None),
]
MISFITS: list[tuple[str, Any]] = [
    ("INTEGER", "many"),
    ("INTEGER", 1.5),
    ("INTEGER", b"1"),
    ("TEXT", b"bytes"),
    ("BLOB", "text"),
    ("", 5),
    ("REAL", "often"),
    ("BOOLEAN", 2),
    ("BOOLEAN", "yes"),
    ("DECIMAL(10,2)", 1.005),
    ("DECIMAL(4,2)", 1000),
    ("DECIMAL(4,2)", "ten"),
    ("DECIMAL(4,2)", float("inf")),
    ("NUMERIC", 1e30),
    ("DATE", "20240229"),
    ("DATE", "2024-02-30"),
    ("DATE", 19000),
    ("DATETIME", "2024-02-29T12:30:00Z"),
    ("DATETIME", "2024-02-29 12:30:00.1234567"),
    ("UUID", 5),
]


def _shown(case: tuple[Any, ...]) -> str:
    return f"{case[0]}-{case[1]!r}".replace("\0", "")


@pytest.mark.parametrize("case", FITTING, ids=_shown)
def test_a_fitting_value_arrives_the_same_by_capture_and_by_reading(tmp_path: Path, case: Any) -> None:
    declared, value, expected = case
    path = tmp_path / "a.db"
    with closing(database(path, f"CREATE TABLE t(a {declared}, b INTEGER)")) as connection:
        source, log_position = ready(path)
        connection.execute("INSERT INTO t VALUES (?, 1)", (value,))
        connection.execute("UPDATE t SET b = 2")
        connection.execute("DELETE FROM t")
        connection.execute("INSERT INTO t VALUES (?, 3)", (value,))
        found, _ = drain(source, log_position)
        captured = [row for each in found for row in each.rows["s.t"].to_pylist()]  # type: ignore[union-attr]
        assert [row["a"] for row in captured] == [expected] * 5
        assert [row["_count"] for row in captured] == [1, -1, 1, -1, 1]
        (table,) = source.tables()
        (rows,) = source.read({table: ["a"]}, tmp_path).rows
        assert rows.to_pylist() == [{"a": expected, "_count": 1}]  # type: ignore[union-attr]
        source.close()


@pytest.mark.parametrize("case", MISFITS, ids=_shown)
def test_a_misfit_is_named_and_never_bent(tmp_path: Path, case: Any) -> None:
    declared, value = case
    path = tmp_path / "a.db"
    with closing(database(path, f"CREATE TABLE t(a {declared})")) as connection:
        source, log_position = ready(path)
        connection.execute("INSERT INTO t VALUES (NULL)")
        connection.execute("INSERT INTO t VALUES (?)", (value,))
        (stored,) = connection.execute("SELECT a FROM t WHERE a IS NOT NULL").fetchone()
        with pytest.raises(UnrepresentableValue) as caught:
            source.read({source.tables()[0]: ["a"]}, tmp_path)
        (good, bad), _ = drain(source, log_position)
        assert "s.t" in good.rows
        assert not good.lost
        assert "s.t" not in bad.rows
        for message in (caught.value.message, bad.lost["s.t"].message):
            assert "s.t.a" in message
            assert repr(stored) in message
        source.close()


@what_if(
    "SQLite",
    "a row with a value that has no equal in Spark: text in an `INTEGER` column, "
    "`101.08999999999999` in `DECIMAL(10,2)`, text that is not UTF-8, `NULL` in a primary key",
    "the table is lost from that transaction on, with column, value and key of the row. Once the "
    "value is repaired, its views continue automatically",
    under="the table is lost",
)
def test_a_row_without_an_equal_is_a_loss_of_its_table_in_its_transaction(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    tables = (
        "CREATE TABLE sales(id INTEGER PRIMARY KEY, amount DECIMAL(10,2))",
        "CREATE TABLE loose(a INTEGER, b TEXT)",
        "CREATE TABLE other(a INTEGER)",
    )
    with closing(database(path, *tables)) as connection:
        connection.execute("INSERT INTO sales VALUES (6, 1), (7, 99.99)")
        source, log_position = ready(path)
        connection.execute("INSERT INTO sales VALUES (8, 1)")
        connection.execute("BEGIN")
        connection.execute("UPDATE sales SET amount = amount + 1.1 WHERE id = 7")
        connection.execute("INSERT INTO other VALUES (1)")
        connection.execute("COMMIT")
        connection.execute("INSERT INTO other VALUES (2)")
        connection.execute("INSERT INTO loose VALUES ('many', 'x')")
        connection.execute("INSERT INTO sales VALUES (9, 1)")
        found, _ = drain(source, log_position)
        changed = [set(each.rows) for each in found]
        assert changed == [{"s.sales"}, {"s.other"}, {"s.other"}, set(), {"s.sales"}]
        assert [set(each.lost) for each in found] == [set(), {"s.sales"}, set(), {"s.loose"}, set()]
        loss = found[1].lost["s.sales"]
        assert loss.message == (
            "s.sales.amount is read as decimal(10,2), but holds 101.08999999999999, which is not a valid"
            " decimal(10,2), in the row with id = 7"
        )
        assert "repair the value" in loss.hint
        assert "run `rollview setup`, which reloads the views that read s.sales" in loss.hint
        assert found[3].lost["s.loose"].message.endswith("in the row with a = 'many', b = 'x'")
        source.close()


def test_a_null_in_a_key_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(database(path, "CREATE TABLE t(a TEXT PRIMARY KEY)")) as connection:
        source, log_position = ready(path)
        connection.execute("INSERT INTO t VALUES (NULL)")
        ((each,), _) = drain(source, log_position)
        assert "s.t.a belongs to the primary key but holds NULL" in each.lost["s.t"].message
        source.close()


def test_text_that_is_no_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(database(path, "CREATE TABLE t(a TEXT)")) as connection:
        source, log_position = ready(path)
        connection.execute("INSERT INTO t VALUES ('fine')")
        connection.execute("INSERT INTO t VALUES (CAST(x'ff41' AS TEXT))")
        found, _ = drain(source, log_position)
        assert [len(each.rows) for each in found] == [1, 0]
        assert r"holds b'\xffA', which is not a valid string" in found[1].lost["s.t"].message
        with pytest.raises(SourceFailed, match="not UTF-8"):
            source.read({source.tables()[0]: ["a"]}, tmp_path)
        source.close()


@given(st.lists(st.none() | st.decimals(-(10**8), 10**8, places=2)))
def test_decimals_of_any_storage_come_out_alike(values: list[Decimal | None]) -> None:
    forms = [None if value is None else (float(value), str(value))[i % 2] for i, value in enumerate(values)]
    assert arrow_column(forms, "decimal(12,2)", "t.a").to_pylist() == values


@given(st.text() | st.text("INTCHARBLODEFUM (1,2)"))
def test_any_declared_type_has_a_reading(declared: str) -> None:
    arrow_column([None], spark_type_of(declared), "t.a")


def test_commit_times_are_those_of_the_source(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(database(path, "CREATE TABLE t(a INTEGER)")) as connection:
        source, log_position = ready(path)
        connection.execute("INSERT INTO t VALUES (1)")
        (now,) = connection.execute("SELECT (julianday('now') - 2440587.5) * 86400").fetchone()
        (transaction,) = drain(source, log_position)[0]
        assert abs(transaction.commit_time - now) < 5
        assert json.loads(source.read({}, tmp_path).read_point) == transaction.source_txid
        source.close()
