"""Look-ups find all that Spark would match: whatever the type, the collation, the number of keys."""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from postgres_history import Database, bag, read
from postgres_plans import planned

from rollview.errors import NotSetUp
from rollview.rows import arrow_type
from rollview.sources.postgres.read import lookup as lookup_module

pytestmark = pytest.mark.slow

ITEM = "SELECT p.k, i.id, i.k AS own FROM w.probe p JOIN s.item i ON p.k = i.k"
_NAN = math.nan
_ZONE = timezone(timedelta(hours=5, minutes=30))
ID = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
CASES: list[tuple[str, list[str], str, list[Any]]] = [
    ("int", ["1", "2", "2147483647"], "bigint", [1, 2**31 - 1, 2**31, 2**40, -1]),
    ("bigint", ["1", "70000"], "smallint", [1, 7]),
    ("smallint", ["1", "-5"], "bigint", [-5, 70000, 1]),
    ("numeric(10,2)", ["1.10", "5", "100"], "decimal(9,3)", [Decimal("1.100"), Decimal(5), Decimal("1.101")]),
    ("numeric(10,2)", ["1.10", "5.00"], "int", [5, 1]),
    ("numeric", ["1.5", "2.000"], "decimal(15,2)", [Decimal("1.50"), Decimal("2.00")]),
    ("numeric", ["1.5"], "decimal(38,0)", [Decimal(1)]),
    ("int", ["1", "2"], "decimal(10,1)", [Decimal("1.0"), Decimal("2.5")]),
    ("double precision", ["'NaN'", "0", "'-0'", "1.5", "'Infinity'"], "double", [_NAN, -0.0, 1.5]),
    ("double precision", ["0.5", "'NaN'"], "float", [0.5, _NAN]),
    ("real", ["0.1", "'NaN'", "0"], "float", [0.1, -0.0, _NAN]),
    ("real", ["0.1", "0.5"], "double", [0.1, 0.5]),
    ("text", ["'a'", "'A'", "'a '", "''", "'ä'", "E'x\\ny'", "'\"q\\,'"], "string",
     ["a", "", "ä", "x\ny", '"q\\,', "n\0l"]),
    ('text COLLATE "C"', ["'a'", "'b'"], "string", ["a"]),
    ("text COLLATE nocase", ["'a'", "'A'", "'b'"], "string", ["a", "A", "x"]),
    ("varchar(5)", ["'ab'", "'ab  '"], "string", ["ab", "ab  ", "longer than that"]),
    ("char(5)", ["'ab'", "'c'"], "string", ["ab   ", "c", "c    ", "longer than that"]),
    ("name", ["'ab'"], "string", ["ab", "x" * 70]),
    ("uuid", [f"'{ID}'"], "string", [ID, ID.upper(), "no uuid", ""]),
    ("mood", ["'sad'", "'happy'"], "string", ["sad", "unknown"]),
    ("jsonb", ["'{\"a\":1}'"], "string", ['{"a": 1}', '{"a":1}', "no json"]),
    ("json", ["'{\"a\":1}'"], "string", ['{"a":1}']),
    ("time", ["'12:30'"], "string", ["12:30:00", "nonsense"]),
    ("inet", ["'10.0.0.1'", "'10.0.0.0/8'"], "string", ["10.0.0.1", "10.0.0.0/8", "x"]),
    ("boolean", ["true", "false"], "boolean", [True]),
    ("bytea", [r"'\x00ff'", "''"], "binary", [b"\x00\xff", b"", b"zz"]),
    ("date", ["'2020-02-29'", "'0001-01-01'"], "date", [date(2020, 2, 29), date(1, 1, 1)]),
    ("timestamp", ["'2020-01-01 01:02:03.000004'"], "timestamp_ntz", [datetime(2020, 1, 1, 1, 2, 3, 4)]),
    ("timestamptz", ["'2020-06-01 12:00:00+05:30'", "'2020-06-01 06:30:00.000001Z'"], "timestamp",
     [datetime(2020, 6, 1, 12, tzinfo=_ZONE), datetime(1999, 1, 1, tzinfo=UTC)]),
    ("numeric(10,2)", ["1", "2"], "double", [1.0]),
    ("bigint", ["1"], "string", ["1"]),
]  # fmt: skip
NOCASE = "CREATE COLLATION nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
MOOD = "CREATE TYPE mood AS ENUM ('sad', 'happy')"


def equal_in_spark(one: Any, other: Any) -> bool:
    """NULL matches nothing, NaN matches NaN, numbers match whatever their scale, texts match byte by byte."""
    if one is None or other is None or isinstance(one, str) != isinstance(other, str):
        return False
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return bool(one == other)


@pytest.mark.parametrize("few_keys", [1000, 0], ids=["in the query", "in a table"])
@pytest.mark.parametrize(
    ("declared", "literals", "kind", "keys"), CASES, ids=[f"{c[0]}-{c[2]}" for c in CASES]
)
def test_oracle_keys_find_all_that_is_equal_in_spark(
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    declared: str,
    literals: Sequence[str],
    kind: str,
    keys: Sequence[Any],
    few_keys: int,
) -> None:
    monkeypatch.setattr(lookup_module, "FEW_KEYS", few_keys)
    database.execute(NOCASE, MOOD, f"CREATE TABLE item (id serial, k {declared})")
    database.execute("INSERT INTO item (k) VALUES (NULL)")
    for literal in literals:
        database.execute(
            f"INSERT INTO item (k) VALUES ({literal})", f"INSERT INTO item (k) VALUES ({literal})"
        )
    source, _ = database.ready()
    rows = bag(read(source, "item").rows[0])
    plan = planned(source, ITEM, {"k": (kind, [*keys, None])})
    found = bag(source.lookup(plan).rows[0])
    values = pa.array(keys, arrow_type(kind)).to_pylist()
    wanted = {repr(row) for row in rows if any(equal_in_spark(key, row[1]) for key in values)}
    assert wanted <= {repr(row) for row in found}, "fewer rows than match"
    # More may come, but each only as it is: once.
    assert {repr(row) for row in found} <= {repr(row) for row in rows}
    assert all(count == 1 for count in found.values())
    if source.can_compare(kind, source.tables()[0].types[1]) and declared != "inet":
        assert len(found) < len(rows), "keys were not used"


def test_composite_keys_match_together(database: Database) -> None:
    database.execute("CREATE TABLE item (id int, a int, b text)")
    database.execute("INSERT INTO item SELECT i, i % 5, chr(97 + i % 3) FROM generate_series(1, 60) AS i")
    source, _ = database.ready()
    sql = "SELECT p.a, i.id, i.b FROM w.probe p JOIN s.item i ON p.a = i.a AND p.b = i.b"
    pairs = [(1, "a"), (2, "b"), (1, "c"), (None, "a"), (3, None), (2, "b")]
    keys = {"a": ("bigint", [a for a, _ in pairs]), "b": ("string", [b for _, b in pairs])}
    found = bag(source.lookup(planned(source, sql, keys)).rows[0])
    rows = bag(read(source, "item").rows[0])
    assert found == {row: n for row, n in rows.items() if row[1:] in [(1, "a"), (2, "b"), (1, "c")]}


def test_local_conditions_are_tested_there_where_they_mean_the_same(database: Database) -> None:
    database.execute("CREATE TABLE item (id int, k int, day date, price numeric(10,2), text text)")
    database.execute(
        "INSERT INTO item SELECT i, i % 10, date '2020-01-01' + i, i * 1.5, 'text ' || i % 4"
        " FROM generate_series(1, 200) AS i"
    )
    source, _ = database.ready()
    rows = read(source, "item").rows[0].to_pylist()
    conditions = {
        "i.id <= 50": lambda row: row["id"] <= 50,
        "i.id > -5": lambda row: True,
        "i.text = 'text 1'": lambda row: row["text"] == "text 1",
        r"i.text = 'it\'s'": lambda row: False,
        "i.day >= DATE '2020-03-01'": lambda row: row["day"] >= date(2020, 3, 1),
        "i.price < 15.5": lambda row: row["price"] < Decimal("15.5"),
        "i.id IN (1, 3, 99)": lambda row: row["id"] in (1, 3, 99),
    }
    for text, holds in conditions.items():
        plan = planned(source, f"{ITEM} WHERE {text}", {"k": ("int", [1, 3, 5])})
        found = {row["id"] for row in source.lookup(plan).rows[0].to_pylist()}
        assert found == {row["id"] for row in rows if row["k"] in (1, 3, 5) and holds(row)}, text


def test_a_chain_of_relations_is_one_reading(database: Database) -> None:
    database.execute(
        "CREATE TABLE item (id int, k int, part text)",
        'CREATE TABLE part (name text COLLATE "C", maker int)',
        "INSERT INTO item VALUES (1, 1, 'a'), (2, 1, 'b'), (3, 2, 'c'), (4, 1, NULL)",
        "INSERT INTO part VALUES ('a', 7), ('b', 8), ('c', 9)",
    )
    source, history = database.ready()
    sql = "SELECT i.id, q.maker FROM w.probe p JOIN s.item i ON p.k = i.k JOIN s.part q ON i.part = q.name"
    plan = planned(source, sql, {"k": ("int", [1])})
    found = source.lookup(plan)
    assert bag(found.rows[0]) == {(1, 1, "a"): 1, (2, 1, "b"): 1, (4, 1, None): 1}
    assert bag(found.rows[1]) == {("a", 7): 1, ("b", 8): 1}
    assert history.seen(found.read_point).upto == 0


def test_a_table_that_is_not_captured_cannot_be_asked(database: Database) -> None:
    database.execute("CREATE TABLE item (id int, k int)", "CREATE TABLE other (id int)")
    source, _ = database.ready("other")
    with pytest.raises(NotSetUp, match=r"s\.item"):
        source.lookup(planned(source, ITEM, {"k": ("int", [1])}))


def test_many_keys_are_joined_by_the_server_and_asked_in_parts(database: Database) -> None:
    """100,000 keys, found through the index, by two connections that see one state."""
    database.execute("CREATE TABLE item (id int PRIMARY KEY, k bigint, text text)")
    database.execute("INSERT INTO item SELECT i, i, 'text ' || i FROM generate_series(1, 300000) AS i")
    database.execute("CREATE INDEX ON item (k)", "ANALYZE item")
    source, history = database.ready()
    chance = random.Random(3)
    keys = chance.sample(range(1, 400_000), 100_000)
    plan = planned(source, ITEM, {"k": ("bigint", keys)})
    began = time.monotonic()
    found = source.lookup(plan)
    seconds = time.monotonic() - began
    database.execute("DELETE FROM item WHERE id % 2 = 0")
    assert sorted(found.rows[0].column("k").to_pylist()) == sorted(key for key in keys if key <= 300_000)
    assert seconds < 10
    assert history.seen(found.read_point).upto == 0


def test_keys_that_may_find_one_row_together_are_not_asked_apart(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup_module, "SPLIT_KEYS", 1)
    database.execute(NOCASE, "CREATE TABLE item (id int, k text COLLATE nocase)")
    database.execute("INSERT INTO item VALUES (1, 'a'), (2, 'A'), (3, 'b')")
    source, _ = database.ready()
    found = source.lookup(planned(source, ITEM, {"k": ("string", ["a", "b", "A", "c"])}))
    assert bag(found.rows[0]) == {(1, "a"): 1, (2, "A"): 1, (3, "b"): 1}


@pytest.mark.parametrize(
    ("declared", "stored", "kind", "keys"),
    [
        ("float8", "0", "double", [0.0, -0.0, 1.0, 2.0]),
        ("name", f"'{'x' * 63}'", "string", ["x" * 63, "x" * 70, "a", "b"]),
    ],
)
def test_no_row_is_found_by_two_connections(
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    declared: str,
    stored: str,
    kind: str,
    keys: list[Any],
) -> None:
    """Zeros of either sign are one key, and a text that is too long for a name is none."""
    monkeypatch.setattr(lookup_module, "SPLIT_KEYS", 1)
    database.execute(f"CREATE TABLE item (id int, k {declared})", f"INSERT INTO item VALUES (1, {stored})")
    source, _ = database.ready()
    assert source.lookup(planned(source, ITEM, {"k": (kind, keys)})).rows[0].num_rows == 1


def test_answers_of_several_connections_are_of_one_state(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer moves two rows at once, which different connections look for."""
    monkeypatch.setattr(lookup_module, "SPLIT_KEYS", 2)
    database.execute("CREATE TABLE item (id int, k int)", "INSERT INTO item VALUES (0, 1), (0, 2)")
    source, _ = database.ready()
    stopped = threading.Event()

    def write() -> None:
        with psycopg.connect(database.dsn, autocommit=True) as connection:
            while not stopped.is_set():
                connection.execute("UPDATE item SET id = id + 1")

    thread = threading.Thread(target=write)
    thread.start()
    try:
        plan = planned(source, ITEM, {"k": ("int", [1, 2])})
        for _ in range(200):
            one, other = source.lookup(plan).rows[0].column("id").to_pylist()
            assert one == other
    finally:
        stopped.set()
        thread.join()
