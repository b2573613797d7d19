"""XA transactions and parts of global ones: they belong where they were decided, not written."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pymysql
import pytest
from mariadb_database import Database, History, counted

from rollview.errors import CaptureRefused, LogLost
from rollview.sources.mariadb import source as source_module
from rollview.sources.mariadb.binlog.server_log import in_doubt

pytestmark = pytest.mark.slow


@pytest.fixture
def table(database: Database) -> Database:
    """A captured table."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "CREATE TABLE late (id INT PRIMARY KEY)")
    database.setup("t")
    return database


def prepare(database: Database, xid: str, *statements: str) -> None:
    """Leaves a prepared transaction behind."""
    with closing(database.connect()) as writer:
        for statement in (f"XA START {xid}", *statements, f"XA END {xid}", f"XA PREPARE {xid}"):
            writer.query(statement)


def test_a_prepared_transaction_comes_when_it_is_committed(table: Database) -> None:
    history = History(table.source)
    prepare(table, "'one'", "INSERT INTO t VALUES (1, 1)")
    table.execute("INSERT INTO t VALUES (2, 2)")
    history.capture()
    assert [list(change) for change in history.changes("t")] == [[(2, 2)]]
    found = table.source.read({table.tables()["t"]: ("id",)}, Path("/nonexistent"))
    assert counted(found.rows[0]) == Counter([(2,)])
    table.execute("INSERT INTO t VALUES (3, 3)", "XA COMMIT 'one'")
    history.capture()
    assert [list(change) for change in history.changes("t")] == [[(2, 2)], [(3, 3)], [(1, 1)]]
    seen = history.seen(found.read_point)
    assert seen is not None and seen.upto == 1


def test_a_transaction_that_is_rolled_back_never_comes(table: Database) -> None:
    history = History(table.source)
    prepare(table, "'one'", "INSERT INTO t VALUES (1, 1)")
    prepare(table, "'two'", "INSERT INTO t VALUES (2, 2)")
    history.capture()
    table.execute("XA ROLLBACK 'one'", "XA COMMIT 'two'")
    history.capture()
    assert [list(change) for change in history.changes("t")] == [[(2, 2)]]
    assert "<" not in history.log_position


def test_every_restart_finds_prepared_rows_again(table: Database) -> None:
    """Log positions remember where the first in-doubt transaction began; any of them can be gone on from."""
    history = History(table.source)
    prepare(table, "'a'", "INSERT INTO t VALUES (1, 1)")
    table.execute("INSERT INTO t VALUES (2, 2)", "FLUSH BINARY LOGS")
    prepare(table, "'b'", "INSERT INTO t VALUES (3, 3)", "UPDATE t SET v = 9 WHERE id = 3")
    table.execute("XA COMMIT 'a'", "INSERT INTO t VALUES (4, 4)", "FLUSH BINARY LOGS", "XA COMMIT 'b'")
    log_positions = [history.log_position]
    while (batch := table.source.capture("s", history.log_position, 1)).log_position != history.log_position:
        history.log_position = batch.log_position
        history.transactions += batch.transactions
        log_positions.append(batch.log_position)
    expected = [[(2, 2)], [(1, 1)], [(4, 4)], [(3, 9)]]
    assert [list(change) for change in history.changes("t")] == expected
    source_txids = [each.source_txid for each in history.transactions]
    assert len(log_positions) > 4 and any("<" in log_position for log_position in log_positions)
    for log_position in (*log_positions, *(each.log_position for each in history.transactions)):
        with closing(table.open()) as restarted:
            later = History(restarted, log_position)
            later.capture()
            found = [each.source_txid for each in later.transactions]
            assert found == source_txids[len(source_txids) - len(found) :]
            known = later.changes("t")
            assert [list(change) for change in known] == expected[len(expected) - len(known) :]


def test_a_history_begins_only_when_what_it_could_miss_is_decided(
    table: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_module, "_IN_DOUBT_SECONDS", 0.3)
    prepare(table, "'old'", "INSERT INTO t VALUES (1, 1)")
    with pytest.raises(CaptureRefused, match="old"):
        table.source.current_position("s")
    table.execute("XA COMMIT 'old'")
    prepare(table, "'new'", "INSERT INTO t VALUES (2, 2)")
    # Prepared while the history begins: read from before it.
    with pytest.raises(CaptureRefused):
        table.source.current_position("s")
    table.execute("XA ROLLBACK 'new'")
    assert History(table.source).capture() == []


def test_a_transaction_is_logged_a_moment_before_it_is_listed(
    table: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server under load lists a prepared transaction late; a history that begins then waits for it."""
    looked_at: list[float] = []

    def late(cursor: Any) -> Any:
        looked_at.append(time.monotonic())
        return in_doubt(cursor) if looked_at[-1] - prepared_at > 0.2 else frozenset()

    monkeypatch.setattr(source_module, "in_doubt", late)
    monkeypatch.setattr(source_module, "_IN_DOUBT_SECONDS", 0.3)
    prepare(table, "'late'", "INSERT INTO t VALUES (1, 1)")
    prepared_at = time.monotonic()
    with pytest.raises(CaptureRefused, match="late"):
        table.source.current_position("s")
    assert looked_at
    table.execute("XA ROLLBACK 'late'")


def test_a_table_that_is_captured_between_prepare_and_commit_has_the_rows(table: Database) -> None:
    history = History(table.source)
    prepare(table, "'one'", "INSERT INTO late VALUES (1)", "INSERT INTO t VALUES (1, 1)")
    history.capture()
    table.setup("t", "late")
    history.capture()
    table.execute("XA COMMIT 'one'")
    (transaction,) = history.capture()
    assert set(transaction.rows) == {"s.t", "s.late"}


def test_the_name_of_a_transaction_does_not_make_it_a_part(table: Database) -> None:
    """Every user can name an XA transaction; only who may write our table can announce a part."""
    history = History(table.source)
    prepare(table, "'rollview:order:17:crm,s'", "INSERT INTO t VALUES (1, 1)")
    prepare(table, "'rollview:none:s,crm'", "INSERT INTO late VALUES (1)")
    prepare(table, "'x'", "INSERT INTO t VALUES (2, 2)", "INSERT INTO _rollview_global VALUES ('g', 's,crm')")
    table.execute("XA COMMIT 'rollview:order:17:crm,s'", "XA COMMIT 'rollview:none:s,crm'", "XA COMMIT 'x'")
    batch = table.source.capture("s", history.log_position, 100)
    first, second = batch.transactions
    assert (first.global_id, first.participants, set(first.rows)) == ("", (), {"s.t"})
    assert (second.global_id, second.participants, set(second.rows)) == ("g", ("crm", "s"), {"s.t"})
    (note,) = batch.notes
    assert "is taken as a transaction of its own" in note and "_rollview_global" in note


def test_a_user_without_rights_on_our_table_announces_nothing(table: Database) -> None:
    history = History(table.source)
    table.execute(
        "CREATE DATABASE IF NOT EXISTS scratch",
        "CREATE TABLE IF NOT EXISTS scratch.own (id INT)",
        "CREATE USER IF NOT EXISTS mallory@'%'",
        "GRANT ALL ON scratch.* TO mallory@'%'",
    )
    xid = "'rollview:g:s,crm'"
    port = table.server.port
    with closing(pymysql.connect(host="127.0.0.1", port=port, user="mallory", database="scratch")) as mallory:
        for statement in (f"XA START {xid}", "INSERT INTO own VALUES (1)", f"XA END {xid}"):
            mallory.query(statement)
        for statement in (f"XA PREPARE {xid}", f"XA COMMIT {xid}"):
            mallory.query(statement)
        with pytest.raises(pymysql.err.OperationalError, match="denied"):
            mallory.query(f"INSERT INTO {table.name}._rollview_global VALUES ('g', 's,crm')")
    table.execute("INSERT INTO t VALUES (1, 1)", "DROP USER mallory@'%'", "DROP DATABASE scratch")
    assert [(each.global_id, set(each.rows)) for each in history.capture()] == [("", {"s.t"})]


def test_a_row_in_our_table_marks_a_transaction_and_is_cleared(table: Database) -> None:
    history = History(table.source)
    with closing(table.connect(autocommit=False)) as writer:
        writer.query("INSERT INTO _rollview_global VALUES ('order-1', 's, crm')")
        writer.query("INSERT INTO t VALUES (1, 1)")
        writer.commit()
        writer.query("INSERT INTO _rollview_global VALUES ('order-2', 's,crm')")
        writer.query("DELETE FROM _rollview_global WHERE id = 'order-2'")
        writer.commit()
        writer.query("INSERT INTO _rollview_global VALUES ('never', 's,crm')")
        writer.rollback()
    first, second = history.capture()
    assert (first.global_id, first.participants, set(first.rows)) == ("order-1", ("crm", "s"), {"s.t"})
    assert (second.global_id, second.rows) == ("order-2", {})
    assert table.execute("SELECT COUNT(*) FROM _rollview_global") == ((1,),)
    table.source.acknowledge("s", history.log_position)
    assert table.execute("SELECT COUNT(*) FROM _rollview_global") == ((0,),)
    assert history.capture() == []


def test_large_prepared_transactions_wait_on_disk(table: Database) -> None:
    history = History(table.source)
    prepare(table, "'large'", "INSERT INTO t SELECT seq, seq FROM seq_1_to_250000")
    assert history.capture() == []
    table.execute("XA COMMIT 'large'")
    (transaction,) = history.capture()
    assert len(counted(transaction.rows["s.t"])) == 250_000


def test_empty_and_one_phase_transactions_need_no_care(table: Database) -> None:
    history = History(table.source)
    for statements in (["SELECT * FROM t"], []):
        table.execute("XA START 'e'", *statements, "XA END 'e'", "XA PREPARE 'e'", "XA COMMIT 'e'")
    table.execute(
        "XA START 'quick'", "INSERT INTO t VALUES (1, 1)", "XA END 'quick'", "XA COMMIT 'quick' ONE PHASE"
    )
    (transaction,) = history.capture()
    assert counted(transaction.rows["s.t"]) == Counter([(1, 1)])


def test_rows_that_lie_before_the_beginning_are_not_passed_over(table: Database) -> None:
    """A log position that was not made by `origin` may lie between a PREPARE and its COMMIT."""
    prepare(table, "'one'", "INSERT INTO t VALUES (1, 1)")
    ((file, offset, *_),) = table.execute("SHOW MASTER STATUS")
    table.execute("XA COMMIT 'one'")
    with pytest.raises(LogLost, match="from before capture began"):
        History(table.source, f"{file}:{offset}:0").capture()
