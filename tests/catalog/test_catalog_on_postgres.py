"""A catalog on a PostgreSQL: what only a server does, and what becomes of a connection that is lost."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import psycopg
import pytest
from catalog_world import ORIGINS, TABLES, Both, Plan, capture, postgres_database, queries, view_record
from sqlalchemy import text

from rollview.catalog import ApplyStep, Catalog, CsnRange, Fault, Lease, LoadStep, Materialized, ViewAdded
from rollview.catalog.leases import fence
from rollview.errors import CatalogUnavailable, LeaseHeld, MissingExtra
from servers.postgres import shared_server
from servers.relay import Relay, relayed


@pytest.fixture
def address() -> Iterator[str]:
    """Where the catalog is."""
    with postgres_database() as url:
        yield url


@pytest.fixture
def relay() -> Iterator[Relay]:
    """A network between a catalog and its server."""
    with relayed(shared_server().port) as between:
        yield between


@pytest.mark.slow
def test_a_catalog_on_postgresql_lasts(address: str) -> None:
    assert address.startswith("postgresql://")
    first = Catalog.open(address)
    first.captured.register(TABLES, ORIGINS)
    both = Both()
    both.add(Plan({"x": 1}, {"x.r": 1}))
    capture(first, both.units)
    second = Catalog.open(address)
    assert (second.identity, second.history.last_csn()) == (first.identity, 1)
    with first.lease("work") as lease:
        assert first.steps.begin(lease, "x", LoadStep()).id == second.steps.unfinished()[0].id
        with pytest.raises(LeaseHeld), second.lease("work"):
            pass
    first.close()
    second.close()


@pytest.mark.slow
def test_transactions_are_what_they_must_be_whatever_the_server_prefers(address: str) -> None:
    """Of two that lock a lease one waits: it must then see what the other one wrote, not fail."""
    with psycopg.connect(address, autocommit=True) as admin:
        name = admin.info.dbname
        admin.execute(f"ALTER DATABASE \"{name}\" SET default_transaction_isolation = 'serializable'")
    catalog = Catalog.open(address)
    levels = []
    for begin in (catalog._database.writing, catalog._database.reading):
        with begin() as connection:
            levels.append(connection.execute(text("SHOW transaction_isolation")).scalar())
    catalog.close()
    assert levels == ["read committed", "repeatable read"]


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 500, 20_000])
def test_a_host_that_froze_in_a_transaction_keeps_no_locks(address: str, relay: Relay, rows: int) -> None:
    """It has locked the lease's row, and nothing tells the server that it is gone, not even in a pipeline."""
    frozen, other = Catalog.open(relay.address(address), lease_seconds=2.0), Catalog.open(address)
    failures: list[Exception] = []
    is_ready = threading.Event()

    def watch(_: bytes) -> str:
        # In the middle of many rows, or once a few were answered.
        if rows > 500 and is_ready.is_set():
            relay.freeze()
        return ""

    def freeze(lease: Lease) -> None:
        insert = text("INSERT INTO touch VALUES ('x.r', :csn, 1, 1)")
        try:
            with frozen._database.writing() as connection:
                fence(connection, lease)
                connection.execute(insert, [{"csn": -csn} for csn in range(min(rows, 500))])
                if rows <= 500:
                    relay.freeze()
                is_ready.set()
                connection.execute(insert, [{"csn": csn} for csn in range(1, rows + 1)])
        except CatalogUnavailable as error:
            failures.append(error)

    with suppress(CatalogUnavailable), frozen.lease("work") as lease:
        relay.watch = watch
        thread = threading.Thread(target=freeze, args=(lease,))
        thread.start()
        assert is_ready.wait(30)
        started, taken = time.monotonic(), 0.0
        while not taken:
            with suppress(LeaseHeld, CatalogUnavailable), other.lease("work", 5.0) as mine:
                taken = time.monotonic() - started
                assert mine.epoch == lease.epoch + 1
            assert time.monotonic() - started < 60
        relay.watch = lambda _: ""
        relay.cut()
        thread.join()
    assert failures, "what it had not committed is lost"
    assert taken < 25
    frozen.close()
    other.close()


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_lease_whose_taking_was_not_answered_is_not_in_its_own_way(
    address: str, relay: Relay, when: str
) -> None:
    catalog = Catalog.open(relay.address(address), lease_seconds=60.0)
    relay.watch = lambda sent: when if b"COMMIT\0" in sent else ""
    with pytest.raises(CatalogUnavailable), catalog.lease("work"):
        pass
    relay.watch = lambda _: ""
    started = time.monotonic()
    with catalog.lease("work") as lease:
        assert lease.epoch == (1 if when == "before" else 2)
    assert time.monotonic() - started < 10
    catalog.close()


@pytest.mark.slow
def test_connections_that_are_lost_at_any_commit_double_nothing(address: str, relay: Relay) -> None:
    """A writer that reads what is there and tries again, as the drivers do, makes every csn once."""
    chance, lost = random.Random(5), [0]
    catalog, observer = Catalog.open(relay.address(address)), Catalog.open(address)
    observer.captured.register(TABLES, ORIGINS)
    with observer.lease("work") as lease:
        loaded = observer.steps.begin(lease, "v", LoadStep())
        observer.steps.finish(lease, loaded, ViewAdded(view_record(), queries()))

    def watch(sent: bytes) -> str:
        if b"COMMIT\0" not in sent or chance.random() > 0.2:
            return ""
        lost[0] += 1
        return chance.choice(["before", "after"])

    relay.watch = watch
    ids, shown = [], []
    while len(shown) < 60:
        try:
            with catalog.lease("work") as lease:
                pending = catalog.steps.pending(ApplyStep, "v")
                last = observer.views.get("v").materialized_csn
                assert len(pending) <= 1 and (not pending or pending[0].bounds.views["v"].upto == last + 1)
                step = (
                    pending[0]
                    if pending
                    else catalog.steps.begin(lease, "v", ApplyStep({"v": CsnRange(last, last + 1)}, "test"))
                )
                ids.append(step.id)
                catalog.steps.finish(lease, step, Materialized("v", last + 1, step.id, step.id))
        except CatalogUnavailable:
            pass
        if (now := observer.views.get("v").materialized_csn) != (shown[-1] if shown else 0):
            assert now == (shown[-1] if shown else 0) + 1
            shown.append(now)
    assert lost[0] > 10 and ids == sorted(ids)
    relay.watch = lambda _: ""
    catalog.close()
    observer.close()


@pytest.mark.slow
def test_a_restart_of_the_server_is_an_error_that_passes(address: str) -> None:
    catalog = Catalog.open(address)
    with psycopg.connect(address, autocommit=True) as admin:
        end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        admin.execute(f"{end} WHERE datname = current_database() AND pid <> pg_backend_pid()")
    assert catalog.history.last_csn() == 0, "connections of the pool are tried before they are used"
    catalog.close()


@pytest.mark.slow
def test_a_server_that_only_reads_is_named_as_such(address: str) -> None:
    """A standby of the server, or one that failed over: nothing is half written."""
    catalog = Catalog.open(address)
    with psycopg.connect(address, autocommit=True) as admin:
        admin.execute(f'ALTER DATABASE "{admin.info.dbname}" SET default_transaction_read_only = on')
        end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        admin.execute(f"{end} WHERE datname = current_database() AND pid <> pg_backend_pid()")
    with pytest.raises(CatalogUnavailable, match="read-only") as caught, catalog.lease("work"):
        pass
    assert "disk" not in caught.value.hint and caught.value.retryable
    assert catalog.history.last_csn() == 0
    catalog.close()


@pytest.mark.slow
def test_text_that_no_column_takes_is_no_reason_to_stop(address: str) -> None:
    """A row that differs, or an error that quotes one, may hold a NUL."""
    catalog = Catalog.open(address)
    assert catalog.faults.note(Fault("view", "v", "EvaluationError", "no number: a\0b", "", 1, 0.0))
    assert catalog.faults.of("view")["v"].message == "no number: a\N{SYMBOL FOR NULL}b"
    catalog.close()


def test_without_its_driver_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollview.imports._is_installed", lambda module: module != "psycopg")
    with pytest.raises(MissingExtra, match="a catalog on PostgreSQL needs the extra `postgres`") as caught:
        Catalog.open("postgresql://me:secret@host/x")
    assert caught.value.hint.startswith("pip install 'rollview[postgres]'") and "secret" not in str(
        caught.value
    )
