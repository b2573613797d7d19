"""The catalog: every method is one transaction, so a process may end at any instruction."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from sqlalchemy import Connection, func, insert, select, update

from rollview.algebra.history import Seen
from rollview.algebra.net_effect import Range
from rollview.algebra.relation import Table
from rollview.algorithms.effects import ForwardQuery
from rollview.catalog import captured, faults, history, schema, standing, steps, truncations, views
from rollview.catalog.database import Database
from rollview.catalog.history import SiteTxids
from rollview.catalog.leases import Lease, Leases, fence
from rollview.catalog.parts import CatalogParts
from rollview.catalog.records import (
    CatalogState,
    Fault,
    Refresh,
    Site,
    Span,
    TableHistory,
    Truncation,
    ViewRecord,
)
from rollview.catalog.standing import Standing
from rollview.catalog.step_bounds import B, E, Step, StepBounds
from rollview.catalog.steps import UnreadableStep

MOST_WATCHED_SECONDS = 3600.0
"""How much time may pass, as retention counts it, between two looks at the clock."""

LEASE_SECONDS = 30.0
"""How long a lease lasts without renewal."""


class Catalog(CatalogParts):
    """The control tables of a project. Threads may share it; processes open it each for themselves."""

    def __init__(self, database: Database, clock: Callable[[], float], lease_seconds: float) -> None:
        """Of a database that has been migrated; `open` does both."""
        super().__init__(database, clock)
        self._leases = Leases(database, clock, lease_seconds)

    @classmethod
    def open(
        cls, url: str, clock: Callable[[], float] = time.time, *, lease_seconds: float = LEASE_SECONDS
    ) -> Catalog:
        """Opens the catalog at a SQLAlchemy URL; creates or migrates it first where that is needed."""
        database = Database(url)
        try:
            database.migrate(clock())
        except BaseException:
            database.close()
            raise
        return cls(database, clock, lease_seconds)

    @staticmethod
    def look(url: str) -> CatalogState:
        """Whether there is a catalog, and whether it is up to date. Nothing is created or changed.

        A file of SQLite must exist.
        """
        database = Database(url)
        try:
            return CatalogState(exists=database.version > 0, is_current=database.is_current)
        finally:
            database.close()

    def close(self) -> None:
        """Closes all connections to the database."""
        self._database.close()

    @property
    def identity(self) -> str:
        """A name that no other catalog has. Step ids are only unique together with it."""
        with self._database.reading() as connection:
            return str(connection.scalars(select(schema.catalog.c.identity)).one())

    def last_step(self) -> int:
        """The id of the last step that was begun."""
        with self._database.reading() as connection:
            return int(connection.scalars(select(schema.catalog.c.last_step)).one())

    def epochs(self) -> tuple[str, str]:
        """The epoch of the lake that this catalog knows, and one that it is about to begin, or nothing."""
        with self._database.reading() as connection:
            known = schema.catalog.c
            epoch, following = connection.execute(select(known.epoch, known.next_epoch)).one()
            return epoch, following

    def home(self) -> str:
        """Where the project is that captures by this catalog; empty before it did."""
        with self._database.reading() as connection:
            return str(connection.scalars(select(schema.catalog.c.home)).one())

    def set_home(self, place: str) -> None:
        """Says where the project is."""
        with self._database.writing() as connection:
            connection.execute(update(schema.catalog).values(home=place))

    def announce_epoch(self, epoch: str) -> None:
        """Says that the lake is about to be told this epoch."""
        with self._database.writing() as connection:
            connection.execute(update(schema.catalog).values(next_epoch=epoch))

    def begin_epoch(self, epoch: str) -> None:
        """Says that the lake was told this epoch."""
        with self._database.writing() as connection:
            connection.execute(update(schema.catalog).values(epoch=epoch, next_epoch=""))

    def watched_time(self) -> float:
        """The time by which retention goes: not later than the clock says, and not much later than before.

        One reading of a clock that is wrong moves it by at most an hour. After a long pause it catches up, an
        hour at a time.
        """
        now = self._clock()
        with self._database.writing() as connection:
            before = connection.scalars(select(schema.catalog.c.watched_until)).one() or now
            until = before + min(max(0.0, now - before), MOST_WATCHED_SECONDS)
            connection.execute(update(schema.catalog).values(watched_until=until))
        return min(now, until)

    def standing(self) -> Standing:
        """Where everything stands, at one moment."""
        with self._database.reading() as connection:
            return standing.read_standing(connection)

    # What is captured

    def register(self, tables: Sequence[Table], origins: Mapping[str, tuple[str, str]]) -> None:
        """Adds tables; `origins` gives source and first log position of every site that may be new.

        The keys of a known table may change; other columns or types are refused with SourceChanged.
        """
        with self._database.writing() as connection:
            captured.register(connection, tables, origins)

    def unregister(self, tables: Sequence[str]) -> None:
        """Forgets tables with what is known of their changes, and sites of which none is left."""
        with self._database.writing() as connection:
            captured.unregister(connection, tables)

    def restart(
        self,
        gone: Sequence[str],
        tables: Sequence[Table],
        origins: Mapping[str, tuple[str, str]],
        noted: Sequence[Fault] = (),
    ) -> None:
        """Lets the history of tables begin again, at once: some go, these come.

        It begins at a csn of its own, since what was committed in between has none: no csn may stand for two
        states. Views that stand before that csn can still be read, but not be propagated any more; `noted` is
        what keeps them.
        """
        with self._database.writing() as connection:
            self._end_histories(connection, gone)
            captured.register(connection, tables, origins)
            for fault in noted:
                faults.note_fault(connection, fault, self._clock())

    def _end_histories(self, connection: Connection, tables: Sequence[str]) -> None:
        captured.unregister(connection, tables)
        if tables:
            last = history.last_csn(connection)
            when = max(self._clock(), history.commit_time(connection, last) or 0.0)
            connection.execute(insert(schema.unit_of_work).values(csn=last + 1, commit_time=when))

    def tables(self) -> dict[str, Table]:
        """The captured tables by qualified name, as they were registered."""
        with self._database.reading() as connection:
            return captured.read_tables(connection)

    def lake_versions(self) -> dict[str, int]:
        """For each captured table the version of its change log that holds all that was captured."""
        with self._database.reading() as connection:
            return captured.lake_versions(connection)

    def histories(self) -> dict[str, TableHistory]:
        """The history that each captured table has now."""
        with self._database.reading() as connection:
            return captured.read_histories(connection)

    def present_columns(self) -> dict[str, tuple[str, ...]]:
        """The columns that each captured table had at its source when somebody looked; none before."""
        with self._database.reading() as connection:
            return captured.read_present_columns(connection)

    def note_columns(self, found: Mapping[str, Sequence[str]]) -> None:
        """Keeps the columns that captured tables have at their sources."""
        with self._database.writing() as connection:
            captured.note_columns(connection, found)

    def sites(self) -> dict[str, Site]:
        """The sites by name, each with how far it has been captured."""
        with self._database.reading() as connection:
            return captured.read_sites(connection)

    # History

    def last_csn(self) -> int:
        """The newest csn; 0 before all history."""
        with self._database.reading() as connection:
            return history.last_csn(connection)

    def continue_from(self, csn: int, commit_time: float) -> None:
        """Lets the history of a new catalog go on behind a csn that an earlier one has given."""
        with self._database.writing() as connection:
            if csn > history.last_csn(connection):
                connection.execute(insert(schema.unit_of_work).values(csn=csn, commit_time=commit_time))

    def commit_time(self, csn: int) -> float | None:
        """When a unit was committed; None for csn 0 and for what was pruned."""
        with self._database.reading() as connection:
            return history.commit_time(connection, csn)

    def csn_at(self, commit_time: float) -> int:
        """The greatest csn that was committed at this time or before; 0 if none is kept."""
        with self._database.reading() as connection:
            return history.csn_at(connection, commit_time)

    def next_csn_touching(self, tables: Sequence[str], after: int, transactions: int) -> int:
        """The csn of the n-th unit after `after` that touched any of the tables; else the last csn."""
        with self._database.reading() as connection:
            return history.next_csn_touching(connection, tables, after, transactions)

    def created_at(self) -> float:
        """When the catalog was made."""
        with self._database.reading() as connection:
            return connection.scalar(select(func.min(schema.schema_version.c.applied_at))) or 0.0

    def last_csn_touching(self, tables: Sequence[str], upto: int) -> int | None:
        """The last csn up to this one at which any of the tables changed; None if that is not known."""
        with self._database.reading() as connection:
            return history.last_csn_touching(connection, tables, upto)

    def csn_reaching(self, site: str, reach: int | Callable[[str], bool]) -> int:
        """The first csn that shows all of a site's transactions up to a place, or up to the last by id."""
        with self._database.reading() as connection:
            return history.csn_reaching(connection, site, reach)

    def version_at(self, site: str, csn: int) -> int:
        """The version of a site that the history has reached at a csn."""
        with self._database.reading() as connection:
            return history.version_at(connection, site, csn)

    def in_csn(self, site: str, seen: Seen) -> Seen:
        """A set of a site's versions as a set of csn; UnitSplit if it holds only a part of a unit."""
        with self._database.reading() as connection:
            return history.in_csn(connection, site, seen)

    def csn_of(self, site: str, version: int) -> int:
        """The csn of a site's version; refused if it has been forgotten."""
        with self._database.reading() as connection:
            return history.csn_of(connection, site, version)

    def source_txids(self, site: str) -> SiteTxids:
        """What has been captured of a site, as of now, in the source's own numbers."""
        with self._database.reading() as connection:
            return SiteTxids(self._database, site, captured.read_site(connection, site).log_position)

    def touched(self, table: str, after: int, upto: int) -> int:
        """How many rows of a table changed with after < csn ≤ upto."""
        with self._database.reading() as connection:
            return history.touched(connection, table, after, upto)

    def truncations(self, tables: Collection[str], after: int = 0) -> list[Truncation]:
        """Where tables were truncated behind a csn, in order."""
        with self._database.reading() as connection:
            return truncations.read_truncations(connection, tables, after)

    def prune_history(self, upto: int) -> None:
        """Forgets the units before `upto`; unit `upto` stays, for later ones to follow on.

        Questions about later csn are answered as before; those about earlier ones raise HistoryPruned.
        """
        with self._database.writing() as connection:
            history.forget(connection, upto)

    def note_looked(self, sites: Sequence[str], moment: float) -> None:
        """All that these sites had committed at a moment is captured."""
        with self._database.writing() as connection:
            captured.note_looked(connection, sites, moment)

    # Steps

    def begin(self, lease: Lease, subject: str, bounds: B) -> Step[B]:
        """Records what is about to be done. Ids grow with every step, for ever."""
        with self._database.writing() as connection:
            fence(connection, lease)
            return steps.begin_step(connection, subject, bounds, self._clock())

    def pending(self, kind: type[B], subject: str | None = None) -> list[Step[B]]:
        """The steps that were begun and neither finished nor abandoned, the oldest first.

        StepRefused if one of them cannot be read, or if one is of a kind that this release does not know.
        """
        with self._database.reading() as connection:
            return steps.pending_steps(connection, kind, subject)

    def unfinished(self) -> list[Step[StepBounds[Any]] | UnreadableStep]:
        """The pending steps of all kinds, the oldest first, also those that this release cannot finish."""
        with self._database.reading() as connection:
            return steps.unfinished_steps(connection)

    def finish(self, lease: Lease, step: Step[StepBounds[E]], *effects: E) -> None:
        """Ends a step and makes all its effects true, in order: at once, or not at all.

        The step may have been begun by an earlier holder of the lease.
        """
        with self._database.writing() as connection:
            fence(connection, lease)
            steps.finish_step(connection, step, effects, self._clock())

    def abandon(self, lease: Lease, step: Step[StepBounds[Any]]) -> None:
        """Ends a step without effects."""
        with self._database.writing() as connection:
            fence(connection, lease)
            steps.end_step(connection, step)

    def give_up(self, lease: Lease, step: UnreadableStep) -> None:
        """Ends a step that this release cannot read, with all that it may have changed.

        Of its views nothing is left but what they show, until they are loaded. Where it concerns all, what
        was captured is forgotten.
        """
        with self._database.writing() as connection:
            fence(connection, lease)
            for name in step.views:
                views.freeze(connection, name)
            if step.concerns_all:
                self._end_histories(connection, list(captured.read_tables(connection)))
            steps.end_step(connection, step)

    def abandon_pending(self, lease: Lease, subject: str, *kinds: type[StepBounds[Any]]) -> None:
        """Ends the pending steps of these kinds, readable or not: all they did is about to be replaced."""
        with self._database.writing() as connection:
            fence(connection, lease)
            steps.end_steps(connection, subject, kinds)

    # Views

    def views(self) -> dict[str, ViewRecord]:
        """The loaded views by name."""
        with self._database.reading() as connection:
            return views.read_views(connection)

    def view(self, name: str) -> ViewRecord:
        """A loaded view by name."""
        with self._database.reading() as connection:
            return views.read_view(connection, name)

    def digests(self) -> dict[str, str]:
        """The digests of the definitions of the loaded views, by name."""
        with self._database.reading() as connection:
            return views.read_digests(connection)

    def redefine(self, lease: Lease, view: str, sql: str, digest: str, policy: str) -> None:
        """The definition of a view is written in other words, or with other properties."""
        with self._database.writing() as connection:
            fence(connection, lease)
            views.redefine(connection, view, sql, digest, policy)

    def spans(self, view: str) -> list[Span]:
        """What a view was before it was loaded anew, the newest first."""
        with self._database.reading() as connection:
            return views.read_spans(connection, view)

    def forget_spans(self, view: str, before: float) -> None:
        """Forgets what a view was, of spans that ended before a time."""
        with self._database.writing() as connection:
            views.forget_spans(connection, view, before)

    def positions(self, view: str) -> dict[ForwardQuery, int]:
        """How far each forward query of a view has come."""
        with self._database.reading() as connection:
            return views.read_positions(connection, view)

    def control(self, view: str) -> str:
        """What the algorithm of a view kept with what it published last; empty if nothing."""
        with self._database.reading() as connection:
            return views.read_control(connection, view)

    def high_water(self, view: str) -> int:
        """The csn up to which a view's delta is complete; without positions, what is materialized."""
        with self._database.reading() as connection:
            return views.high_water(connection, view)

    def refreshes(self, view: str, limit: int = 10, kinds: Collection[str] = ()) -> list[Refresh]:
        """The last refreshes of a view, of some kinds or all, the newest first."""
        with self._database.reading() as connection:
            return views.read_refreshes(connection, view, limit, kinds)

    def condensed(self, view: str) -> list[Range]:
        """The ranges (after, upto] of a view's delta that were condensed: nothing strictly inside is left."""
        with self._database.reading() as connection:
            return views.read_condensed(connection, view)

    # Faults

    def faults(self, scope: str) -> dict[str, Fault]:
        """What keeps sites, tables or views from going on, by name."""
        with self._database.reading() as connection:
            return faults.read_faults(connection, scope)

    def note_fault(self, fault: Fault) -> bool:
        """Writes down what keeps something from going on; whether that says anything new."""
        with self._database.writing() as connection:
            return faults.note_fault(connection, fault, self._clock())

    def note_losses(self, losses: Sequence[Fault]) -> None:
        """Writes down from which csn on changes of tables are missing; of two losses the earlier counts."""
        with self._database.writing() as connection:
            faults.note_losses(connection, tuple(losses), self._clock())

    def clear_fault(self, scope: str, name: str) -> bool:
        """Says that something goes on again; whether it had stopped."""
        if name not in self.faults(scope):
            return False
        with self._database.writing() as connection:
            return faults.clear_fault(connection, scope, name)

    # Leases

    def lease(self, name: str, wait_seconds: float = 0) -> AbstractContextManager[Lease]:
        """Holds a lease while the context lasts; LeaseHeld if someone else does and waiting was in vain."""
        return self._leases.hold(name, wait_seconds)

    def confirm(self, lease: Lease) -> None:
        """Raises LeaseLost if the lease has passed to someone else."""
        with self._database.writing() as connection:
            fence(connection, lease)
