"""Global transactions: prepared ones by their name, others by a marker in them."""

from __future__ import annotations

import pytest
from postgres_history import Database, History, bag, read

from rollview.algebra.history import Seen
from rollview.errors import LogLost
from rollview.sources.postgres.collector import global_part

pytestmark = pytest.mark.slow


@pytest.fixture
def items(database: Database) -> Database:
    database.execute("CREATE TABLE item (id int PRIMARY KEY, size int)")
    return database


def prepare(database: Database, number: int, gid: str) -> None:
    database.execute("BEGIN", f"INSERT INTO item VALUES ({number}, 0)", f"PREPARE TRANSACTION '{gid}'")


def parts(history: History) -> list[tuple[str, tuple[str, ...], dict[str, object]]]:
    return [
        (each.global_id, each.participants, {name: bag(rows) for name, rows in each.rows.items()})
        for each in history.capture()
    ]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("g1:s,other", ("g1", ("other", "s"))),
        ("urn:a:b:other, s,s", ("urn:a:b", ("other", "s"))),
        ("g1:other", ("", ())),
        ("g1", ("", ())),
        (":s", ("", ())),
        ("g1:", ("", ())),
    ],
)
def test_a_marker_names_the_transaction_and_the_sources(text: str, part: object) -> None:
    assert global_part(text, "s") == part


def test_a_prepared_transaction_is_told_when_it_is_committed(items: Database) -> None:
    _, history = items.ready()
    prepare(items, 1, "rollview:g1:s,crm")
    items.execute("INSERT INTO item VALUES (2, 0)")
    assert parts(history) == [("", (), {"s.item": {(2, 0): 1}})]
    items.execute("COMMIT PREPARED 'rollview:g1:s,crm'")
    assert parts(history) == [("g1", ("crm", "s"), {"s.item": {(1, 0): 1}})]
    assert history.transactions[1].source_txid < history.transactions[0].source_txid


def test_one_that_is_named_otherwise_is_ordinary_and_one_rolled_back_is_none(items: Database) -> None:
    _, history = items.ready()
    prepare(items, 1, "of somebody else")
    prepare(items, 2, "rollview:g2:s,crm")
    assert parts(history) == []
    items.execute("ROLLBACK PREPARED 'rollview:g2:s,crm'", "COMMIT PREPARED 'of somebody else'")
    assert parts(history) == [("", (), {"s.item": {(1, 0): 1}})]


def test_a_marker_makes_a_transaction_global_even_if_it_changed_nothing_here(items: Database) -> None:
    _, history = items.ready()
    marker = "SELECT pg_logical_emit_message(true, 'rollview', 'g7:s,crm')"
    items.execute("BEGIN", marker, "INSERT INTO item VALUES (1, 0)", "COMMIT")
    items.execute("BEGIN", "INSERT INTO item VALUES (2, 0)", marker.replace("g7", "g8"), "ROLLBACK")
    items.execute(marker.replace("g7", "g9"), marker.replace("true", "false"), marker.replace("g7:s", "g7:x"))
    assert parts(history) == [("g7", ("crm", "s"), {"s.item": {(1, 0): 1}}), ("g9", ("crm", "s"), {})]


def test_log_positions_lead_back_to_what_was_prepared_before_them(items: Database) -> None:
    """Another process goes on from any log position: the prepared rows are kept only in the log."""
    source, history = items.ready()
    origin = history.log_position
    prepare(items, 1, "one")
    items.execute("INSERT INTO item VALUES (2, 0)")
    prepare(items, 3, "two")
    items.execute("INSERT INTO item VALUES (4, 0)")
    history.capture(limit=1)
    items.execute("COMMIT PREPARED 'two'", "INSERT INTO item VALUES (5, 0)", "COMMIT PREPARED 'one'")
    history.capture(limit=1)
    whole = [(each.source_txid, bag(each.rows["s.item"])) for each in history.transactions]
    assert [list(rows) for _, rows in whole] == [[(2, 0)], [(4, 0)], [(3, 0)], [(5, 0)], [(1, 0)]]
    source.close()
    for place, after in enumerate([origin, *(each.log_position for each in history.transactions)]):
        later = History(items.source(), after)
        rest = [(each.source_txid, bag(each.rows["s.item"])) for each in later.capture()]
        assert rest == whole[place:]
        later.source.close()


def test_what_is_forgotten_does_not_take_prepared_rows_with_it(items: Database) -> None:
    source, history = items.ready()
    prepare(items, 1, "one")
    for number in range(2, 6):
        items.execute(f"INSERT INTO item VALUES ({number}, 0)", "SELECT pg_switch_wal()", "CHECKPOINT")
        history.capture(acknowledge=True)
    source.close()
    items.execute("COMMIT PREPARED 'one'")
    later = History(items.source(), history.log_position)
    assert parts(later) == [("", (), {"s.item": {(1, 0): 1}})]


def test_an_origin_does_not_lose_what_is_prepared(items: Database) -> None:
    source, _ = items.ready()
    prepare(items, 1, "one")
    items.execute("INSERT INTO item VALUES (2, 0)")
    history = History(source)
    found = read(source, "item")
    assert bag(found.rows[0]) == {(2, 0): 1}
    assert history.seen(found.read_point) == Seen(0)
    items.execute("COMMIT PREPARED 'one'")
    assert parts(history) == [("", (), {"s.item": {(1, 0): 1}})]


def test_a_snapshot_does_not_see_what_is_only_prepared(items: Database) -> None:
    source, history = items.ready()
    prepare(items, 1, "one")
    items.execute("INSERT INTO item VALUES (2, 0)")
    first = read(source, "item")
    items.execute("COMMIT PREPARED 'one'")
    second = read(source, "item")
    for found in (first, second):
        assert history.changes("item", history.seen(found.read_point)) == bag(found.rows[0])
    assert history.seen(first.read_point) == Seen(1) and history.seen(second.read_point) == Seen(2)


def test_rows_that_were_told_before_and_not_kept_are_missed(items: Database) -> None:
    """Somebody moved the slot on past a prepared transaction: its rows cannot be had any more."""
    source, history = items.ready()
    prepare(items, 1, "one")
    history.capture()
    source.close()
    items.server.free_slots(items.name)
    items.execute(
        "SELECT pg_replication_slot_advance(slot_name, pg_current_wal_lsn()) FROM pg_replication_slots"
        " WHERE database = current_database()"
    )
    items.execute("COMMIT PREPARED 'one'")
    with pytest.raises(LogLost):
        items.source().capture("s", history.log_position, 10)
