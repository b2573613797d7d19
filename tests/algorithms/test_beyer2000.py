"""beyer2000 §4 with the paper's own values, and over all schedules of the paper's situations."""

from __future__ import annotations

import pytest

from rollview.algorithms.beyer2000 import ipda
from rollview.algorithms.beyer2000.ipda import VARIANTS, Variant
from rollview.algorithms.beyer2000.ipda_effects import AwaitClock, ReadDelta, RecordsOf, RefreshTime
from rollview.algorithms.registry import ALGORITHMS
from rollview.errors import WorldError
from rollview.lab.examples.policies import (
    APPLY_CORRECTED,
    COMMIT_TABLE,
    INITIAL,
    LATE_CLOCK,
    LATE_ORDER,
    LOCKED_INITIAL,
    figure_2_steps,
    run_anomaly,
    run_script,
    shown,
)
from rollview.lab.simulator.database_simulation import explore, simulate_ipda
from rollview.lab.simulator.database_worlds import (
    IpdaWorld,
    bank,
    chain,
    clock,
    deposits,
    every_example,
    lost_update,
    rollback,
    transfer,
)
from rollview.lab.simulator.properties import Property, check_ipda, ipda_spectrum
from rollview.lab.simulator.schedule import Recorded, every_schedule

COMMIT_RECORDS = VARIANTS["algorithm 2 with commit records, coarse lock"]
SELECTABLE = [variant for variant in VARIANTS.values() if variant.selectable]
TOGETHER = {Property.ATOMIC_ACROSS_VIEWS, Property.NO_REORDERING, Property.REAL_TIME}


def test_algorithm_1_on_the_delta_table_of_figure_2() -> None:
    """Transactions 2, 3, 4 wrote in the window; 4 continued past it; 2 began before it."""
    (*asked, retrieve), applied = figure_2_steps()
    assert asked == [
        RefreshTime("V"),
        AwaitClock(20),
        ReadDelta("V", 10, 20, read_locks=True),
        ReadDelta("V", 20, None, read_locks=False),
    ]
    assert isinstance(retrieve, RecordsOf) and set(retrieve.xids.counts) == {(2,), (3,)}
    (piece,) = applied.pieces
    assert applied.upto == 20
    assert set(piece.counts) == {("b", 1), ("c", 1), ("d", 1), ("e", 1)}


def test_a_view_is_never_rolled_back() -> None:
    steps = ipda.apply(COMMIT_TABLE, deposits(), 20)
    assert next(steps) == RefreshTime("Deposits")
    with pytest.raises(StopIteration):
        steps.send(20)


def test_lost_update_at_2_59() -> None:
    """§4.1: the clock was read at 2:59, the apply at 3:01 misses the record, and so does the next."""
    run = run_anomaly("4.1")
    assert run.fates["x1"].committed_at == clock(3, 1)
    assert [shown(run, "Deposits", clock(hour, 0)) for hour in (3, 4)] == [{"a1": 100}] * 2
    assert set(check_ipda(run)) == {Property.NO_LOST_UPDATES, Property.REAL_TIME}
    assert "x1: clock → 179" in run.story


def test_the_lock_holds_the_apply_back() -> None:
    """§4.2: reading the clock and inserting cannot be separated by a read of the table."""
    with pytest.raises(WorldError, match="`pass Deposits` cannot happen here"):
        run_script(lost_update(), LOCKED_INITIAL, "x1: update lock clock", "tick", "Deposits: pass")
    run = run_script(
        lost_update(), LOCKED_INITIAL, "x1: update lock clock", "tick", "x1: insert unlock commit"
    )
    assert shown(run, "Deposits", clock(3, 0)) == {"a1": 200}
    assert check_ipda(run) == {}


def test_the_lock_lets_a_reader_of_earlier_times_pass() -> None:
    """§4.2: a writer that took its lock at 3:01 cannot write a time up to 3:00."""
    run = run_script(
        lost_update(), COMMIT_TABLE, "tick", "x1: update insert lock", f"Deposits: {APPLY_CORRECTED}"
    )
    assert shown(run, "Deposits", clock(3, 0)) == {"a1": 100}
    assert check_ipda(run) == {}
    assert ipda.lets_pass([clock(3, 1)], clock(3, 0))
    assert not ipda.lets_pass([clock(3, 1), clock(3, 0)], clock(3, 0))


def test_withdrawals_without_deposits() -> None:
    """§4.3: the withdrawal is recorded at 2:59, the deposit at 3:01, both views are refreshed to 3:00."""
    run = run_anomaly("4.3")
    assert shown(run, "Withdrawals", clock(3, 0)) == {"a1": -100}
    assert shown(run, "Deposits", clock(3, 0)) == {"a1": 100}
    assert set(check_ipda(run)) == {Property.ATOMIC_ACROSS_VIEWS, Property.REAL_TIME}


@pytest.mark.parametrize("variant", SELECTABLE, ids=lambda variant: variant.name)
def test_a_commit_record_keeps_the_transfer_together(variant: Variant) -> None:
    """§4.5: with the same course of events both views have the transfer, or none has."""
    run = run_script(transfer(), variant, "x1: update insert", "tick", "x1: update insert lock clock")
    assert shown(run, "Withdrawals", clock(3, 0)) == {}
    assert shown(run, "Deposits", clock(3, 0)) == {"a1": 100}
    assert check_ipda(run) == {}


def test_the_transfer_via_a2_reordered() -> None:
    """§4.4: a3 got its money from a1 via a2, but a2 never had it."""
    run = run_anomaly("4.4")
    assert run.fates["x2"].follows == {"x1"}
    assert shown(run, "Deposits", clock(3, 0)) == {"a1": 100, "a3": 100}
    found = check_ipda(run)
    assert found[Property.NO_REORDERING] == "Deposits at 180 has x2 without x1, which it follows"
    assert Property.NO_LOST_UPDATES not in found


def test_x2_waits_for_x1_at_a2() -> None:
    """§4.4: strict locking makes x2 wait, which is why x1 comes first."""
    with pytest.raises(WorldError, match="`update x2` cannot happen here"):
        run_script(chain(), COMMIT_TABLE, "x2: update insert", "x1: update update", "x2: update")


SEVERAL = [variant for variant in VARIANTS.values() if not variant.one_clock]


@pytest.mark.parametrize("variant", SEVERAL[1:], ids=lambda variant: variant.name)
def test_several_clocks_lose_an_update(variant: Variant) -> None:
    """§4.6: the apply has read up to 3:00; then a node whose clock is late records a commit at 2:58."""
    run = run_script(lost_update(), variant, *LATE_CLOCK)
    assert run.fates["x1"].commit_time == clock(2, 58)
    assert Property.NO_LOST_UPDATES in check_ipda(run)


@pytest.mark.parametrize("variant", SEVERAL[1:], ids=lambda variant: variant.name)
def test_several_clocks_reorder(variant: Variant) -> None:
    """§4.6: x1 < x2, but x1 commits at 3:01 by one clock and x2 at 2:58 by another."""
    run = run_script(chain(), variant, *LATE_ORDER)
    assert [run.fates[name].commit_time for name in ("x1", "x2")] == [clock(3, 1), clock(2, 58)]
    assert shown(run, "Deposits", clock(3, 0)) == {"a1": 100, "a3": 100}
    assert Property.NO_REORDERING in check_ipda(run)


@pytest.mark.parametrize("variant", [COMMIT_RECORDS, COMMIT_TABLE], ids=lambda variant: variant.name)
def test_real_time_is_the_assigned_commit_time(variant: Variant) -> None:
    """Deviations: a transaction that read the clock at 2:59 and commits at 3:01 is in the view at 3:00."""
    run = run_script(
        lost_update(), variant, "x1: update insert lock clock", "tick", "x1: record unlock commit"
    )
    assert (run.fates["x1"].commit_time, run.fates["x1"].committed_at) == (clock(2, 59), clock(3, 1))
    assert shown(run, "Deposits", clock(3, 0)) == {"a1": 200}
    assert check_ipda(run) == {}


def test_apply_waits_for_an_uncommitted_commit_record() -> None:
    """§4.5: a commit record is read with read locks; if its transaction aborts, it is gone."""
    with pytest.raises(WorldError, match="`read Deposits` cannot happen here"):
        script = "x1: update insert update insert lock clock record unlock"
        run_script(rollback(), COMMIT_TABLE, script, "tick", "Deposits: pass read")
    run = run_script(rollback(), COMMIT_TABLE, script, "tick", "Deposits: pass", "x1: abort")
    assert shown(run, "Deposits", clock(3, 0)) == {"a1": 100}
    assert check_ipda(run) == {}


def test_an_abort_releases_the_lock() -> None:
    """§4.2: an error between lock and unlock must not keep readers out forever."""
    run = run_script(rollback(), COMMIT_RECORDS, "x1: update insert update insert lock abort", "tick")
    assert not run.stopped and check_ipda(run) == {}


def test_only_the_corrected_algorithm_may_serve_real_views() -> None:
    assert [variant.name for variant in SELECTABLE] == [
        "algorithm 2 with commit records, coarse lock",
        "algorithm 2 with commit records, fine lock",
        "algorithm 2 with the commit table, coarse lock",
        "algorithm 2 with the commit table, fine lock",
    ]
    assert ALGORITHMS.keys().isdisjoint(VARIANTS)


def test_every_schedule_of_a_tiny_world_with_and_without_known_states() -> None:
    """Leaving out states that are known already finds just what trying all schedules finds."""
    world = bank("tiny", (deposits(),), lost_update().transactions, [("Deposits", clock(3, 0))])
    for variant in (INITIAL, COMMIT_TABLE, SEVERAL[1]):
        everything = [check_ipda(simulate_ipda(world, variant, schedule)) for schedule in every_schedule()]
        explored = [check_ipda(run) for run in explore(world, variant)]
        assert len(everything) > 3 * len(explored)
        assert {frozenset(found.items()) for found in everything} == {
            frozenset(found.items()) for found in explored
        }


@pytest.mark.parametrize("variant", [COMMIT_RECORDS, COMMIT_TABLE], ids=lambda variant: variant.name)
@pytest.mark.parametrize("world", every_example(), ids=lambda world: world.name)
def test_algorithm_2_over_all_schedules(world: IpdaWorld, variant: Variant) -> None:
    runs = list(explore(world, variant))
    assert len(runs) > 10
    assert [found for run in runs if (found := check_ipda(run))] == []


def test_real_time_implies_the_other_properties() -> None:
    """§3, property 6, over every run of every kind of failure."""
    for variant in (INITIAL, SEVERAL[2]):
        for world in (lost_update(), transfer()):
            for run in explore(world, variant):
                found = check_ipda(run)
                assert Property.REAL_TIME in found or not found


EXPECTED = {
    "algorithm 1, no lock": {Property.NO_LOST_UPDATES, *TOGETHER},
    "algorithm 1, coarse lock": TOGETHER,
    "algorithm 1, fine lock": TOGETHER,
    "algorithm 1, coarse lock, several clocks": {Property.NO_LOST_UPDATES, *TOGETHER},
    "algorithm 2 with commit records, no lock": {Property.NO_LOST_UPDATES, *TOGETHER},
    "algorithm 2 with commit records, coarse lock": set(),
    "algorithm 2 with commit records, fine lock": set(),
    "algorithm 2 with commit records, coarse lock, several clocks": {Property.NO_LOST_UPDATES, *TOGETHER},
    "algorithm 2 with the commit table, no lock": {Property.NO_LOST_UPDATES, *TOGETHER},
    "algorithm 2 with the commit table, coarse lock": set(),
    "algorithm 2 with the commit table, fine lock": set(),
    "algorithm 2 with the commit table, coarse lock, several clocks": {Property.NO_LOST_UPDATES, *TOGETHER},
}


@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.parametrize("name", VARIANTS)
def test_the_spectrum(name: str) -> None:
    """Which variant misses what, each with a witness that can be replayed."""
    row = ipda_spectrum({name: VARIANTS[name]})[name]
    assert {each for each, witness in row.items() if witness} == EXPECTED[name]
    for each, witness in row.items():
        if witness:
            run = simulate_ipda(witness.world, VARIANTS[name], Recorded(witness.choices))
            assert check_ipda(run)[each] == witness.reason
