"""Leases within one process: one holder, fencing, renewal, and a wall clock that cannot be trusted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from catalog_world import by_hand

from rollview.catalog import Catalog, Lease, LoadStep
from rollview.catalog import leases as processes
from rollview.catalog.leases import is_gone, this_process
from rollview.errors import CatalogError, CatalogUnavailable, LeaseHeld, LeaseLost

SECONDS = 0.6
"""A lease's time where its holder is silent."""

LIVE_SECONDS = 5.0
"""A lease's time where its holder must stay ahead of a watcher, on a machine that may be busy."""


class Clock:
    """A wall clock that can be set."""

    def __init__(self) -> None:
        self.shift = 0.0

    def __call__(self) -> float:
        return time.time() + self.shift


@contextmanager
def _opened(url: str, clock: Callable[[], float] = time.time, seconds: float = SECONDS) -> Iterator[Catalog]:
    catalog = Catalog.open(url, clock, lease_seconds=seconds)
    yield catalog
    catalog.close()


def _row(url: str, **values: Any) -> dict[str, Any]:
    """The lease's row, after some of its values were changed by hand."""
    changes = [f"UPDATE lease SET {name} = :{name}" for name in values]
    return by_hand(url, *changes, "SELECT * FROM lease", **values)[0]


def _leave_to_another_host(url: str, **values: Any) -> None:
    """Makes a held lease one of a process that nobody here can see, and that renews no more."""
    row = _row(url)
    _row(url, host="elsewhere", pid=4711, epoch=row["epoch"] + 1, **values)


def test_a_held_lease_is_refused_with_its_holder(url: str) -> None:
    with _opened(url) as catalog, _opened(url) as other, catalog.lease("propagate v") as lease:
        me = this_process()
        for asking in (catalog, other):
            with pytest.raises(LeaseHeld, match=rf"v is held by process {me.pid} on {me.host} since \d+-"):
                asking.lease("propagate v").__enter__()
        with other.lease("apply v") as free:
            assert free == Lease("apply v", 1)
        catalog.confirm(lease)


def test_a_lease_that_could_not_be_given_back_is_not_in_its_own_way(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog's disk failed just then; the process lives on and knows that it holds nothing."""

    def fail(*_: object) -> None:
        raise CatalogUnavailable("disk I/O error")

    with _opened(url, seconds=60.0) as catalog, _opened(url, seconds=60.0) as other:
        with monkeypatch.context() as patched, catalog.lease("apply") as lease:
            patched.setattr("rollview.catalog.leases.Leases._release", fail)
        assert _row(url)["pid"] is not None
        with other.lease("apply") as again:
            assert again.epoch == lease.epoch + 1
            with pytest.raises(LeaseHeld), catalog.lease("apply"):
                pass


def test_two_threads_of_one_process_do_not_share_a_lease(url: str) -> None:
    won: list[Lease] = []
    barrier = threading.Barrier(4)

    def compete() -> None:
        barrier.wait()
        try:
            with catalog.lease("prize") as lease:
                won.append(lease)
                ended.wait()
        except LeaseHeld:
            refused.release()

    with _opened(url) as catalog:
        for round_number in range(1, 6):
            ended, refused = threading.Event(), threading.Semaphore(0)
            threads = [threading.Thread(target=compete) for _ in range(4)]
            for thread in threads:
                thread.start()
            assert all(refused.acquire(timeout=30) for _ in range(3))
            ended.set()
            for thread in threads:
                thread.join()
            assert won[-1].epoch == round_number and len(won) == round_number


def test_epochs_grow_with_each_holder(url: str) -> None:
    with _opened(url) as catalog:
        epochs = []
        for _ in range(3):
            with catalog.lease("work") as lease:
                epochs.append(lease.epoch)
        assert epochs == [1, 2, 3]
        with pytest.raises(ZeroDivisionError), catalog.lease("work"):
            raise ZeroDivisionError
        with catalog.lease("work") as lease:
            assert lease.epoch == 5


def test_a_lease_that_was_given_back_writes_nothing(url: str) -> None:
    with _opened(url) as catalog:
        with catalog.lease("work") as lease:
            step = catalog.steps.begin(lease, "v", LoadStep())
        for write in (
            lambda: catalog.steps.begin(lease, "v", LoadStep()),
            lambda: catalog.steps.finish(lease, step),
            lambda: catalog.steps.abandon(lease, step),
            lambda: catalog.confirm(lease),
        ):
            with pytest.raises(LeaseLost, match="now held by nobody"):
                write()
        assert catalog.steps.pending(LoadStep) == [step]


def test_an_overtaken_holder_is_fenced_off(url: str) -> None:
    with _opened(url) as catalog, catalog.lease("work") as lease:
        step = catalog.steps.begin(lease, "v", LoadStep())
        _leave_to_another_host(url)
        for write in (
            lambda: catalog.steps.begin(lease, "v", LoadStep()),
            lambda: catalog.steps.finish(lease, step),
            lambda: catalog.steps.abandon(lease, step),
            lambda: catalog.confirm(lease),
        ):
            with pytest.raises(LeaseLost, match="now held by process 4711 on elsewhere") as caught:
                write()
        assert isinstance(caught.value, CatalogError) and caught.value.subject == "work"
        assert catalog.steps.pending(LoadStep) == [step]
    # Giving back what one does not have any more takes nothing from the new holder.
    assert _row(url)["pid"] == 4711


@pytest.mark.slow
@pytest.mark.parametrize("shift", [0.0, 3600.0, -3600.0, LIVE_SECONDS, -LIVE_SECONDS])
def test_a_live_holder_keeps_its_lease_however_the_clock_is_set(sqlite_url: str, shift: float) -> None:
    """First the asking one's clock is set, then the holder's; the asking one has time to wait, or none."""
    asking, holding = Clock(), Clock()
    with (
        _opened(sqlite_url, holding, LIVE_SECONDS) as catalog,
        _opened(sqlite_url, asking, LIVE_SECONDS) as other,
        catalog.lease("work") as lease,
    ):
        for clock, wait in ((asking, 0.0), (asking, LIVE_SECONDS), (holding, LIVE_SECONDS)):
            asking.shift, holding.shift = 0.0, 0.0
            clock.shift = shift
            with pytest.raises(LeaseHeld):
                other.lease("work", wait).__enter__()
            catalog.confirm(lease)
        assert _row(sqlite_url)["beat"] >= 4


@pytest.mark.parametrize("shift", [0.0, 3600.0, -3600.0, -SECONDS])
def test_a_silent_holder_elsewhere_loses_its_lease_however_the_clock_is_set(url: str, shift: float) -> None:
    clock = Clock()
    with _opened(url, clock) as catalog:
        with catalog.lease("work"):
            _leave_to_another_host(url)
        clock.shift = shift
        started = time.monotonic()
        with catalog.lease("work", wait_seconds=20) as lease:
            waited = time.monotonic() - started
            assert lease.epoch == 3
        assert SECONDS / 2 <= waited <= 2.5 * SECONDS + 5


@pytest.mark.slow
def test_whoever_waited_for_one_lease_takes_the_others_of_the_dead_at_once(url: str) -> None:
    """Or a standby would watch the leases of each kind of work in turn."""
    with _opened(url, seconds=3.0) as catalog:
        with catalog.lease("run"), catalog.lease("capture"), catalog.lease("apply"):
            _leave_to_another_host(url)
        with catalog.lease("run", wait_seconds=20):
            started = time.monotonic()
            with catalog.lease("capture", wait_seconds=20), catalog.lease("apply", wait_seconds=20):
                assert time.monotonic() - started < 1.5


def test_an_old_lease_is_taken_even_by_one_who_does_not_wait(url: str) -> None:
    with _opened(url) as catalog:
        with catalog.lease("work"):
            now = time.time()
            _leave_to_another_host(url, renewed_at=now - 100, expires_at=now - 100 + SECONDS)
        with catalog.lease("work") as lease:
            assert lease.epoch == 3


def test_a_fresh_lease_elsewhere_is_refused_at_once(url: str) -> None:
    with _opened(url) as catalog:
        with catalog.lease("work"):
            _leave_to_another_host(url, renewed_at=time.time() + 1, expires_at=time.time() + 31)
        started = time.monotonic()
        with pytest.raises(LeaseHeld, match="4711 on elsewhere"):
            catalog.lease("work").__enter__()
        assert time.monotonic() - started < 5


def test_a_process_is_distinguished_from_one_with_the_same_number(tmp_path: Path) -> None:
    me = this_process()
    assert not is_gone(me)
    assert is_gone(replace(me, start="1"))
    assert is_gone(replace(me, pid=2**22 + 1))
    # Of processes elsewhere nothing is known: another host, another boot, another container.
    assert not is_gone(replace(me, host="elsewhere", pid=2**22 + 1))
    assert not is_gone(replace(me, kernel="another boot", pid=2**22 + 1))
    # Without a start time the number must do.
    assert not is_gone(replace(me, start=""))


def test_a_name_with_spaces_and_parentheses_does_not_confuse(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = " ".join(str(number) for number in range(4, 53))
    monkeypatch.setattr(processes.Path, "read_text", lambda *_, **__: f"7 (a) Z (b) S {fields}\n")
    assert processes._state_and_start(7) == ("S", "22")
