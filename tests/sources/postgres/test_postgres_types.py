"""Every type both ways: what is captured is what is read, and both are what SQL shows."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from postgres_history import Database, bag, read, table_named

from rollview.errors import CaptureRefused, UnrepresentableValue
from rollview.rows import arrow_type
from rollview.sources import changed_rows
from rollview.sources.postgres import types
from rollview.sources.postgres.types import spark_type_of

pytestmark = pytest.mark.slow

_NAN = float("nan")
TYPES: dict[str, tuple[str, dict[str, Any]]] = {
    "boolean": ("boolean", {"true": True, "false": False}),
    "smallint": ("smallint", {"-32768": -32768, "32767": 32767}),
    "integer": ("int", {"-2147483648": -(2**31), "0": 0}),
    "bigint": ("bigint", {"-9223372036854775808": -(2**63), "9223372036854775807": 2**63 - 1}),
    "real": ("float", {"'NaN'": _NAN, "'-Infinity'": -math.inf, "1.5": 1.5, "'-0'": -0.0}),
    "double precision": ("double", {"'NaN'": _NAN, "'Infinity'": math.inf, "0.1": 0.1, "1e-310": 1e-310}),
    "numeric(15,2)": (
        "decimal(15,2)",
        {"1.1": Decimal("1.10"), "-99999999999.99": Decimal("-99999999999.99")},
    ),
    "numeric(38,0)": ("decimal(38,0)", {"9" * 38: Decimal("9" * 38)}),
    "numeric": ("decimal(38,18)", {"1.5": Decimal("1.5"), "1e-18": Decimal("1e-18")}),
    "numeric(3,-2)": ("decimal(5,0)", {"12345": Decimal(12300)}),
    "numeric(2,4)": ("decimal(4,4)", {"0.0012": Decimal("0.0012")}),
    "text": (
        "string",
        {"''": "", "'größer 中 😀'": "größer 中 😀", r"E'a\tb\nc\r\n\"d\", \\N'": 'a\tb\nc\r\n"d", \\N'},
    ),
    "varchar(20)": ("string", {"'a  '": "a  ", "','": ",", r"'\.'": r"\."}),
    "char(5)": ("string", {"'ab'": "ab   ", "''": "     "}),
    "name": ("string", {"'n'": "n"}),
    "uuid": ("string", {"'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"}),
    "json": ("string", {"""'{"b" : 1,  "a":[]}'""": '{"b" : 1,  "a":[]}'}),
    "jsonb": ("string", {"""'{"b" : 1,  "a":[]}'""": '{"a": [], "b": 1}'}),
    "xml": ("string", {"'<a/>'": "<a/>"}),
    "mood": ("string", {"'sad'": "sad", "'so so'": "so so"}),
    "money_amount": ("decimal(10,2)", {"1.5": Decimal("1.50")}),
    "price": ("decimal(10,2)", {"1.5": Decimal("1.50")}),
    "feeling": ("string", {"'so so'": "so so"}),
    "sizes": ("string", {"'{1,2}'": "{1,2}"}),
    "time": ("string", {"'12:30:01.5'": "12:30:01.5", "'24:00'": "24:00:00"}),
    "int[]": ("string", {"'{1,NULL,-3}'": "{1,NULL,-3}", "'{{1},{2}}'": "{{1},{2}}", "'{}'": "{}"}),
    "text[]": ("string", {r"""ARRAY['a b', '"', 'NULL', '']""": r"""{"a b","\"","NULL",""}"""}),
    "mood[]": ("string", {"'{sad,so so}'": '{sad,"so so"}'}),
    "numeric(5,2)[]": ("string", {"'{1,2.5}'": "{1.00,2.50}"}),
    "timestamptz[]": ("string", {"'{2020-01-01 12:00+02}'": '{"2020-01-01 10:00:00+00"}'}),
    "inet": ("string", {"'10.0.0.1'": "10.0.0.1", "'10.0.0.0/8'": "10.0.0.0/8"}),
    "macaddr": ("string", {"'08-00-2B-01-02-03'": "08:00:2b:01:02:03"}),
    "bytea": ("binary", {r"'\x00ff'": b"\x00\xff", "''": b"", r"'\\x'": b"\\x"}),
    "date": (
        "date",
        {
            "'2020-02-29'": date(2020, 2, 29),
            "'0001-01-01'": date(1, 1, 1),
            "'9999-12-31'": date(9999, 12, 31),
        },
    ),
    "timestamp": (
        "timestamp_ntz",
        {
            "'2020-01-01 01:02:03.000004'": datetime(2020, 1, 1, 1, 2, 3, 4),
            "'1582-10-10'": datetime(1582, 10, 10),
        },
    ),
    "timestamptz": (
        "timestamp",
        {
            "'2020-06-01 12:00:00+05:30'": datetime(2020, 6, 1, 6, 30, tzinfo=UTC),
            "'2020-06-01 12:00:00.5 America/New_York'": datetime(2020, 6, 1, 16, 0, 0, 500_000, tzinfo=UTC),
            # Beyond the year 9999, or before 1, by the clock of the place where it was written.
            "'10000-01-01 00:00+14'": datetime(9999, 12, 31, 10, tzinfo=UTC),
            "'9999-12-31 23:59:59.999999+00'": datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
            "'0001-12-31 23:00-01 BC'": datetime(1, 1, 1, tzinfo=UTC),
        },
    ),
}
MADE = (
    "CREATE TYPE mood AS ENUM ('sad', 'so so', 'happy')",
    "CREATE DOMAIN money_amount AS numeric(10,2) CHECK (VALUE > 0)",
    "CREATE DOMAIN known_amount AS money_amount NOT NULL",
    "CREATE DOMAIN price AS known_amount DEFAULT 1",
    "ALTER DOMAIN known_amount DROP NOT NULL",
    "CREATE DOMAIN any_mood AS mood",
    "CREATE DOMAIN feeling AS any_mood",
    "CREATE DOMAIN any_sizes AS int[]",
    "CREATE DOMAIN sizes AS any_sizes",
)


@pytest.mark.parametrize("declared", TYPES)
def test_a_value_is_captured_and_read_as_what_it_is(database: Database, declared: str) -> None:
    spark, values = TYPES[declared]
    database.execute(*MADE, f"CREATE TABLE t (id int, v {declared})")
    if declared == "xml" and not database.rows("SELECT FROM pg_config WHERE setting LIKE '%libxml%'"):
        pytest.skip("this server was built without XML")
    source, history = database.ready()
    table = table_named(source, "t")
    assert table.types == ("int", spark)
    for number, literal in enumerate(values):
        database.execute(f"INSERT INTO t VALUES ({number}, {literal})")
    database.execute("INSERT INTO t VALUES (99, NULL)")
    expected = {repr((number, value)) for number, value in enumerate((*values.values(),))} | {"(99, None)"}
    captured = {repr(_plain(row)) for each in history.capture() for row in bag(each.rows["s.t"])}
    found = read(source, "t").rows[0]
    assert found.schema.field("v").type == arrow_type(spark)
    assert captured == {repr(_plain(row)) for row in bag(found)} == {_shown(text, spark) for text in expected}
    # Old rows come by another way than new ones.
    database.execute("DELETE FROM t")
    (deleted,) = history.capture()
    assert {repr(_plain(row)) for row in bag(deleted.rows["s.t"])} == captured


def _plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Zones and trailing zeros have several forms for one value."""
    number, value = row
    if isinstance(value, Decimal):
        value = value.normalize()
    elif isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(UTC)
    return number, value


def _shown(text: str, spark: str) -> str:
    if spark.startswith("decimal") and "None" not in text:
        return repr(_plain(eval(text)))
    return text


MISFITS = {
    "numeric": ["'NaN'", "1e30", "0.1234567890123456789"],
    "numeric(10,2)": ["'NaN'"],
    "date": ["'infinity'", "'0044-03-15 BC'", "'10000-01-01'"],
    "timestamp": ["'-infinity'", "'10000-01-01'"],
    "timestamptz": [
        "'infinity'",
        "'9999-12-31 23:59:59-05'",
        "'10000-01-01 00:00+00'",
        "'294276-12-31 23:59:59+00'",
        "'0001-01-01 00:00+05'",
        "'0001-01-01 00:00+00 BC'",
    ],
}


@pytest.mark.parametrize(
    ("declared", "literal"), [(kind, each) for kind, all_ in MISFITS.items() for each in all_]
)
def test_a_value_without_an_equal_is_an_error_that_names_the_column(
    database: Database, declared: str, literal: str
) -> None:
    database.execute(f"CREATE TABLE t (id int, v {declared})", "CREATE TABLE other (id int)")
    source, history = database.ready()
    database.execute(f"INSERT INTO t VALUES (1, {literal})")
    with pytest.raises(UnrepresentableValue, match=r"s\.t\.v"):
        read(source, "t")
    # Transactions without such a value, and other tables, continue.
    database.execute(
        "BEGIN", "DELETE FROM t", "INSERT INTO other VALUES (1)", "COMMIT", "INSERT INTO t VALUES (2)"
    )
    inserted, deleted, later = history.capture()
    for each in (inserted, deleted):
        assert "s.t.v is read as" in each.lost["s.t"].message and "s.t" not in each.rows
        assert "change the value at the source, then run `rollview setup`" in each.lost["s.t"].hint
    assert (
        bag(deleted.rows["s.other"]) == {(1,): 1} and inserted.rows == {} and later.lost == history.lost == {}
    )
    assert bag(later.rows["s.t"]) == {(2, None): 1}


@pytest.mark.parametrize(
    "declared",
    ["int4range[]", "int4range", "interval", "timetz", "money", "bit(3)", "point", "tsvector",
     "numeric(39,0)", "oid"],
)  # fmt: skip
def test_a_column_without_an_equal_is_left_out_and_named(database: Database, declared: str) -> None:
    database.execute(f"CREATE TABLE t (id int PRIMARY KEY, v {declared}, w text)")
    source = database.source()
    assert table_named(source, "t").columns == ("id", "w")
    prepared = source.setup(source.tables())
    assert any("s.t.v" in warning for warning in prepared.warnings)
    _, history = database.ready()
    database.execute("INSERT INTO t (id, w) VALUES (1, 'a')", "UPDATE t SET w = 'b'")
    assert [bag(each.rows["s.t"]) for each in history.capture()] == [
        {(1, "a"): 1},
        {(1, "a"): -1, (1, "b"): 1},
    ]
    assert bag(read(source, "t").rows[0]) == {(1, "b"): 1}


def test_a_generated_column_is_captured_or_left_out_and_never_breaks_the_owner(database: Database) -> None:
    """Since version 18 a table that logs old rows in full must have all of its columns published."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v int GENERATED ALWAYS AS (id + 1) STORED, w text)")
    source, history = database.ready()
    names = table_named(source, "t").columns
    is_logged = database.writer.info.server_version >= 180000
    assert names == (("id", "v", "w") if is_logged else ("id", "w"))
    database.execute("INSERT INTO t (id, w) VALUES (1, 'a')", "UPDATE t SET w = 'b'", "DELETE FROM t")
    first, second = ((1, 2, "a"), (1, 2, "b")) if is_logged else ((1, "a"), (1, "b"))
    assert [bag(each.rows["s.t"]) for each in history.capture()] == [
        {first: 1},
        {first: -1, second: 1},
        {second: -1},
    ]


def test_a_virtual_column_is_refused_for_the_sake_of_the_owner(database: Database) -> None:
    if database.writer.info.server_version < 180000:
        pytest.skip("there are none before version 18")
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v int GENERATED ALWAYS AS (id + 1) VIRTUAL)")
    source = database.source()
    with pytest.raises(CaptureRefused, match="virtual"):
        source.setup(source.tables())


def test_modifiers_of_numeric() -> None:
    packed = lambda precision, scale: ((precision << 16) | (scale & 0x7FF)) + 4  # noqa: E731
    assert spark_type_of("numeric", packed(15, 2)) == "decimal(15,2)"
    assert spark_type_of("numeric", packed(3, -2)) == "decimal(5,0)"
    assert spark_type_of("numeric", packed(2, 5)) == "decimal(5,5)"
    assert spark_type_of("numeric", packed(38, -1)) is None
    assert spark_type_of("numeric", -1) == "decimal(38,18)"


@pytest.mark.parametrize("rows", [2, 3, 4, 5, 7])
@pytest.mark.parametrize("place", [1, -1])
def test_a_value_without_an_equal_in_a_large_transaction_is_a_loss_of_its_table_alone(
    database: Database, monkeypatch: pytest.MonkeyPatch, rows: int, place: int
) -> None:
    """Rows of a large transaction are written to files on their way, the last of them at its end."""
    monkeypatch.setattr(changed_rows, "SPILL_ROWS", 3)
    database.execute("CREATE TABLE t (id int, v date)", "CREATE TABLE other (id int)")
    _, history = database.ready()
    values = ["'2020-01-01'"] * rows
    values[0 if place > 0 else -1] = "'infinity'"
    inserted = ", ".join(f"({number}, {value})" for number, value in enumerate(values))
    database.execute(
        "BEGIN", f"INSERT INTO t VALUES {inserted}", "INSERT INTO other VALUES (1)", "COMMIT",
        "INSERT INTO t VALUES (100, NULL)",
    )  # fmt: skip
    large, later = history.capture()
    assert "which date cannot represent" in large.lost["s.t"].message and set(large.rows) == {"s.other"}
    assert bag(later.rows["s.t"]) == {(100, None): 1} and not later.lost


def test_errors_of_the_decoder_are_errors_of_the_value() -> None:
    for error in (pa.ArrowNotImplementedError("no"), OverflowError("no"), ValueError("no")):

        def fail(*_: object, error: Exception = error) -> None:
            raise error

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(types, "arrow_type", fail)
            with pytest.raises(UnrepresentableValue, match=r"s\.t\.v is read as date"):
                types.from_log("date", "s.t.v")([b"2020-01-01"])
