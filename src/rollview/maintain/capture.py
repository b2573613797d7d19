"""capture: what sources committed becomes one history in the lake.

One step takes a batch from every site, lets the sequencer put all of it in one order, records that order in
the catalog (bounds), appends the rows to the change logs (write), and then makes the new csn known (commit).
A step that was begun is always redone with the same bounds: the source gives the same transactions again,
and a change log that already has the step's commit id takes nothing twice.

A part of a global transaction waits for the others, and with it all that its site committed later: they are
held in memory, and come again from the source after a crash. One that does not come in the time that the
project gives it is given up: that is written to the catalog, as `release` does it, before it counts.

A site that fails keeps no other one waiting: what it committed meanwhile gets its csn when it is back, behind
what the others have got by then. That contradicts no site's own order, and csn are not given by clocks. A
step that was begun with such a site is taken back, since nobody has seen any of it.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from heapq import merge
from typing import Any

import pyarrow as pa

from rollview import events
from rollview.algebra.history import Transaction, UnitOfWork
from rollview.algebra.sequencer import Sequencer
from rollview.catalog import (
    CaptureStep,
    Catalog,
    Fault,
    Lease,
    Part,
    PlannedUnit,
    Sequenced,
    Site,
    SiteBatch,
    Step,
    Truncation,
    Unit,
    UnitPart,
    Waiting,
)
from rollview.catalog.global_transactions import overdue
from rollview.errors import NotRegistered
from rollview.events import Events
from rollview.maintain.faults import Faults, as_faults
from rollview.maintain.truncations import emptied_by
from rollview.rows import Rows
from rollview.runtime.progress import StepTimer, timed_step
from rollview.runtime.session import Session
from rollview.runtime.sites import Held, Sites, side_by_side
from rollview.sources.source import Batch, CapturedTransaction
from rollview.storage.lake_fit import check_home
from rollview.storage.lake_rows import timed_rows
from rollview.storage.lake_tables import LakeTables

LEASE = "capture"
BATCH_ROWS = 200_000
"""About how many changed rows one step takes from a site."""

LONGEST_CHASE_SECONDS = 5.0
"""How long small steps continue for a source whose clock is behind ours."""

MANY_UNITS = 100
"""A step with at least this many units of work is clearing a backlog; a smaller one keeps up with writers."""


@dataclass(frozen=True)
class CaptureOutcome:
    """How many units of work were captured, and which sites failed."""

    units: int
    failed: Mapping[str, Exception]


@dataclass(frozen=True)
class CaptureDriver:
    """Captures from all sites."""

    catalog: Catalog
    tables: LakeTables
    sites: Sites
    session: Session
    faults: Faults
    events: Events

    def run(self, wait_seconds: float = 0.0, needed: Container[str] | None = None) -> int:
        """Takes everything that was committed before; returns the number of units of work.

        Then the error of a site that failed comes out, if it is needed; all are, unless it is said.
        """
        done = self.take_all(wait_seconds)
        # Sites fail side by side; which error comes out does not depend on which was faster.
        for site, error in sorted(done.failed.items(), key=lambda each: each[0]):
            if needed is None or site in needed:
                raise error
        return done.units

    def take_all(
        self, wait_seconds: float = 0.0, trying: Callable[[str], bool] = lambda _: True
    ) -> CaptureOutcome:
        """Takes what was committed before from every site that is to be tried.

        Writers may commit faster than steps are made, so it ends with what is newer than its own beginning.
        A source whose clock is behind ours cannot show that: there, small steps for a while are enough.
        """
        began = time.time()
        with self.catalog.lease(LEASE, wait_seconds) as lease:
            self.tables.check_turn()
            check_home(self.catalog, self.sites.project)
            captured, failed = self._recover(lease)
            tried = [site for site in self.catalog.captured.sites() if trying(site) and site not in failed]
            units, is_behind = self._take_batches(lease, tried, failed, began)
            captured += units
            while self._give_up(failed):
                units, is_behind = self._take_batches(lease, tried, failed, began)
                captured += units
            if not is_behind:
                self.catalog.captured.note_looked(
                    [*({*tried} - failed.keys() - self.sites.held.keys())], began
                )
            for site, error in failed.items():
                self.faults.halt("site", site, error)
            self.faults.resume("site", [site for site in tried if site not in failed])
        return CaptureOutcome(captured, failed)

    def _take_batches(
        self, lease: Lease, tried: Sequence[str], failed: dict[str, Exception], began: float
    ) -> tuple[int, bool]:
        """Takes batches until there is nothing older than the beginning; how many units of work that made.

        Also whether there may be more.
        """
        captured, deadline = 0, time.monotonic() + LONGEST_CHASE_SECONDS
        while batches := self._take(tried, failed, timer := StepTimer()):
            units = self._keep(lease, batches, timer)
            captured += units
            is_behind = any(
                batch.transactions and batch.transactions[-1].commit_time <= began
                for batch in batches.values()
            )
            if not units or not is_behind or (units < MANY_UNITS and time.monotonic() > deadline):
                return captured, is_behind
        return captured, False

    def _give_up(self, failed: Container[str]) -> bool:
        """Ends the wait for parts that have had their time; whether there were any."""
        transactions = self.catalog.global_transactions
        waiting, now = transactions.waiting(), time.time()
        failing = {name: fault.since for name, fault in self.catalog.faults.of("site").items()}
        read = {name: upto for name, upto in self.sites.read_upto.items() if name not in failed}
        late = overdue(waiting, now - self.sites.project.give_up_after, read, failing)
        given_up = transactions.give_up(late) if late else []
        for each in given_up:
            seconds = max(0.0, now - each.since)
            self.events.emit(events.GivenUp(each.global_id, each.present, each.missing, seconds))
        return bool(given_up)

    def recover(self, lease: Lease) -> int:
        """Finishes a step that was begun, or refuses."""
        units, failed = self._recover(lease)
        for error in failed.values():
            raise error
        return units

    def _recover(self, lease: Lease) -> tuple[int, dict[str, Exception]]:
        """Finishes a step that was begun; takes it back where a site does not give its part of it again."""
        units, failed = 0, dict[str, Exception]()
        for step in self.catalog.steps.pending(CaptureStep):
            if gone := sorted(step.bounds.sites.keys() - self.catalog.captured.sites().keys()):
                message = f"an interrupted capture had begun with {gone[0]}, which has been dropped since"
                raise NotRegistered(
                    message, subject=gone[0], hint="run `rollview setup` again: it was interrupted"
                )
            with timed_step(self.events, "capture", _names(step.bounds.sites), step.id) as timer:
                batches: dict[str, Batch] = {}
                for site, batch in step.bounds.sites.items():
                    with timer.phase("read_changes"), _noting(site, failed):
                        batches[site] = self.sites.source_at(site).replay(
                            site, batch.after, batch.source_txids, batch.upto
                        )
                if failed:
                    self._take_back(lease, step)
                else:
                    units += self._write(lease, step, batches, timer)
        return units, failed

    def take_back(self, lease: Lease, besides: Container[str] = ()) -> None:
        """Undoes what was begun and not finished: a source may not have it any more.

        The logs of sites that begin again are none of its business.
        """
        for step in self.catalog.steps.pending(CaptureStep):
            self._take_back(lease, step, besides)

    def _take_back(self, lease: Lease, step: Step[CaptureStep], besides: Container[str] = ()) -> None:
        """Undoes what a step has written, and ends it: its csn have not been made known."""
        tables, versions = self.catalog.captured.tables(), self.catalog.captured.lake_versions()
        writer, csn = self.tables.writer("capture"), self.catalog.history.last_csn()
        for name, table in tables.items():
            if table.site in besides:
                continue
            log = self.tables.change_log(table)
            if log.exists() and log.last_step(writer) == step.id:
                commit = self.tables.signed("take back", step.id, csn, "take back a capture that died")
                log.restore(versions[name], commit)
        self.catalog.steps.abandon(lease, step)

    def _take(self, sites: Sequence[str], failed: dict[str, Exception], timer: StepTimer) -> dict[str, Batch]:
        """One batch from every site that has anything new, what is held back from earlier ones in front."""
        known = self.catalog.captured.sites()

        def take(name: str) -> Batch | None:
            with _noting(name, failed):
                return self._take_from(known[name])
            return None

        names = [name for name in sites if name in known and name not in failed]
        with timer.phase("read_changes"):
            taken = side_by_side(self.sites.capture_pool, take, names)
        found: dict[str, Batch] = {}
        for name, batch in zip(names, taken, strict=True):
            if batch is None:
                continue
            for note in batch.notes:
                if note not in self.sites.noted:
                    self.sites.noted.add(note)
                    self.events.emit(events.SourceNoted(name, note))
            if batch.lost:
                # Whatever comes next may lack something.
                self.faults.lose(batch.lost, self.catalog.history.last_csn() + 1)
            if batch.transactions or batch.log_position != known[name].log_position:
                found[name] = batch
        return found

    def _take_from(self, site: Site) -> Batch:
        source, held = self.sites.source_at(site.name), self.sites.held.pop(site.name, None)
        self.sites.read_upto.pop(site.name, None)
        if held is not None and held.after != site.log_position:
            held = None
        if held is not None and len(held.batch.transactions) >= BATCH_ROWS:
            return held.batch
        after = site.log_position if held is None else held.batch.log_position
        more = source.capture(site.name, after, BATCH_ROWS)
        newest = max((each.commit_time for each in more.transactions), default=float("inf"))
        self.sites.read_upto[site.name] = newest
        before = () if held is None else held.batch.transactions
        return replace(more, transactions=(*before, *more.transactions))

    def _keep(self, lease: Lease, batches: Mapping[str, Batch], timer: StepTimer) -> int:
        """One step: the batches become history; returns the number of units of work, at least 1.

        Only if all that came has to wait for the other parts of global transactions, nothing is done.
        """
        catalog = self.catalog
        sites = catalog.captured.sites()
        sequencer, units = self._sequence(sites, batches)
        ready = {
            name: _cut(batch, sequencer.position(name) - sites[name].version)
            for name, batch in batches.items()
        }
        for name, batch in batches.items():
            rest = batch.transactions[len(ready[name].transactions) :]
            if rest:
                after = ready[name].log_position or sites[name].log_position
                self.sites.held[name] = Held(after, Batch(rest, batch.log_position))
        self._note_waiting(sequencer)
        moved = {
            name: batch
            for name, batch in ready.items()
            if batch.log_position and (batch.transactions or batch.log_position != sites[name].log_position)
        }
        if not moved:
            return 0
        bounds = CaptureStep(
            sites={
                name: SiteBatch(
                    after=sites[name].log_position,
                    upto=batch.log_position,
                    source_txids=tuple(each.source_txid for each in batch.transactions),
                )
                for name, batch in moved.items()
            },
            units=tuple(
                PlannedUnit(
                    unit.csn,
                    unit.commit_time,
                    tuple(UnitPart(part.source, part.version) for part in unit.parts),
                )
                for unit in units
            ),
            versions={name: sites[name].version for name in moved},
        )
        step = catalog.steps.begin(lease, "", bounds)
        with timed_step(self.events, "capture", _names(moved), step.id, timer):
            return self._write(lease, step, moved, timer)

    def _sequence(
        self, sites: Mapping[str, Site], batches: Mapping[str, Batch]
    ) -> tuple[Sequencer, list[UnitOfWork]]:
        """The units of work that the batches make, in one order close to that of their commit times."""
        catalog = self.catalog
        positions = {name: site.version for name, site in sites.items()}
        last_csn, released = catalog.history.last_csn(), catalog.global_transactions.released()
        last_time = catalog.history.commit_time(last_csn)
        sequencer = Sequencer(positions, last_csn, float("-inf") if last_time is None else last_time)
        now = time.time()
        queues = []
        for name, batch in batches.items():
            latest, queue = float("-inf"), []
            for number, each in enumerate(batch.transactions, positions[name] + 1):
                # A source's own order goes before its clock, and no clock goes before ours.
                latest = max(latest, min(each.commit_time, now))
                # A part at a database that nobody captures changes nothing here, so nobody waits for it.
                participants = tuple(site for site in each.participants if site in positions)
                is_part = len(participants) > 1 and name in participants and each.global_id not in released
                header = Transaction(name, number, (), latest)
                if is_part:
                    header = Transaction(name, number, (), latest, each.global_id, participants)
                queue.append((latest, name, number, header))
            queues.append(queue)
        units = [
            unit
            for commit_time, _, _, header in merge(*queues)
            for unit in sequencer.receive(header, commit_time)
        ]
        return sequencer, units

    def _note_waiting(self, sequencer: Sequencer) -> None:
        """Records waiting parts in the catalog: `status` shows them, `release` ends the wait."""
        waiting = [
            Waiting(name, sequencer.present(name), missing)
            for name, missing in sequencer.waiting().items()
            if missing
        ]
        known = {each.global_id: each for each in self.catalog.global_transactions.waiting()}
        if {replace(each, since=0.0) for each in known.values()} != {*waiting}:
            self.catalog.global_transactions.wait_for(waiting)
            for each in waiting:
                if each.global_id not in known:
                    self.events.emit(events.Waiting(each.global_id, each.present, each.missing))

    def _write(
        self,
        lease: Lease,
        step: Step[CaptureStep],
        batches: Mapping[str, Batch],
        timer: StepTimer,
    ) -> int:
        """Appends the rows of a step and makes its csn known."""
        recorded, versions = step.bounds.units, step.bounds.versions
        units = []
        losses: list[Fault] = []
        truncations: list[Truncation] = []
        tables = self.catalog.captured.tables()
        changed: dict[str, list[tuple[int, Rows]]] = defaultdict(list)
        for csn, commit_time, parts in recorded:
            touched: dict[str, int] = {}
            named = []
            own = [batches[site].transactions[version - versions[site] - 1] for site, version in parts]
            emptied = emptied_by(own)
            for (site, version), each in zip(parts, own, strict=True):
                named.append(
                    Part(
                        site,
                        version,
                        each.source_txid,
                        each.transaction_id,
                        each.global_id,
                        is_merged=each.merged != 1,
                        place=each.place,
                    )
                )
                _collect(each, csn, changed, touched)
                lost = {name: loss for name, loss in each.lost.items() if name not in emptied}
                losses += as_faults(lost, csn, tables)
            for name in emptied & tables.keys():
                truncations.append(Truncation(name, csn))
                # The rows have not been counted; that there may have been some is what matters.
                touched[name] = touched.get(name, 0) + 1
            units.append(Unit(csn, commit_time, tuple(named), touched))
        last_csn, last_time = (recorded[-1].csn, recorded[-1].commit_time) if recorded else (0, 0.0)
        before = recorded[0].csn - 1 if recorded else None
        commit = replace(
            self.tables.signed("capture", step.id, last_csn, "capture", before), commit_time=last_time
        )
        lake_versions = self.catalog.captured.lake_versions()
        lake_versions = {name: lake_versions[name] for name in changed}
        for name, pieces in changed.items():
            log = self.tables.change_log(tables[name])
            with timer.phase("compute"):
                timed = timed_rows(self.session, log.columns, pieces)
            with timer.phase("write"):
                written = log.append(timed, commit)
                # Nobody else may have written between the last look and this.
                log.check_no_external_writes(lake_versions[name])
                lake_versions[name] = written
        if all(isinstance(rows, pa.Table) for pieces in changed.values() for _, rows in pieces):
            timer.rows = sum(rows for unit in units for rows in unit.rows.values())
        log_positions = {site: batch.upto for site, batch in step.bounds.sites.items()}
        with timer.phase("commit"):
            known = self.catalog.faults.of("table")
            done = Sequenced(tuple(units), log_positions, lake_versions, tuple(losses), tuple(truncations))
            self.catalog.steps.finish(lease, step, done)
            if losses:
                self.faults.report_losses(known)
            for site, log_position in log_positions.items():
                self.sites.source_at(site).acknowledge(site, log_position)
        if units:
            merged = sum(part.is_merged for unit in units for part in unit.parts)
            self.events.emit(events.Captured(len(units), last_csn, merged))
        return max(len(units), 1)


@contextmanager
def _noting(site: str, failed: dict[str, Exception]) -> Iterator[None]:
    """A site that fails is noted, and the others continue."""
    try:
        yield
    except Exception as error:
        failed[site] = error


def _names(sites: Mapping[str, Any]) -> str:
    return ", ".join(sites)


def _cut(batch: Batch, number: int) -> Batch:
    """The first transactions of a batch, with the log position after them; an empty one if there are none."""
    if number == len(batch.transactions):
        return batch
    kept = batch.transactions[:number]
    return Batch(kept, kept[-1].log_position if kept else "")


def _collect(
    transaction: CapturedTransaction,
    csn: int,
    changed: dict[str, list[tuple[int, Rows]]],
    touched: dict[str, int],
) -> None:
    for table, rows in transaction.rows.items():
        if isinstance(rows, pa.Table) and not rows.num_rows:
            continue
        changed[table].append((csn, rows))
        # Rows in files have not been counted; that there are some is what matters.
        touched[table] = touched.get(table, 0) + (rows.num_rows if isinstance(rows, pa.Table) else 1)
