"""Leases and steps between real processes, which are killed without warning."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from catalog_world import ORIGINS, TABLES, queries, view_record

from rollview.catalog import ApplyStep, Catalog, LoadStep, ViewAdded
from rollview.errors import LeaseHeld, LeaseLost

pytestmark = pytest.mark.slow
WORKER = Path(__file__).with_name("catalog_worker.py")
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts workers, and ends those that are left over."""
    started: list[subprocess.Popen[str]] = []

    def starter(*arguments: object) -> subprocess.Popen[str]:
        command = [sys.executable, str(WORKER), *map(str, arguments)]
        environment = {**os.environ, "PYTHONWARNINGS": "error"}
        worker = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        started.append(worker)
        return worker

    yield starter
    for worker in started:
        worker.kill()
        worker.communicate()


def _hear(worker: subprocess.Popen[str]) -> list[str]:
    assert worker.stdout is not None
    return worker.stdout.readline().split()


def _continue(worker: subprocess.Popen[str]) -> None:
    assert worker.stdin is not None
    worker.stdin.write("go\n")
    worker.stdin.flush()


def test_of_two_that_race_exactly_one_wins(catalog: Catalog, url: str, start: Start) -> None:
    workers = [start("race", url) for _ in range(2)]
    assert [_hear(worker) for worker in workers] == [["ready"]] * 2
    winners, epochs = set(), []
    for _ in range(150):
        for worker in workers:
            _continue(worker)
        answers = [_hear(worker) for worker in workers]
        assert sorted(answer[0] for answer in answers) == ["held", "won"]
        winners.add([answer[0] for answer in answers].index("won"))
        epochs.append(max(int(answer[1]) for answer in answers))
        for worker in workers:
            _continue(worker)
        assert [_hear(worker) for worker in workers] == [["over"]] * 2
    assert epochs == list(range(1, 151))
    assert winners == {0, 1}, "both must have had a chance, or nothing was raced"


def test_work_under_a_lease_is_never_done_by_two(url: str, tmp_path: Path, start: Start) -> None:
    Catalog.open(url).close()
    counter = tmp_path / "counter"
    counter.write_text("0", encoding="ascii")
    workers = [start("count", url, counter, 40) for _ in range(3)]
    assert [worker.wait(timeout=120) for worker in workers] == [0, 0, 0]
    assert counter.read_text(encoding="ascii") == "120"


@pytest.mark.parametrize("reaped", [True, False])
def test_the_lease_of_a_killed_process_is_free_at_once(
    catalog: Catalog, url: str, start: Start, reaped: bool
) -> None:
    """Also while the killed one is still a zombie that nobody has waited for."""
    for number in range(3):
        holder = start("hold", url, 30)
        assert _hear(holder) == ["won", str(2 * number + 1)]
        with pytest.raises(LeaseHeld, match=f"process {holder.pid} "):
            catalog.lease("prize").__enter__()
        holder.kill()
        if reaped:
            holder.wait()
        else:
            # Only a zombie: WNOWAIT looks without taking it off the list.
            os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)
        started = time.monotonic()
        with catalog.lease("prize") as lease:
            assert lease.epoch == 2 * number + 2
        assert time.monotonic() - started < 5


def test_a_stopped_process_loses_its_lease_and_is_fenced(url: str, start: Start) -> None:
    holder = start("hold", url, 0.6)
    assert _hear(holder) == ["won", "1"]
    with_time = Catalog.open(url, lease_seconds=0.6)
    os.kill(holder.pid, signal.SIGSTOP)
    with with_time.lease("prize", wait_seconds=20) as lease:
        assert lease.epoch == 2
        os.kill(holder.pid, signal.SIGCONT)
        time.sleep(1)  # Long enough for the old holder to try to renew.
        with_time.confirm(lease)
        step = with_time.steps.begin(lease, "v", LoadStep())
        with_time.steps.finish(lease, step)
    with pytest.raises(LeaseLost):
        with_time.confirm(lease)
    with_time.close()


def test_killed_again_and_again_in_a_burst_of_steps(catalog: Catalog, url: str, start: Start) -> None:
    """No id is given twice, and a step's effects are all there or not at all."""
    catalog.captured.register(TABLES, ORIGINS)
    with catalog.lease("burst") as lease:
        catalog.steps.finish(
            lease, catalog.steps.begin(lease, "v", LoadStep()), ViewAdded(view_record(), queries())
        )
    chance = random.Random(7)
    begun: list[int] = [1]
    finished: list[int] = []
    # On a busy machine a worker is killed before it has finished much.
    for number in range(200):
        if number >= 16 and len(finished) > 20:
            break
        worker = start("burst", url)
        assert worker.stdout is not None
        if number % 4:
            # Mostly in the middle of the work, now and then while it is still starting.
            _read_step(worker.stdout.readline(), begun, finished)
        killer = threading.Timer(chance.random() * 0.4, worker.kill)
        killer.start()
        for line in worker.stdout:
            _read_step(line, begun, finished)
        killer.join()
        assert worker.wait() == -signal.SIGKILL
        _check_all_or_nothing(catalog)
        # An id that was assigned but not reported is lost with its process; the step itself is pending.
        begun.extend(step.id for step in catalog.steps.pending(ApplyStep) if step.id not in begun)
    assert begun == sorted(set(begun)), "ids grow, and none comes twice"
    assert finished == sorted(set(finished)) and len(finished) > 20
    with catalog.lease("burst") as lease:
        assert catalog.steps.begin(lease, "v", ApplyStep({}, "burst")).id > max(begun)


def _read_step(line: str, begun: list[int], finished: list[int]) -> None:
    word, number = line.split()
    (begun if word == "begun" else finished).append(int(number))


def _check_all_or_nothing(catalog: Catalog) -> None:
    csn = catalog.history.last_csn()
    view, site = catalog.views.all()["v"], catalog.captured.sites()["x"]
    assert set(catalog.views.positions("v").values()) == {csn} and catalog.views.high_water("v") == csn
    assert (site.version, site.log_position) == (csn, str(csn) if csn else "x0")
    assert (catalog.history.touched("x.r", 0, csn), catalog.history.version_at("x", csn)) == (2 * csn, csn)
    assert view.materialized_csn == csn
    assert [refresh.to_csn for refresh in catalog.views.refreshes("v", 1)] == ([csn] if csn else [])
    pending = catalog.steps.pending(ApplyStep)
    assert [step.bounds.views["v"].upto for step in pending] in ([], [csn + 1])
    assert all(step.id > view.lake_version for step in pending)
