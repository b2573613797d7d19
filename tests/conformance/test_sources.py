"""One set of behaviours, every source: what `sources.source` promises holds for all of them."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sources.driver import SCHEMAS, Driver, Row, Write
from sources.gaps import DRIVERS, GAPS, UNHELD
from sources.ledger import Ledger, comparable, counted_rows
from sources.script import (
    COLUMNS,
    FIRST_ROWS,
    TYPES,
    Script,
    committed,
    current,
    gap,
    ledgers_of,
    opened,
    replayed,
    several,
    transactions,
)

from rollview.algebra.history import Seen
from rollview.algebra.join_graph import access_path
from rollview.algorithms.effects import Question
from rollview.planning import parse_view
from rollview.rows import arrow_type
from rollview.sources.source import columns_to_read

every_source = pytest.mark.parametrize("kind", DRIVERS)
pytestmark = pytest.mark.slow


def site_of(driver: Driver, table: str) -> str:
    return driver.tables()[table].site


@every_source
@several
@given(script=transactions)
def test_oracle_replay_equals_the_table_at_every_transaction(kind: str, script: Script) -> None:
    with opened(kind) as driver:
        ledgers, initial = ledgers_of(driver), current(driver)
        states: dict[str, list[dict[str, Counter[Row]]]] = {site: [] for site in ledgers}
        for touched in committed(driver, script):
            for site in {driver.tables()[name].site for name in touched}:
                states[site].append(current(driver))
        for site, ledger in ledgers.items():
            ledger.capture()
            assert len(ledger.transactions) == len(states[site])
            for number, state in enumerate(states[site], 1):
                told = replayed(driver, ledger, initial, Seen(number))
                assert told == {name: state[name] for name in told}


@every_source
@several
@given(script=transactions, more=transactions)
def test_again_gives_the_same_however_late(kind: str, script: Script, more: Script) -> None:
    with opened(kind) as driver:
        ledgers = ledgers_of(driver)
        list(committed(driver, script))
        for ledger in ledgers.values():
            ledger.capture(limit=3)
        list(committed(driver, more))
        with driver.restarted() as restarted:
            for ledger in ledgers.values():
                for after, batch in ledger.batches:
                    source_txids = [each.source_txid for each in batch.transactions]
                    again = restarted.replay(ledger.site, after, source_txids, batch.log_position)
                    assert again.log_position == batch.log_position
                    assert comparable(again, COLUMNS) == comparable(batch, COLUMNS)


@every_source
@several
@given(script=transactions)
def test_capture_resumes_from_any_log_position(kind: str, script: Script) -> None:
    """Nothing is lost and nothing doubled, and where no gap is declared transactions stay what they were."""
    exact = (kind, "captured anew") not in GAPS
    with opened(kind) as driver:
        initial = current(driver)
        origins = {site: ledger.log_position for site, ledger in ledgers_of(driver).items()}
        list(committed(driver, script))
        for site, whole in ledgers_of(driver, origins).items():
            whole.capture()
            source_txids = [each.source_txid for each in whole.transactions]
            assert len(set(source_txids)) == len(source_txids)
            small = Ledger(driver.source, site, origins[site])
            small.capture(limit=1)
            assert not exact or [each.source_txid for each in small.transactions] == source_txids
            for after, _ in small.batches:
                taken = small.before(after)
                rest = Ledger(driver.source, site, after)
                rest.capture()
                assert (
                    not exact or [each.source_txid for each in (*taken, *rest.transactions)] == source_txids
                )
                rest.transactions[:0] = taken
                told = replayed(driver, rest, initial, Seen(len(rest.transactions)))
                assert told == {name: driver.rows(name) for name in told}
            # Nothing is new: the log position stands still, and so does the history.
            assert driver.source.capture(site, whole.log_position, 10).transactions == ()


@every_source
@several
@given(script=transactions, lag=st.integers(0, 3), keys=st.sets(st.none() | st.integers(0, 6)))
def test_oracle_read_points_tell_the_state_that_was_seen(
    kind: str, script: Script, lag: int, keys: set[int | None]
) -> None:
    with opened(kind) as driver:
        initial = driver.rows("customer")
        ledger = Ledger(driver.source, site_of(driver, "customer"))
        asked, read, early = [ask_for_customers(driver, keys)], [read_customers(driver)], {}
        for number, _ in enumerate(committed(driver, script)):
            asked.append(ask_for_customers(driver, keys))
            read.append(read_customers(driver))
            early[read[-1][1]] = driver.source.seen(ledger.site, read[-1][1], ledger)
            if number % 3 == lag:
                ledger.capture()
        ledger.capture()
        columns = COLUMNS["customer"]
        for rows, read_point in read:
            seen = driver.source.seen(ledger.site, read_point, ledger)
            assert seen is not None
            assert rows == ledger.state("customer", columns, initial, seen)
            # What was told before all was captured is not taken back.
            assert early.get(read_point) in (None, seen)
        for rows, read_point in asked:
            seen = driver.source.seen(ledger.site, read_point, ledger)
            assert seen is not None
            state = ledger.state("customer", columns, initial, seen)
            matches = {row: count for row, count in state.items() if row[0] in keys and row[0] is not None}
            assert {row: count for row, count in rows.items() if row[0] in keys} == matches
            # What was not asked for may come along, but only as it was.
            assert all(state[row] == count for row, count in rows.items())


def read_customers(driver: Driver) -> tuple[Counter[Row], str]:
    table = driver.tables()["customer"]
    found = driver.source.read({table: table.columns}, driver.folder)
    return counted_rows(found.rows[0], table.columns), found.read_point


def question(driver: Driver, sql: str, **keys: list[Any]) -> Question[pa.Table]:
    """The first round's question about customers, from the changes of orders."""
    tables = {table.qualified: table for table in driver.tables().values()}
    (block,) = parse_view(sql, tables.values()).blocks
    (sub_query, *_) = access_path(block, 0).rounds[0]
    shipped = [join_step for join_step in sub_query.join_steps if join_step.shipped]
    given: list[pa.Table | None] = []
    for join_step in shipped:
        names = [parent for parent, _ in join_step.on]
        kinds = [arrow_type(dict(SCHEMAS["orders"])[name.partition(".")[2]]) for name in names]
        arrays = [
            pa.array(keys[name.partition(".")[2]], each) for name, each in zip(names, kinds, strict=True)
        ]
        given.append(pa.table(arrays, names=names) if names else None)
    return Question(block, sub_query, tuple(given))


def ask_for_customers(driver: Driver, keys: set[int | None]) -> tuple[Counter[Row], str]:
    sql = "SELECT o.id, c.id AS cust, c.region, c.name FROM s.orders o JOIN s.customer c ON o.cust = c.id"
    found = driver.source.ask(question(driver, sql, cust=sorted(keys, key=str)))
    return counted_rows(found.rows[0], COLUMNS["customer"]), found.read_point


customers = st.lists(
    st.tuples(st.none() | st.integers(1, 4), st.sampled_from([None, "", "a", "b"])), max_size=8
).map(lambda rows: [(number, *row) for number, row in enumerate(rows, 1)])
pairs = st.lists(
    st.tuples(st.none() | st.integers(0, 6), st.sampled_from([None, "", "a", "b", "c"])), max_size=6
)


@every_source
@several
@given(rows=customers, keys=pairs)
def test_a_composite_key_finds_all_its_matches(kind: str, rows: list[Row], keys: list[Row]) -> None:
    sql = (
        "SELECT o.id, c.id AS cust, c.name FROM s.orders o JOIN s.customer c "
        "ON o.cust = c.region AND o.note = c.name"
    )
    with opened(kind, rows={"customer": rows}) as driver:
        columns = [[key[place] for key in keys] for place in (0, 1)]
        found = driver.source.ask(question(driver, sql, cust=columns[0], note=columns[1]))
        got = counted_rows(found.rows[0], COLUMNS["customer"])
        wanted = {key for key in keys if None not in key}
        assert Counter(row for row in rows if row[1:] in wanted) == Counter(
            {row: count for row, count in got.items() if row[1:] in wanted}
        )
        assert all(row in rows and count == 1 for row, count in got.items())


@every_source
@several
@given(rows=customers, keys=st.lists(st.none() | st.integers(0, 9), max_size=6))
def test_a_chain_at_one_site_finds_all_its_matches(
    kind: str, rows: list[Row], keys: list[int | None]
) -> None:
    sql = (
        "SELECT o.id, c.name, d.name AS parent FROM s.orders o "
        "JOIN s.customer c ON o.cust = c.id JOIN s.customer d ON c.region = d.id"
    )
    with opened(kind, rows={"customer": rows}) as driver:
        asked = question(driver, sql, cust=keys)
        assert [join_step.shipped for join_step in asked.sub_query.join_steps] == [True, False]
        found = driver.source.ask(asked)
        children, parents = (
            counted_rows(each, columns_to_read(asked.block, join_step.relation))
            for each, join_step in zip(found.rows, asked.sub_query.join_steps, strict=True)
        )
        expected = Counter(row for row in rows if row[0] in keys)
        assert Counter({row: n for row, n in children.items() if row[0] in keys}) == expected
        looked_for = {row[1] for row in children} - {None}
        assert {row for row in parents if row[0] in looked_for} == {
            (row[0], row[2]) for row in rows if row[0] in looked_for
        }


@every_source
def test_a_product_is_the_whole_table_with_columns_of_conditions(kind: str) -> None:
    with opened(kind) as driver:
        asked = question(
            driver, "SELECT o.id, c.id AS cust FROM s.orders o, s.customer c WHERE c.name <> 'x'"
        )
        assert asked.keys == (None,)
        found = driver.source.ask(asked)
        assert columns_to_read(asked.block, 1) == ("id", "name")
        expected = Counter((row[0], row[2]) for row in FIRST_ROWS["customer"])
        assert counted_rows(found.rows[0], ("id", "name")) == expected


@every_source
def test_two_tables_in_one_transaction(kind: str) -> None:
    gap(kind, "two tables in one transaction")
    with opened(kind) as driver:
        ledger = Ledger(driver.source, site_of(driver, "orders"))
        driver.commit([Write("orders", None, (9, 9, "x")), Write("customer", None, (9, 1, "Eve"))])
        driver.commit([Write("orders", (9, 9, "x"), None), Write("customer", (9, 1, "Eve"), (9, 2, "Eve"))])
        ledger.capture()
        assert [set(each.rows) for each in ledger.transactions] == [{"s.orders", "s.customer"}] * 2
        second = ledger.transactions[1]
        assert counted_rows(second.rows["s.customer"], COLUMNS["customer"]) == {
            (9, 1, "Eve"): -1,
            (9, 2, "Eve"): 1,
        }


@every_source
def test_setup_again_changes_nothing(kind: str) -> None:
    with opened(kind) as driver:
        ledger = Ledger(driver.source, site_of(driver, "orders"))
        driver.commit([Write("orders", None, (8, 1, "x"))])
        before = driver.traces()
        driver.source.setup(tuple(driver.tables().values()))
        assert driver.traces() == before
        driver.commit([Write("orders", None, (9, 1, "y"))])
        ledger.capture()
        expected = Counter([*FIRST_ROWS["orders"], (8, 1, "x"), (9, 1, "y")])
        first = Counter(FIRST_ROWS["orders"])
        state = ledger.state("orders", COLUMNS["orders"], first, Seen(len(ledger.transactions)))
        assert state == expected == driver.rows("orders")


@every_source
def test_remove_leaves_no_trace(kind: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        driver = DRIVERS[kind](Path(folder), FIRST_ROWS)
        before, rows = driver.traces(), driver.rows("orders")
        driver.source.setup(tuple(driver.tables().values()))
        driver.source.remove()
        assert driver.traces() == before
        assert driver.rows("orders") == rows
        driver.close()


@every_source
@pytest.mark.parametrize("column", TYPES)
def test_types_come_back_as_they_were(kind: str, column: str) -> None:
    gap(kind, f"type {column}")
    schemas = {"orders": (("id", "bigint"), ("value", column))}
    unheld, _ = UNHELD.get((kind, column), ([], ""))
    rows = list(enumerate([value for value in TYPES[column] if value not in unheld], 1))
    with opened(kind, schemas, {"orders": rows}) as driver:
        table = driver.tables()["orders"]
        assert table.types == ("bigint", column)
        ledger = Ledger(driver.source, table.site)
        found = driver.source.read({table: table.columns}, driver.folder)
        assert counted_rows(found.rows[0], table.columns) == Counter(rows)
        driver.commit([Write("orders", None, (number + 100, value)) for number, value in rows])
        driver.commit([Write("orders", row, None) for row in rows])
        ledger.capture()
        inserted = Counter((number + 100, value) for number, value in rows)
        captured = [counted_rows(each.rows["s.orders"], table.columns) for each in ledger.transactions]
        assert captured == [inserted, Counter(dict.fromkeys(rows, -1))]
        if isinstance(ledger.transactions[0].rows["s.orders"], pa.Table):
            schema = ledger.transactions[0].rows["s.orders"].schema
            assert [schema.field(name).type for name in table.columns] == [
                arrow_type(kind) for kind in table.types
            ]


def test_gaps_are_about_sources_that_are_tested() -> None:
    behaviours = {"two tables in one transaction", "captured anew", *(f"type {column}" for column in TYPES)}
    assert {kind for kind, _ in GAPS} <= DRIVERS.keys()
    assert {behaviour for _, behaviour in GAPS} <= behaviours
    for (kind, column), (unheld, reason) in UNHELD.items():
        assert kind in DRIVERS and reason and all(value in TYPES[column] for value in unheld)
