"""Every type both ways: a query and the log return the value that was written."""

from __future__ import annotations

import os
import random
import struct
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from mariadb_database import Database, History, counted

from rollview.errors import UnrepresentableValue
from servers.mariadb import shared_server

pytestmark = pytest.mark.slow


def float_of(value: float) -> float:
    """The nearest number of 32 bits."""
    return float(struct.unpack("f", struct.pack("f", value))[0])


# Declared type, Spark SQL type, and values: as SQL, and as they must arrive.
TYPES: list[tuple[str, str, dict[str, Any]]] = [
    ("TINYINT", "tinyint", {"-128": -128, "127": 127, "0": 0}),
    ("TINYINT(1)", "tinyint", {"-1": -1, "1": 1, "9": 9}),
    ("TINYINT UNSIGNED", "smallint", {"255": 255, "0": 0}),
    ("SMALLINT", "smallint", {"-32768": -32768, "32767": 32767}),
    ("SMALLINT UNSIGNED", "int", {"65535": 65535}),
    ("MEDIUMINT", "int", {"-8388608": -8388608, "8388607": 8388607, "-1": -1}),
    ("MEDIUMINT UNSIGNED", "int", {"16777215": 16777215}),
    ("INT", "int", {"-2147483648": -2147483648, "2147483647": 2147483647}),
    ("INT(5) ZEROFILL", "bigint", {"42": 42}),
    ("INT UNSIGNED", "bigint", {"4294967295": 4294967295}),
    ("BIGINT", "bigint", {str(-(2**63)): -(2**63), str(2**63 - 1): 2**63 - 1}),
    ("BIGINT UNSIGNED", "decimal(20,0)", {str(2**64 - 1): Decimal(2**64 - 1), "0": Decimal(0)}),
    ("FLOAT", "float", {"0.1": float_of(0.1), "-3.4e38": float_of(-3.4e38), "16777217": 16777216.0}),
    ("DOUBLE", "double", {"0.1": 0.1, "-1.7976931348623157e308": -1.7976931348623157e308, "5e-324": 5e-324}),
    (
        "DECIMAL(15,2)",
        "decimal(15,2)",
        {"-9999999999999.99": Decimal("-9999999999999.99"), "0": Decimal("0.00")},
    ),
    ("DECIMAL(18,9)", "decimal(18,9)", {"-1.000000001": Decimal("-1.000000001")}),
    ("DECIMAL(5,5)", "decimal(5,5)", {"0.00001": Decimal("0.00001"), "-0.5": Decimal("-0.50000")}),
    ("DECIMAL(38,0)", "decimal(38,0)", {"-" + "9" * 38: Decimal("-" + "9" * 38)}),
    ("DECIMAL(38,20)", "decimal(38,20)", {"1.00000000000000000001": Decimal("1.00000000000000000001")}),
    ("DECIMAL(10)", "decimal(10,0)", {"-7": Decimal(-7)}),
    ("BIT(1)", "boolean", {"b'1'": True, "b'0'": False}),
    ("BIT(10)", "bigint", {"b'1000000001'": 513}),
    ("BIT(63)", "bigint", {str(2**63 - 1): 2**63 - 1}),
    ("BIT(64)", "decimal(20,0)", {str(2**64 - 1): Decimal(2**64 - 1)}),
    ("YEAR", "int", {"1901": 1901, "2155": 2155, "0": 0}),
    (
        "DATE",
        "date",
        {"'0001-01-01'": date(1, 1, 1), "'9999-12-31'": date.max, "'2024-02-29'": date(2024, 2, 29)},
    ),
    ("DATETIME", "timestamp_ntz", {"'1000-01-01 23:59:59'": datetime(1000, 1, 1, 23, 59, 59)}),
    ("DATETIME(3)", "timestamp_ntz", {"'2024-03-31 02:30:00.125'": datetime(2024, 3, 31, 2, 30, 0, 125000)}),
    (
        "DATETIME(5)",
        "timestamp_ntz",
        {"'2024-03-31 02:30:00.12345'": datetime(2024, 3, 31, 2, 30, 0, 123450)},
    ),
    ("DATETIME(6)", "timestamp_ntz", {"'9999-12-31 23:59:59.999999'": datetime.max}),
    ("TIMESTAMP NULL", "timestamp", {"'1970-01-01 00:00:01'": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)}),
    (
        "TIMESTAMP(6) NULL",
        "timestamp",
        {"'2038-01-19 03:14:07.000001'": datetime(2038, 1, 19, 3, 14, 7, 1, tzinfo=UTC)},
    ),
    (
        "TIMESTAMP(1) NULL",
        "timestamp",
        {"'2020-01-01 00:00:00.5'": datetime(2020, 1, 1, 0, 0, 0, 500000, UTC)},
    ),
    ("CHAR(10)", "string", {"'a  '": "a", "''": "", "'größer'": "größer"}),
    ("CHAR(200)", "string", {"REPEAT('ö', 200)": "ö" * 200}),
    ("VARCHAR(300)", "string", {"'a  '": "a  ", "REPEAT('😀', 300)": "😀" * 300, "'x\\0y'": "x\0y"}),
    ("TEXT", "string", {"'text'": "text", "REPEAT('y', 60000)": "y" * 60000}),
    ("LONGTEXT", "string", {"REPEAT('z', 300000)": "z" * 300000}),
    ("TINYTEXT", "string", {"'t'": "t"}),
    ("JSON", "string", {"'{\"a\": [1, null]}'": '{"a": [1, null]}'}),
    ("ENUM('x','größer','')", "string", {"'größer'": "größer", "'x'": "x", "''": ""}),
    ("SET('a','b','c')", "string", {"'c,a'": "a,c", "''": ""}),
    ("UUID", "string", {"'123E4567-E89B-12D3-A456-426655440000'": "123e4567-e89b-12d3-a456-426655440000"}),
    ("BINARY(4)", "binary", {"X'01'": b"\x01\0\0\0", "X'00000000'": b"\0\0\0\0", "'a  b'": b"a  b"}),
    ("VARBINARY(10)", "binary", {"X'00FF'": b"\x00\xff", "X'0100'": b"\x01\x00", "''": b""}),
    ("BLOB", "binary", {"X'80'": b"\x80"}),
    ("LONGBLOB", "binary", {"REPEAT(X'00', 70000)": b"\0" * 70000}),
    ("VARCHAR(20) CHARACTER SET latin1", "string", {"'Ž€é'": "Ž€é", "_latin1 X'81'": "\x81"}),
    ("VARCHAR(20) CHARACTER SET cp1251", "string", {"'Привет'": "Привет"}),
    ("CHAR(20) CHARACTER SET ucs2", "string", {"'aé中'": "aé中"}),
    ("VARCHAR(20) CHARACTER SET utf16", "string", {"'a😀'": "a😀"}),
    ("TEXT CHARACTER SET utf16le", "string", {"'a😀'": "a😀"}),
    ("VARCHAR(20) CHARACTER SET utf32", "string", {"'a😀'": "a😀"}),
    ("VARCHAR(20) CHARACTER SET utf8mb3", "string", {"'é中'": "é中"}),
    ("ENUM('é','b') CHARACTER SET latin1", "string", {"'é'": "é"}),
]


@pytest.fixture(scope="module")
def written() -> Iterator[tuple[Database, History]]:
    """A table per type, into which all its values were written; each statement is a transaction."""
    made = Database(shared_server(), f"types_{os.getpid()}")
    # Columns around it show that its width is right, and others with a sign that signs are kept.
    made.execute(
        *(
            f"CREATE TABLE t{number} (id INT PRIMARY KEY, ahead SMALLINT UNSIGNED, v {declared}, last INT)"
            for number, (declared, _, _) in enumerate(TYPES)
        )
    )
    made.setup()
    history = History(made.source)
    for number, (_, _, values) in enumerate(TYPES):
        rows = ", ".join(f"({place}, 65535, {text}, -1)" for place, text in enumerate([*values, "NULL"]))
        made.execute(
            "SET time_zone = '+00:00'",
            f"INSERT INTO t{number} VALUES {rows}",
            f"UPDATE t{number} SET ahead = 7",
            f"DELETE FROM t{number} WHERE id = {len(values)}",
        )
    history.capture()
    yield made, history
    made.close()


@pytest.mark.parametrize("number", range(len(TYPES)), ids=[each[0] for each in TYPES])
def test_oracle_a_value_comes_back_as_it_was_written(written: tuple[Database, History], number: int) -> None:
    database, history = written
    _, kind, values = TYPES[number]
    assert database.tables()[f"t{number}"].types == ("int", "int", kind, "int")
    expected = Counter((place, 65535, value, -1) for place, value in enumerate([*values.values(), None]))
    after = Counter((place, 7, value, end) for place, _, value, end in expected)
    inserted, updated, deleted = (change for change in history.changes(f"t{number}") if change)
    assert inserted == expected
    assert updated == Counter({**dict.fromkeys(expected, -1), **dict.fromkeys(after, 1)})
    assert deleted == Counter({(len(values), 7, None, -1): -1})
    assert database.read(f"t{number}") == Counter(row for row in after if row[0] < len(values))


def test_differential_random_rows_with_any_pattern_of_nulls(database: Database) -> None:
    """Tables of many columns, of which any may be NULL: the log and a query return the same."""
    chance = random.Random(3)
    for number in range(6):
        chosen = [chance.choice(TYPES) for _ in range(chance.randint(1, 40))]
        fields = ", ".join(f"c{i} {declared}" for i, (declared, _, _) in enumerate(chosen))
        database.execute(
            f"CREATE TABLE t{number} (id INT PRIMARY KEY, {fields}) ROW_FORMAT = DYNAMIC",
        )
    database.setup()
    history = History(database.source)
    for number in range(6):
        for row in range(12):
            names = [name for name, *_ in database.execute(f"DESCRIBE t{number}")][1:]
            declared = [kind for _, kind, *_ in database.execute(f"DESCRIBE t{number}")][1:]
            values = [chance.choice(["NULL", _some_value(kind, chance)]) for kind in declared]
            listed = ", ".join([str(row), *values])
            database.execute(
                "SET time_zone = '+00:00', sql_mode = ''",
                f"INSERT INTO t{number} (id, {', '.join(names)}) VALUES ({listed})",
            )
    history.capture()
    for number in range(6):
        captured: Counter[Any] = Counter()
        for change in history.changes(f"t{number}"):
            captured.update(change)
        assert captured == database.read(f"t{number}") and len(captured) == 12


def _some_value(kind: str, chance: random.Random) -> str:
    """A value, whatever the type makes of it."""
    if kind.startswith(("date", "timestamp")):
        return f"'20{chance.randint(10, 30)}-0{chance.randint(1, 9)}-1{chance.randint(0, 9)} 01:02:03.45'"
    if kind.startswith("uuid"):
        return "UUID()"
    if "json" in kind:
        return "'[1]'"
    return chance.choice(["1", "'1'", "0"])


def test_columns_without_an_equal_are_left_out_and_warned_of(database: Database) -> None:
    database.execute(
        "CREATE TABLE t (a TIME(3), id INT PRIMARY KEY, b INET6, c GEOMETRY, d DECIMAL(50,2),"
        " e VARCHAR(9) CHARACTER SET gbk, f INET4, g VARCHAR(100) COMPRESSED, h TEXT, i TIME, j POINT)"
    )
    assert database.tables()["t"].columns == ("id", "h")
    warnings = database.setup().warnings
    assert [warning.split()[1] for warning in warnings] == [f"t.{name}" for name in "abcdefgij"]
    assert "time(3)" in warnings[0]
    history = History(database.source)
    database.execute(
        "INSERT INTO t VALUES ('01:02:03.5', 1, '::1', POINT(1, 2), 5, 'x', '1.2.3.4', REPEAT('g', 90),"
        " 'text', '-99:00:00', POINT(3, 4)), (NULL, 2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)"
    )
    (transaction,) = history.capture()
    assert counted(transaction.rows["s.t"]) == Counter([(1, "text"), (2, None)]) == database.read("t")


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        ("DATE", "'0000-00-00'"),
        ("DATE", "'2024-00-15'"),
        ("DATE", "'2023-02-31'"),
        ("DATETIME", "'0000-00-00'"),
        ("DATETIME(6)", "'2024-12-00 01:00:00'"),
        ("TIMESTAMP NULL", "0"),
    ],
)
def test_a_date_that_is_none_is_a_loss_with_the_name_of_its_column(
    database: Database, declared: str, value: str
) -> None:
    database.execute(
        f"CREATE TABLE t (id INT PRIMARY KEY, v {declared})", "CREATE TABLE other (id INT PRIMARY KEY)"
    )
    database.setup()
    history = History(database.source)
    database.execute(
        "SET sql_mode = 'ALLOW_INVALID_DATES'",
        "INSERT INTO t VALUES (1, '2024-02-29')",
        "BEGIN",
        "INSERT INTO other VALUES (1)",
        f"INSERT INTO t VALUES (2, {value})",
        "COMMIT",
        "INSERT INTO t VALUES (3, '2024-03-01')",
    )
    before, bad, after = history.capture()
    assert not before.lost and before.rows["s.t"].num_rows == 1  # type: ignore[union-attr]
    assert list(bad.rows) == ["s.other"] and list(bad.lost) == ["s.t"]
    assert "s.t.v is read as" in bad.lost["s.t"].message and bad.transaction_id in bad.lost["s.t"].message
    assert "repair the value" in bad.lost["s.t"].hint and "`rollview setup`" in bad.lost["s.t"].hint
    assert list(after.rows) == ["s.t"] and not after.lost
    with pytest.raises(UnrepresentableValue, match=r"s\.t\.v"):
        database.source.read({database.tables()["t"]: ("id", "v")}, Path("/nonexistent"))


def test_a_value_of_a_large_transaction_that_spark_cannot_hold_is_a_loss(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rollview.sources.changed_rows.SPILL_ROWS", 10)
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v DATE)", "CREATE TABLE u (id INT PRIMARY KEY)")
    database.setup()
    history = History(database.source)
    database.execute(
        "SET sql_mode = ''",
        "BEGIN",
        "INSERT INTO t SELECT seq, '2024-01-01' FROM seq_1_to_25",
        "INSERT INTO t VALUES (26, '0000-00-00')",
        "INSERT INTO t SELECT seq, '2024-01-01' FROM seq_27_to_60",
        "INSERT INTO u VALUES (1)",
        "COMMIT",
        "INSERT INTO t SELECT seq, '2024-01-01' FROM seq_61_to_80",
    )
    bad, good = history.capture()
    assert list(bad.rows) == ["s.u"] and "'0000-00-00'" in bad.lost["s.t"].message
    assert not good.lost and len(counted(good.rows["s.t"])) == 20


def test_every_byte_of_a_single_byte_charset_is_read_as_the_server_shows_it(database: Database) -> None:
    charsets = [
        name
        for (name,) in database.execute(
            "SELECT character_set_name FROM information_schema.character_sets"
            " WHERE maxlen = 1 AND character_set_name <> 'binary'"
        )
    ]
    fields = ", ".join(f"c_{name} VARCHAR(300) CHARACTER SET {name}" for name in charsets)
    database.execute(f"CREATE TABLE t (id INT PRIMARY KEY, {fields})")
    database.setup()
    history = History(database.source)
    every = bytes(range(32, 128)).hex(), bytes(range(128, 256)).hex()
    for number, part in enumerate(every):
        values = ", ".join(f"_{name} X'{part}'" for name in charsets)
        database.execute("SET sql_mode = ''", f"INSERT IGNORE INTO t VALUES ({number}, {values})")
    history.capture()
    assert sum(history.changes("t"), Counter()) == database.read("t")


def test_generated_and_invisible_columns_are_columns_like_others(database: Database) -> None:
    database.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT INVISIBLE DEFAULT 5, twice INT AS (v * 2) VIRTUAL,"
        " thrice INT AS (v * 3) STORED)"
    )
    database.setup()
    history = History(database.source)
    database.execute("INSERT INTO t (id) VALUES (1)", "UPDATE t SET v = 6", "DELETE FROM t")
    history.capture()
    old, new = (1, 5, 10, 15), (1, 6, 12, 18)
    assert history.changes("t") == [Counter({old: 1}), Counter({old: -1, new: 1}), Counter({new: -1})]


def test_a_value_without_an_equal_among_many_rows_is_named(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ends a reading halfway is the reason, not that its connection cannot be used any more."""
    monkeypatch.setattr("rollview.sources.mariadb.read.lookup._CHUNK_ROWS", 100)
    database.execute("SET sql_mode = ''", "CREATE TABLE t (id INT PRIMARY KEY, d DATE)")
    database.execute("SET sql_mode = ''", "INSERT INTO t SELECT seq, '2024-01-01' FROM seq_2_to_90000")
    database.execute("SET sql_mode = ''", "INSERT INTO t VALUES (1, '0000-00-00')")
    database.setup()
    with pytest.raises(UnrepresentableValue, match=r"s\.t\.d is read as date"):
        database.read("t")
    database.execute("DELETE FROM t WHERE id > 1", "UPDATE t SET d = '2024-01-01'")
    assert database.read("t").total() == 1
