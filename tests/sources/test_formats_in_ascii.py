"""Formats that mean ASCII: lines, digits, letters and white space of other scripts are none of theirs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from rollview.algebra.relation import Table
from rollview.ascii_text import lines_of, lower_letters, number_of, upper_letters, whole_number
from rollview.cli.query import Duration
from rollview.config.schedules import seconds_of
from rollview.errors import (
    EvaluationError,
    InputError,
    OptionError,
    PointError,
    RollviewError,
    UnrepresentableValue,
)
from rollview.lab.memory.casts import cast_function
from rollview.planning import parse_view
from rollview.planning.parse import UNTYPED
from rollview.sources.delta import DeltaSource
from rollview.sources.files.dumps import declared_columns, natural
from rollview.sources.mariadb.binlog.alterations import keeps_values
from rollview.sources.mariadb.binlog.events import LoggedStatement
from rollview.sources.mariadb.binlog.statements import meaning_of
from rollview.sources.mariadb.position import gtid_numbers
from rollview.sources.mariadb.registered import Registered
from rollview.sources.mariadb.source import MariaDBSource
from rollview.sources.mariadb.types import MariaDBColumn
from rollview.sources.sqlite import SQLiteSource
from rollview.sources.sqlite.types import arrow_column, spark_type_of
from rollview.views.properties import parse_text
from rollview.views.view_files import ViewText

BREAKS = ["\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]
"""Characters at which Python ends a line, and no format of ours does."""

DIGITS = ["²", "٣", "３", "①", "𝟙"]
"""Characters that Python takes for digits in one of its ways."""


@pytest.mark.parametrize("mark", BREAKS)
def test_lines_end_where_the_format_ends_them(mark: str) -> None:
    assert lines_of(f"a{mark}b\nc\n") == [f"a{mark}b", "c"]


@pytest.mark.parametrize("text", [*DIGITS, "1²", "1_0", " 1", "1\n", "+1", "-1", "", "1.0"])
def test_a_whole_number_has_ascii_digits_alone(text: str) -> None:
    assert whole_number(text) is None
    assert whole_number("0042") == 42


@pytest.mark.parametrize("text", [*DIGITS, "1_0.5", "nan", "inf", "1e5", " 1", "1.", ".5", "9" * 400])
def test_a_number_has_ascii_digits_and_one_point(text: str) -> None:
    assert number_of(text) is None
    assert (number_of("1.5"), number_of("20")) == (1.5, 20.0)


def test_letters_are_those_of_ascii() -> None:
    assert upper_letters("ſelect ıf é z") == "ſELECT ıF é Z"
    assert lower_letters("\u212aİÉ A") == "\u212aİÉ a"


@pytest.mark.parametrize("mark", BREAKS)
def test_a_commit_of_a_delta_table_with_that_text_in_its_statistics(mark: str, tmp_path: Path) -> None:
    source = DeltaSource("d", tmp_path, {})
    folder = str(tmp_path / "orders")
    write_deltalake(folder, pa.table({"k": [1], "v": ["first"]}))
    start = source.current_position("d.orders")
    write_deltalake(folder, pa.table({"k": [2], "v": [f"a{mark}b"]}), mode="append")
    batch = source.capture("d.orders", start, 10)
    assert len(batch.transactions) == 1


@pytest.mark.parametrize("digit", DIGITS)
def test_dumps_by_any_name_have_an_order(digit: str) -> None:
    names = ["2026-01-02.csv", f"2026-01-02{digit}.csv", f"{digit}.csv", "2026-01-10.csv"]
    assert sorted(names, key=natural)[:1] == ["2026-01-02.csv"]
    assert sorted(sorted(names, key=natural, reverse=True), key=natural) == sorted(names, key=natural)


@pytest.mark.parametrize("text", [*DIGITS, "1_0"])
def test_positions_of_users_are_ascii(text: str, tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "orders"), pa.table({"k": [1]}))
    source = DeltaSource("d", tmp_path, {})
    captured = source.current_position("d.orders")
    with pytest.raises(PointError):
        source.reach("d.orders", text, captured)
    assert gtid_numbers(f"0-1-{text}") is None


@pytest.mark.parametrize("text", [f"{digit}s" for digit in DIGITS] + ["1\u2003s", "9" * 400 + "s"])
def test_durations_are_ascii(text: str) -> None:
    assert seconds_of(text) is None
    with pytest.raises(Exception, match="not a valid duration"):
        Duration().convert(text, None, None)


@pytest.mark.parametrize("text", [*DIGITS, "1_0", "nan", "inf", "-1", "0", "x"])
def test_timeouts_are_ascii_numbers_above_zero(text: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="timeout is not a number of seconds"):
        SQLiteSource("s", tmp_path / "s.db", {"timeout": text})
    with pytest.raises(OptionError, match="timeout is not a number of seconds"):
        MariaDBSource("m", "mariadb://u@h/d", {"timeout": text})
    with pytest.raises(OptionError, match="server_id is not"):
        MariaDBSource("m", "mariadb://u@h/d", {"server_id": text})


def test_a_declared_column_may_have_any_name_without_ascii_white_space() -> None:
    assert declared_columns("t", "a\u00a0b bigint,\u2003c string") == (
        ("a\u00a0b", "bigint"),
        ("\u2003c", "string"),
    )


@pytest.mark.parametrize("value", ["1_000", "٣", " 12 ", "12\u00a0", "NaN", "Infinity", "１２"])
def test_texts_in_a_decimal_column_of_sqlite_are_no_numbers_unless_sqlite_says_so(value: str) -> None:
    with pytest.raises(UnrepresentableValue):
        arrow_column([value], "decimal(10,2)", "t.a")


@pytest.mark.parametrize(
    ("declared", "kind"), [("ıNT", "string"), ("ſMALLINT", "bigint"), ("DECIMAL(１０,2)", "string")]
)
def test_declared_types_of_sqlite_are_ascii(declared: str, kind: str) -> None:
    assert spark_type_of(declared) == kind


def _registered(name: str, *columns: str) -> Registered:
    declared = tuple((MariaDBColumn(column, "int(11)"), "int") for column in columns)
    return Registered(name, declared, "PRIMARY", columns[:1])


def _damage(text: str, *tables: Registered) -> dict[str, Any]:
    named = {table.name: table for table in tables}
    return dict(meaning_of(LoggedStatement(text, "shop"), "shop", named).damage)


@pytest.mark.parametrize("name", ["t→x", "a\u00a0b", "t²", "ıf", "Σας", "x\u2028y"])
def test_names_without_quotes_are_whole(name: str) -> None:
    table = _registered(name, "a", "b")
    assert name in _damage(f"ALTER TABLE {name} DROP COLUMN b", table)
    assert name in _damage(f"TRUNCATE {name}", table)
    assert name in _damage(f"DROP TABLE {name}", table)


@pytest.mark.parametrize("name", ["if", "not", "exists", "table", "ignore", "wait", "nowait", "only", "on"])
def test_tables_and_columns_named_like_words_of_the_language(name: str) -> None:
    table = _registered(name, "a", name)
    assert _damage(f"ALTER TABLE `{name}` DROP COLUMN `{name}`", table)[name].columns == (name,)
    assert _damage(f"ALTER TABLE IF EXISTS `{name}` DROP `{name}`", table)[name].columns == (name,)
    assert name in _damage(f"TRUNCATE `{name}`", table)
    assert name in _damage(f"CREATE OR REPLACE TABLE `{name}` (a INT)", table)
    assert name in _damage(f"RENAME TABLE other TO shop.{name}", table)


@pytest.mark.parametrize("name", ["if", "exists", "table", "to", "on", "add", "rename"])
def test_words_of_the_language_name_no_table(name: str) -> None:
    table = _registered(name, "a", "b")
    assert not _damage("RENAME TABLE IF EXISTS other TO another", table)
    assert not _damage("ALTER TABLE other ADD COLUMN c INT", table)
    assert not _damage("DROP TABLE IF EXISTS other", table)


@pytest.mark.parametrize(("column", "named"), [("é", "É"), ("i", "İ"), ("ας", "Ας"), ("ασ", "ΑΣ")])
def test_columns_are_found_in_any_case(column: str, named: str) -> None:
    found = _damage(f"ALTER TABLE t DROP COLUMN `{named}`", _registered("t", "a", column))
    assert found["t"].columns == (column,)


def test_tables_that_differ_in_case_alone_are_two_where_the_server_says_so() -> None:
    small, big = _registered("t", "a", "b"), _registered("T", "a", "b")
    for statement in ("TRUNCATE {}", "ALTER TABLE {} DROP b", "DROP TABLE shop.{}", "RENAME TABLE {} TO x"):
        assert set(_damage(statement.format("T"), small, big)) == {"T"}
        assert set(_damage(statement.format("t"), small, big)) == {"t"}
        logged = LoggedStatement(statement.format("T"), "shop")
        assert set(meaning_of(logged, "shop", {"t": small}).damage) == {"t"}
        assert not meaning_of(logged, "shop", {"t": small}, any_case=False).damage
    assert not meaning_of(
        LoggedStatement("DROP TABLE t", "Shop"), "shop", {"t": small}, any_case=False
    ).damage
    assert not _damage("DROP DATABASE other", small)


def test_sizes_of_declared_types_are_ascii() -> None:
    assert not keeps_values("varchar(20)", "varchar(²)")


@pytest.mark.parametrize("text", [*DIGITS, "1_0", "0", "+1"])
def test_intervals_are_ascii(text: str) -> None:
    sql = f"CREATE MATERIALIZED VIEW v TBLPROPERTIES ('rollview.interval' = '{text}') AS SELECT a FROM s.t"
    with pytest.raises(InputError, match="interval is `"):
        parse_text(ViewText(Path("v.sql"), "v", sql, ("s.t",)), {"s.t": Table("s", "t", ("a",))}, UNTYPED)


@pytest.mark.parametrize("length", ["١٠ minutes", "1\u2003hour", "² days"])
def test_windows_of_time_are_ascii(length: str) -> None:
    table = Table("s", "t", ("a",), types=("timestamp",))
    sql = f"SELECT window(a, '{length}') AS w, count(*) AS n FROM s.t GROUP BY window(a, '{length}')"
    with pytest.raises(RollviewError, match="is no duration of a window"):
        parse_view(sql, [table], "v")


@pytest.mark.parametrize("text", ["ınf", "\u0130nf", "ınfinity"])
def test_infinity_is_written_in_ascii(text: str) -> None:
    with pytest.raises(EvaluationError):
        cast_function("DOUBLE")(text)
