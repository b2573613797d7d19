"""One run of a beyer2000 world: transactions and apply processes, driven step by step by a schedule.

At every step there is a list of what could happen: a transaction or an apply process goes one step on,
the clock shows its next time, a transaction aborts. A schedule picks. So a process can be suspended
between any two steps for any time, which is all that the anomalies of §4 need.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from rollview.algebra.view import View
from rollview.algorithms.beyer2000 import ipda
from rollview.algorithms.beyer2000.ipda_effects import (
    AcquireWrite,
    Apply,
    AwaitClock,
    Insert,
    InsertCommitRecord,
    PassLock,
    ReadClock,
    ReadCommitRecords,
    ReadDelta,
    RecordsOf,
    RefreshTime,
    ReleaseWrite,
)
from rollview.errors import CorruptView
from rollview.lab.simulator.database import NEVER_COMMITTED, Database
from rollview.lab.simulator.database_worlds import IpdaRun, IpdaWorld, Statement, UpdateTransaction, Waits
from rollview.lab.simulator.policies import (
    VERBS,
    CommitTransaction,
    LockRows,
    Policy,
    PresentTime,
    Process,
    ReadLog,
    Recompute,
    Update,
    describe,
    refresh_steps,
    transaction_steps,
)
from rollview.lab.simulator.schedule import Action, Schedule, Stepwise, every_schedule


def simulate_ipda(
    world: IpdaWorld,
    variant: ipda.Variant,
    schedule: Schedule,
    narrated: bool = False,
    policy: Policy = Policy.IPDA,
) -> IpdaRun:
    """Runs a world to its end; then every view is refreshed once more, to a time after everything."""
    run = _Simulation(world, variant, schedule, narrated, policy).run(None)
    assert run is not None
    return run


def explore(world: IpdaWorld, variant: ipda.Variant, policy: Policy = Policy.IPDA) -> Iterator[IpdaRun]:
    """Runs of all schedules, as far as they differ: a state reached before is not run to its end again."""
    known: set[object] = set()
    for schedule in every_schedule():
        run = _Simulation(world, variant, schedule, False, policy).run(known)
        if run is not None:
            yield run


class _Simulation(Stepwise):
    def __init__(
        self,
        world: IpdaWorld,
        variant: ipda.Variant,
        schedule: Schedule,
        narrated: bool,
        policy: Policy = Policy.IPDA,
    ) -> None:
        super().__init__(schedule, narrated)
        self._world = world
        self._policy = policy
        self._waits = Waits()
        self._waited: set[tuple[str, int]] = set()
        self._variant = variant
        self._tick = 0
        self._now = world.times[0]
        self._database = Database(world.views, world.initial, lambda: self._now)
        self._transactions = [
            Process(each.name, each.node, self._transaction(each)) for each in world.transactions
        ]
        self._appliers = [Process(view.name, 0, self._refreshes(view)) for view in world.views]
        self._predecessors = {each.name: each.after for each in world.transactions}
        self._may_abort = {each.name for each in world.transactions if each.may_abort}

    def run(self, known: set[object] | None) -> IpdaRun | None:
        """Steps until nothing can happen; None if a state is met that is known already."""
        fresh_from = len(self._schedule.choices)
        steps = 0
        stopped = ""
        try:
            while actions := self._actions():
                if known is not None and steps >= fresh_from:
                    state = (self._tick, *(tuple(process.received) for process in self._processes))
                    if state in known:
                        return None
                    known.add(state)
                steps += 1
                self._perform(self._chosen(actions))
            self._close()
        except CorruptView as error:
            stopped = error.message
        waiting = [process.name for process in self._processes if process.effect is not None]
        if waiting and not stopped:
            stopped = f"{', '.join(waiting)} waits forever"
        choices = tuple(self._schedule.choices)
        return IpdaRun(
            self._world,
            self._database.fates,
            tuple(self._database.refreshed),
            self._database.shown,
            stopped,
            choices,
            self.story,
            self._waits,
        )

    @property
    def _processes(self) -> list[Process]:
        return self._transactions + self._appliers

    def _transaction(self, transaction: UpdateTransaction) -> Generator[Any, Any, None]:
        yield from transaction_steps(self._policy, self._variant, transaction, self._world.views)

    def _refreshes(self, view: View) -> Generator[Any, Any, None]:
        for name, upto in self._world.refreshes:
            if name == view.name:
                yield from refresh_steps(self._policy, self._variant, view, upto)

    def _actions(self) -> list[Action]:
        """All that could happen next, from calm to hostile."""
        actions: list[Action] = []
        for process in self._processes:
            self._settle(process)
            if process.effect is not None and self._can_go_on(process):
                actions.append((VERBS[type(process.effect)], process.name, 0))
            else:
                self._count_wait(process)
        if self._tick + 1 < len(self._world.times):
            actions.append(("tick", "", 0))
        for process in self._transactions:
            if process.effect is None or not process.received:
                continue
            if process.name in self._may_abort:
                actions.append(("abort", process.name, 0))
            elif self._is_deadlocked(process):
                actions.append(("deadlock", process.name, 0))
        return actions

    def _count_wait(self, process: Process) -> None:
        """A transaction that must wait for another one does so once for each effect."""
        items, moment = _items(process.effect), (process.name, len(process.received))
        if items and moment not in self._waited and self._database.holders(process.name, items):
            self._waited.add(moment)
            if isinstance(process.effect, LockRows):
                self._waits.view_rows += 1
            else:
                self._waits.base_rows += 1

    def _settle(self, process: Process) -> None:
        """Steps whose moment does not matter are not worth a choice."""
        if not process.received and any(self._has_ended(name, False) for name in self._after(process)):
            process.end("never begins")
            self._database.fates[process.name] = NEVER_COMMITTED
        while isinstance(process.effect, RefreshTime | AwaitClock):
            if isinstance(process.effect, RefreshTime):
                process.resume(self._database.refresh_times[process.effect.view])
            elif self._now > process.effect.time:
                process.resume(None)
            else:
                return

    def _after(self, process: Process) -> tuple[str, ...]:
        return self._predecessors.get(process.name, ())

    def _has_ended(self, xid: str, committed: bool) -> bool:
        fate = self._database.fates.get(xid)
        return fate is not None and fate.committed is committed

    def _can_go_on(self, process: Process) -> bool:
        match process.effect:
            case Update(statement):
                may_begin = process.received or all(
                    self._has_ended(name, True) for name in self._after(process)
                )
                return bool(may_begin) and not self._database.holders(process.name, statement.items)
            case LockRows(items):
                return not self._database.holders(process.name, items)
            case PassLock(table, upto):
                return self._database.lets_pass(table, upto)
            case ReadDelta() | ReadCommitRecords() as read:
                return not self._database.must_wait(read)
            case AwaitClock():
                return False
        return True

    def _is_deadlocked(self, process: Process) -> bool:
        """Whether a chain of transactions waiting for each other's items leads back to this one."""
        by_name = {each.name: each for each in self._transactions}
        reached: set[str] = set()
        waiting = [process]
        while waiting:
            each = waiting.pop()
            holders = self._database.holders(each.name, _items(each.effect)) - reached
            reached |= holders
            waiting += [by_name[name] for name in holders]
        return process.name in reached

    def _perform(self, action: Action) -> None:
        kind, where, _ = action
        if kind == "tick":
            self._tick += 1
            self._now = self._world.times[self._tick]
            self._narrate(f"the clock shows {self._now}")
        elif kind in ("abort", "deadlock"):
            self._narrate(f"{where} aborts")
            self._database.abort(where)
            next(each for each in self._transactions if each.name == where).end("abort")
        else:
            process = next(each for each in self._processes if each.name == where)
            effect = process.effect
            result = self._serve(process, effect)
            if self._is_narrated:
                self._narrate(f"{where}: {kind} {describe(effect, result)}".rstrip())
            process.resume(result)

    def _serve(self, process: Process, effect: Any) -> Any:
        database, xid = self._database, process.name
        match effect:
            case Update(statement):
                # What it follows, and when it got its locks, is part of the difference between two runs.
                process.received.append((self._now, tuple(sorted(database.fates))))
                return self._update(xid, statement)
            case LockRows(items):
                return database.lock(xid, items)
            case ReadClock():
                return self._clock_at(process.node)
            case AcquireWrite(tables):
                process.received.append(self._clock_at(process.node))
                return database.acquire(xid, tables, self._clock_at(process.node))
            case ReleaseWrite(tables):
                return database.release(xid, tables)
            case Insert(view, rows, timestamp):
                return database.insert(xid, view, rows, timestamp)
            case InsertCommitRecord(table, timestamp):
                process.commit_time = timestamp
                return database.insert_commit_record(xid, table, timestamp)
            case CommitTransaction():
                process.received.append(self._now)
                return self._commit(process)
        return self._serve_refresh(effect)

    def _update(self, xid: str, statement: Statement) -> Any:
        deltas = self._database.update(xid, statement.items, statement.changes)
        if self._policy is not Policy.IPDA:
            # What the log has, or what is changed at the commit.
            for view, rows in deltas:
                self._database.insert(xid, view, rows, None)
        return deltas

    def _commit(self, process: Process) -> None:
        is_ipda = self._policy is Policy.IPDA
        self._database.commit(process.name, process.commit_time if is_ipda else self._now)
        if self._policy is Policy.IMMEDIATE:
            self._database.apply_at_once(process.name, self._now)

    def _serve_refresh(self, effect: Any) -> Any:
        database = self._database
        match effect:
            case ReadDelta():
                return database.read_delta(effect)
            case ReadCommitRecords():
                return database.read_commit_records(effect)
            case RecordsOf(view, xids):
                return database.records_of(view, xids)
            case ReadLog(view, after, upto):
                return database.read_log(view, after, upto)
            case PresentTime():
                return self._now - 1
            case Apply():
                return database.apply(effect)
            case Recompute(view, records, upto):
                return database.recompute(view, records, upto)
        return None

    def _clock_at(self, node: int) -> int:
        return self._now if self._variant.one_clock else self._now + self._world.offsets[node]

    def _close(self) -> None:
        """Refreshes every view to a time that no clock has shown yet, one view after the other."""
        if any(process.effect is not None for process in self._processes):
            return
        last = self._world.times[-1] + max(self._world.offsets) + 1
        self._now = last + 1
        self._narrate(f"the clock shows {self._now}")
        self._appliers = [
            Process(view.name, 0, refresh_steps(self._policy, self._variant, view, last))
            for view in self._world.views
        ]
        self._transactions = []
        while actions := [action for action in self._actions() if action[0] != "tick"]:
            self._perform(actions[0])


def _items(effect: Any) -> tuple[str, ...]:
    """The items that a transaction wants to lock."""
    if isinstance(effect, LockRows):
        return effect.items
    return effect.statement.items if isinstance(effect, Update) else ()
