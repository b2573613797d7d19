"""Larger worlds of beyer2000 with random schedules, and mistakes planted into the very same runs."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import chain
from typing import Any

import pytest

from rollview.algebra.expression import Column, Literal, call
from rollview.algebra.net_effect import in_order as true_in_order
from rollview.algebra.view import View
from rollview.algorithms.beyer2000 import ipda
from rollview.algorithms.beyer2000.ipda import VARIANTS, Granularity, Variant
from rollview.algorithms.beyer2000.ipda_effects import (
    XID,
    AcquireWrite,
    ApplyProcess,
    AwaitClock,
    InsertCommitRecord,
    PassLock,
    ReadClock,
    ReadCommitRecords,
    ReleaseWrite,
    Writer,
)
from rollview.lab.memory.bag import MemoryBag
from rollview.lab.simulator import database as ipda_database
from rollview.lab.simulator.database import Database
from rollview.lab.simulator.database_simulation import explore, simulate_ipda
from rollview.lab.simulator.database_worlds import (
    IpdaRun,
    IpdaWorld,
    UpdateTransaction,
    bank,
    clock,
    deposits,
    entry,
    every_example,
    random_world,
    rollback,
)
from rollview.lab.simulator.properties import Property, check_ipda, contents_after
from rollview.lab.simulator.schedule import Seeded
from rollview.operators.aggregate import ROWS, Aggregate

RUNS = 60
SELECTABLE = [variant for variant in VARIANTS.values() if variant.selectable]
COMMIT_RECORDS = VARIANTS["algorithm 2 with commit records, fine lock"]
COMMIT_TABLE = VARIANTS["algorithm 2 with the commit table, coarse lock"]


def _side_by_side() -> IpdaWorld:
    """Two transactions that do not conflict, so that both can hold the IPDA lock at once."""
    both = tuple(UpdateTransaction(f"x{number}", (entry(f"a{number}", 10),)) for number in (1, 2))
    return bank("side by side", (deposits(),), both, [("Deposits", clock(3, 0))])


def _runs(variant: Variant, seeds: Sequence[int]) -> Iterator[IpdaRun]:
    for seed in seeds:
        generator = random.Random(seed)
        world = random_world(generator)
        yield simulate_ipda(world, variant, Seeded(generator))


@pytest.mark.parametrize("variant", SELECTABLE, ids=lambda variant: variant.name)
def test_algorithm_2_keeps_all_properties(variant: Variant) -> None:
    committed = 0
    for seed, run in enumerate(_runs(variant, range(RUNS))):
        assert check_ipda(run) == {}, seed
        committed += sum(fate.committed for fate in run.fates.values())
    assert committed > 4 * RUNS


@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.parametrize("runs", [150, pytest.param(500, marks=pytest.mark.soak)])
@pytest.mark.parametrize("variant", SELECTABLE, ids=lambda variant: variant.name)
def test_algorithm_2_keeps_all_properties_for_long(variant: Variant, runs: int) -> None:
    seeds = range(RUNS, RUNS + runs)
    assert [seed for seed, run in zip(seeds, _runs(variant, seeds), strict=True) if check_ipda(run)] == []


@pytest.mark.parametrize("name", [name for name, variant in VARIANTS.items() if not variant.selectable])
def test_the_others_do_not(name: str) -> None:
    missed = {each for run in _runs(VARIANTS[name], range(RUNS)) for each in check_ipda(run)}
    assert {Property.ATOMIC_ACROSS_VIEWS, Property.NO_REORDERING, Property.REAL_TIME} <= missed
    assert not missed & {Property.NO_REDUNDANT_UPDATES, Property.ATOMIC_PER_VIEW}
    one_clock = VARIANTS[name].one_clock and VARIANTS[name].lock is not Granularity.NONE
    assert (Property.NO_LOST_UPDATES in missed) is not one_clock


@pytest.mark.parametrize("variant", [COMMIT_RECORDS, COMMIT_TABLE], ids=lambda variant: variant.name)
def test_oracle_views_are_right_at_all_of_their_valid_time(variant: Variant) -> None:
    """§6: a stored view shows the database at every time of its valid time, by commit times."""
    judged = 0
    for run in _runs(variant, range(60)):
        for view, states in run.shown.items():
            for valid, contents in states:
                for time in (time for time in run.world.times if time in valid):
                    done = {x for x, fate in run.fates.items() if fate.committed and _time(fate) <= time}
                    assert contents == contents_after(run.world, view, done)
                    judged += 1
    assert judged > 1000


def _time(fate: ipda_database.Fate) -> int:
    # A transaction that touches no view has no commit record.
    return fate.committed_at if fate.commit_time is None else fate.commit_time


Patch = pytest.MonkeyPatch


def lock_on_the_delta_table(patch: Patch) -> None:
    """The reader locks ΔV, as Algorithm 2 says, and writers the table of the commit record, as §4.2 does."""
    true_apply = ipda.apply

    def mistaken(variant: Variant, view: View, upto: int) -> ApplyProcess:
        return locking_delta_tables(true_apply(variant, view, upto), [view.name])

    patch.setattr(ipda, "apply", mistaken)


def delta_tables_locked_by_both(patch: Patch) -> None:
    """Algorithm 2 with the lock on ΔV, from the reading of the clock on, by reader and writers."""
    lock_on_the_delta_table(patch)
    true_record = ipda.record_commit

    def record(variant: Variant, touched: Sequence[str]) -> Writer:
        return locking_delta_tables(true_record(variant, touched), touched)

    patch.setattr(ipda, "record_commit", record)


def locking_delta_tables(steps: Generator[Any, Any, None], views: Sequence[str]) -> Generator[Any, Any, None]:
    """The same steps, with every lock on the delta tables of these views."""
    tables, value = tuple(dict.fromkeys(views)), None
    while True:
        try:
            effect = steps.send(value)
        except StopIteration:
            return
        if isinstance(effect, PassLock):
            effect = PassLock(tables[0], effect.upto)
        elif isinstance(effect, AcquireWrite | ReleaseWrite):
            effect = type(effect)(tables)
        value = yield effect


def lock_after_the_clock(patch: Patch) -> None:
    """The fine lock is taken for each commit record, when the clock has been read already."""

    def mistaken(variant: Variant, touched: Sequence[str]) -> Writer:
        timestamp: int = yield ReadClock()
        for table in dict.fromkeys(ipda.commit_records_in(variant, view) for view in touched):
            yield AcquireWrite((table,))
            yield InsertCommitRecord(table, timestamp)
            yield ReleaseWrite((table,))

    patch.setattr(ipda, "record_commit", mistaken)


def a_clock_reading_for_each_commit_record(patch: Patch) -> None:
    """The commit records of one transaction get different times."""

    def mistaken(variant: Variant, touched: Sequence[str]) -> Writer:
        for table in dict.fromkeys(ipda.commit_records_in(variant, view) for view in touched):
            yield AcquireWrite((table,))
            timestamp: int = yield ReadClock()
            yield InsertCommitRecord(table, timestamp)
            yield ReleaseWrite((table,))

    patch.setattr(ipda, "record_commit", mistaken)


def commit_time_too_early(patch: Patch) -> None:
    """The commit record is written before the last statement has got its locks."""
    true_record, true_store = ipda.record_commit, ipda.store_view_delta

    def mistaken(variant: Variant, deltas: Any) -> Writer:
        yield from true_store(variant, deltas)
        yield from true_record(variant, [view for view, _ in deltas])

    patch.setattr(ipda, "store_view_delta", mistaken)
    patch.setattr(ipda, "record_commit", lambda variant, touched: iter(()))


def windows_overlap(patch: Patch) -> None:
    """The window includes the time that the view was refreshed to before."""
    patch.setattr(
        ipda, "ReadCommitRecords", lambda table, after, upto: ReadCommitRecords(table, after - 1, upto)
    )


def lock_of_the_same_time_passed(patch: Patch) -> None:
    """A reader passes a lock that was taken at the last time it reads."""
    patch.setattr(ipda_database, "lets_pass", lambda writers, upto: all(time >= upto for time in writers))


def one_late_writer_lets_all_pass(patch: Patch) -> None:
    """A reader looks at the latest lock instead of the earliest."""
    patch.setattr(ipda_database, "lets_pass", lambda writers, upto: max(writers, default=upto + 1) > upto)


def refresh_time_not_passed(patch: Patch) -> None:
    """A view is rolled to a time that has not passed yet."""
    patch.setattr(ipda, "AwaitClock", lambda time: AwaitClock(0))


def dirty_read_of_commit_records(patch: Patch) -> None:
    """Commit records are read without read locks, so an abort comes too late."""
    patch.setattr(Database, "must_wait", lambda self, read: False)


def lock_kept_after_abort(patch: Patch) -> None:
    """An aborted transaction keeps its IPDA lock."""
    patch.setattr(Database, "release_all", lambda self, xid: None)


def one_record_of_each_transaction(patch: Patch) -> None:
    """Step 3 takes the first record of each transaction only."""
    true_records = Database.records_of

    def mistaken(self: Database, view: str, xids: MemoryBag) -> MemoryBag:
        records = true_records(self, view, xids)
        position = records.columns.index(XID)
        first = {row[position]: (row, count) for row, count in reversed(list(records.items()))}
        return MemoryBag(records.columns, dict(first.values()))

    patch.setattr(Database, "records_of", mistaken)


def insertions_before_deletions(patch: Patch) -> None:
    """The new row of a key is inserted while the old one is still there."""
    patch.setattr(ipda, "in_order", lambda root, net: true_in_order(root, net)[::-1])


def zero_groups_dropped(patch: Patch) -> None:
    """A group of a summary delta whose number of rows stays the same is dropped, and its sums with it."""

    true_net_effect = Aggregate.net_effect

    def mistaken(self: Aggregate, records: MemoryBag, *extra: str) -> MemoryBag:
        return true_net_effect(self, records, *extra).select(call("<>", Column(ROWS), Literal(0)))

    patch.setattr(Aggregate, "net_effect", mistaken)


@pytest.mark.parametrize("variant", [COMMIT_RECORDS, COMMIT_TABLE], ids=lambda variant: variant.name)
def test_the_unharmed_code_passes(variant: Variant) -> None:
    assert not any(check_ipda(run) for run in explore(_side_by_side(), variant))


MISTAKES: list[tuple[Callable[[Patch], None], Property]] = [
    (lock_on_the_delta_table, Property.NO_LOST_UPDATES),
    (lock_after_the_clock, Property.NO_LOST_UPDATES),
    (a_clock_reading_for_each_commit_record, Property.ATOMIC_ACROSS_VIEWS),
    (commit_time_too_early, Property.REAL_TIME),
    (windows_overlap, Property.NO_REDUNDANT_UPDATES),
    (lock_of_the_same_time_passed, Property.NO_LOST_UPDATES),
    (one_late_writer_lets_all_pass, Property.NO_LOST_UPDATES),
    (refresh_time_not_passed, Property.NO_LOST_UPDATES),
    (dirty_read_of_commit_records, Property.REAL_TIME),
    (lock_kept_after_abort, Property.REAL_TIME),
    (one_record_of_each_transaction, Property.ATOMIC_PER_VIEW),
    (insertions_before_deletions, Property.REAL_TIME),
    (zero_groups_dropped, Property.REAL_TIME),
]
"""Each with the property that it breaks in the first place."""


@pytest.mark.parametrize("world", every_example(), ids=lambda world: world.name)
def test_algorithm_2_and_the_table_that_is_locked(world: IpdaWorld, monkeypatch: Patch) -> None:
    """With the commit table it holds if both sides lock ΔV; it fails if readers alone do (the mistake)."""
    delta_tables_locked_by_both(monkeypatch)
    runs = list(explore(world, COMMIT_TABLE))
    assert len(runs) > 10
    assert [found for run in runs if (found := check_ipda(run))] == []


@pytest.mark.parametrize(("mistake", "broken"), MISTAKES, ids=lambda each: getattr(each, "__name__", ""))
def test_the_checker_catches(mistake: Callable[[Patch], None], broken: Property, monkeypatch: Patch) -> None:
    mistake(monkeypatch)
    separate = mistake in (lock_after_the_clock, a_clock_reading_for_each_commit_record)
    variant = COMMIT_RECORDS if separate else COMMIT_TABLE
    examples = (run for world in (rollback(), _side_by_side()) for run in explore(world, variant))
    runs = chain(_runs(variant, range(RUNS)), examples)
    caught = any(broken in check_ipda(run) for run in runs)
    assert caught, f"{mistake.__name__} went unnoticed: {mistake.__doc__}"
