"""One set of behaviours, every source: what `sources.source` promises holds for all of them."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollview.sources.source import Seen, arrow_type
from rollview.testing.driver import Driver, Row, Write
from rollview.testing.lookup_suite import LookupSuite, planned
from rollview.testing.script import (
    COLUMNS,
    FIRST_ROWS,
    TYPES,
    Ledger,
    Script,
    committed,
    comparable,
    counted_rows,
    current,
    gap,
    held,
    ledgers_of,
    opened,
    replayed,
    several,
    transactions,
)


def site_of(driver: Driver, table: str) -> str:
    """The site that commits a table's changes."""
    return driver.tables()[table].site


def read_customers(driver: Driver) -> tuple[Counter[Row], str]:
    """The whole table, and what the reading saw."""
    table = driver.tables()["customer"]
    found = driver.source.read({table: table.columns}, driver.folder)
    return counted_rows(found.rows[0], table.columns), found.read_point


def look_up_customers(driver: Driver, keys: set[int | None]) -> tuple[Counter[Row], str]:
    """Rows by key, and what the reading saw."""
    sql = "SELECT o.id, c.id AS cust, c.region, c.name FROM s.orders o JOIN s.customer c ON o.cust = c.id"
    found = driver.source.lookup(planned(driver, sql, cust=sorted(keys, key=str)))
    return counted_rows(found.rows[0], COLUMNS["customer"]), found.read_point


class SourceSuite(LookupSuite):
    """Derive a class named `Test…` and set `driver`; pytest runs the whole contract against it."""

    @several
    @given(script=transactions)
    def test_oracle_replay_equals_the_table_at_every_transaction(self, script: Script) -> None:
        with opened(self.driver) as driver:
            ledgers, initial = ledgers_of(driver), current(driver)
            states: dict[str, list[dict[str, Counter[Row]]]] = {site: [] for site in ledgers}
            for touched in committed(driver, script):
                for site in {driver.tables()[name].site for name in touched}:
                    states[site].append(current(driver))
            for site, ledger in ledgers.items():
                ledger.capture()
                assert len(ledger.transactions) == len(states[site])
                for number, state in enumerate(states[site], 1):
                    shown = replayed(driver, ledger, initial, Seen(number))
                    assert shown == {name: state[name] for name in shown}

    @several
    @given(script=transactions, more=transactions)
    def test_replay_gives_the_same_however_late(self, script: Script, more: Script) -> None:
        with opened(self.driver) as driver:
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

    @several
    @given(script=transactions)
    def test_capture_resumes_from_any_log_position(self, script: Script) -> None:
        """Nothing is lost or doubled, and where no gap is declared, transactions stay as they were."""
        exact = "captured later" not in self.driver.gaps
        with opened(self.driver) as driver:
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
                        not exact
                        or [each.source_txid for each in (*taken, *rest.transactions)] == source_txids
                    )
                    rest.transactions[:0] = taken
                    shown = replayed(driver, rest, initial, Seen(len(rest.transactions)))
                    assert shown == {name: driver.rows(name) for name in shown}
                # Nothing is new: the log position stays, and so does the history.
                assert driver.source.capture(site, whole.log_position, 10).transactions == ()

    @several
    @given(script=transactions, lag=st.integers(0, 3), keys=st.sets(st.none() | st.integers(0, 6)))
    def test_oracle_read_points_give_the_state_that_was_seen(
        self, script: Script, lag: int, keys: set[int | None]
    ) -> None:
        with opened(self.driver) as driver:
            initial = driver.rows("customer")
            ledger = Ledger(driver.source, site_of(driver, "customer"))
            asked, read, early = [look_up_customers(driver, keys)], [read_customers(driver)], {}
            for number, _ in enumerate(committed(driver, script)):
                asked.append(look_up_customers(driver, keys))
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
                # A resolution from before everything was captured stays the same.
                assert early.get(read_point) in (None, seen)
            for rows, read_point in asked:
                seen = driver.source.seen(ledger.site, read_point, ledger)
                assert seen is not None
                state = ledger.state("customer", columns, initial, seen)
                matches = {
                    row: count for row, count in state.items() if row[0] in keys and row[0] is not None
                }
                assert {row: count for row, count in rows.items() if row[0] in keys} == matches
                # Other rows may be returned as well, but only in their true state.
                assert all(state[row] == count for row, count in rows.items())

    def test_two_tables_in_one_transaction(self) -> None:
        if self.driver.separate_logs:
            pytest.skip("each table has a log of its own, so that a transaction never spans two")
        with opened(self.driver) as driver:
            ledger = Ledger(driver.source, site_of(driver, "orders"))
            driver.commit([Write("orders", None, (9, 9, "x")), Write("customer", None, (9, 1, "Eve"))])
            driver.commit(
                [Write("orders", (9, 9, "x"), None), Write("customer", (9, 1, "Eve"), (9, 2, "Eve"))]
            )
            ledger.capture()
            assert [set(each.rows) for each in ledger.transactions] == [{"s.orders", "s.customer"}] * 2
            second = ledger.transactions[1]
            assert counted_rows(second.rows["s.customer"], COLUMNS["customer"]) == {
                (9, 1, "Eve"): -1,
                (9, 2, "Eve"): 1,
            }

    def test_check_lists_what_setup_does_and_changes_nothing(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            driver = self.driver(Path(folder), FIRST_ROWS)
            tables = tuple(driver.tables().values())
            # Nothing is set up, all is, one table is let go: each time the check comes first.
            for wanted in (tables, tables, tables[:1]):
                before = driver.traces()
                expected = driver.source.check(wanted)
                assert driver.traces() == before
                assert driver.source.setup(wanted) == expected
            driver.close()

    def test_setup_again_changes_nothing(self) -> None:
        with opened(self.driver) as driver:
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

    def test_remove_leaves_no_trace(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            driver = self.driver(Path(folder), FIRST_ROWS)
            before, rows = driver.traces(), driver.rows("orders")
            driver.source.setup(tuple(driver.tables().values()))
            driver.source.remove()
            assert driver.traces() == before
            assert driver.rows("orders") == rows
            driver.close()

    @pytest.mark.parametrize("column", TYPES)
    def test_types_come_back_as_they_were(self, column: str) -> None:
        gap(self.driver, f"type {column}")
        schemas = {"orders": (("id", "bigint"), ("value", column))}
        rows = list(enumerate(held(self.driver, column), 1))
        with opened(self.driver, schemas, {"orders": rows}) as driver:
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

    def test_gaps_are_about_behaviours_that_are_tested(self) -> None:
        assert self.driver.gaps.keys() <= {"captured later", *(f"type {column}" for column in TYPES)}
        for column, (unheld, reason) in self.driver.unheld.items():
            assert reason and all(value in TYPES[column] for value in unheld)
