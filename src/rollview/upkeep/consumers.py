"""Consumers: external readers of view deltas with acknowledged positions.

A consumer has a name and a position, kept in the catalog. It reads the changes after
the position, in order, and acknowledges them when they are processed; unacknowledged changes are delivered
again, also after a crash: at least once. Nothing that it has not read is pruned. If the view was reloaded in
between, the difference of the two states is one more change, as of the csn of the load.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from shlex import quote
from typing import TYPE_CHECKING

from rollview.algebra.bag import COUNT
from rollview.algebra.history import CSN
from rollview.algebra.net_effect import condensed_around
from rollview.catalog import Consumer, ViewRecord
from rollview.errors import ConsumerLost, InputError
from rollview.imports import deferred
from rollview.storage.points_in_time import PointsInTime, check_covered, newest_uncondensed, show
from rollview.storage.stored_view import StoredView, StoredViews
from rollview.upkeep.maintenance import ExclusiveAccess
from rollview.views.comparison import named
from rollview.views.properties import is_full

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as f
else:
    f = deferred("pyspark.sql.functions")

_MOST_TRANSACTIONS = 1_000
"""The size of a piece, so that a consumer needs no more memory after a long absence."""


@dataclass(frozen=True)
class Changes:
    """The changes of a view after one csn up to another: its columns, `_count` and `_csn`.

    `reason` says why the view was reloaded, if it was; then all changes have the csn of the load.
    """

    view: str
    after: int
    upto: int
    rows: DataFrame
    reason: str = ""
    generation: int = 0


@dataclass(frozen=True)
class ConsumerDriver:
    """Hands view deltas over."""

    points: PointsInTime
    stored: StoredViews
    access: ExclusiveAccess

    def begin(self, view: str, name: str, start: str | int | None) -> Consumer:
        """The consumer of this name; a new one begins at a point in time, by default at the oldest kept."""
        catalog = self.points.catalog
        if is_full(self.stored.views.named(view)):
            hint = "give it another policy or refresh"
            raise InputError(f"view {view} has no view delta", subject=view, hint=hint)
        if not name.strip():
            raise InputError("a consumer needs a name", subject=view, hint="for example billing")
        known = catalog.consumers.named(view, name)
        if known is not None:
            if start is not None:
                drop = f"`rollview consumers --drop {quote(name)} {quote(view)}`"
                hint = f"leave the start out to continue, or {drop} first"
                raise InputError(f"consumer {name} of {view} is at csn {known.csn}", subject=name, hint=hint)
            return known
        # Pruning is excluded meanwhile.
        with self.access.to_view(view):
            record, covered = self.stored.views.record(view), self.stored.covered(view)
            csn = covered.oldest if start is None else self.points.resolve(start, covered.newest)
            check_covered(catalog, view, csn, covered, "consumed from")
            catalog.consumers.place(view, name, record.generation, csn)
        begun = catalog.consumers.named(view, name)
        assert begun is not None
        return begun

    def next(self, view: str, name: str) -> Changes | None:
        """The next changes for a consumer; None if there are none yet."""
        catalog = self.points.catalog
        at = catalog.consumers.named(view, name)
        if at is None:
            hint = f"`rollview deltas {quote(view)} --consumer {quote(name)}` makes it"
            raise InputError(f"view {view} has no consumer {name}", subject=name, hint=hint)
        if (opened := self._of_generation(view, at.generation)) is None:
            raise self._lost(at)
        newest = opened.covered.newest
        if at.csn < opened.covered.oldest:
            raise self._lost(at)
        if at.csn < newest:
            upto = self._end(view, at.csn, newest)
            return self._changes(opened, opened.row_delta(at.csn, upto).frame, at.csn, upto)
        following = self._following(view, at.generation)
        return None if following is None else self._loaded_anew(at, opened, following)

    def acknowledge(self, changes: Changes, name: str) -> None:
        self.points.catalog.consumers.place(changes.view, name, changes.generation, changes.upto)

    def read(self, view: str, name: str) -> Iterator[Changes]:
        """All changes so far, piece by piece; each is acknowledged when the next one is asked for."""
        while (changes := self.next(view, name)) is not None:
            yield changes
            self.acknowledge(changes, name)

    def _end(self, view: str, after: int, newest: int) -> int:
        """The end of a piece: not too far, and at a readable csn."""
        catalog = self.points.catalog
        upto = newest_uncondensed(catalog, [view], min(newest, after + _MOST_TRANSACTIONS))
        if upto > after:
            return upto
        around = condensed_around(catalog.views.condensed(view), after + 1)
        return newest if around is None else around.upto

    def _loaded_anew(self, at: Consumer, before: StoredView, record: ViewRecord) -> Changes:
        after = self._of_generation(at.view, record.generation)
        assert after is not None
        if before.layout.columns != after.layout.columns:
            raise ConsumerLost(
                f"view {at.view} has other columns since csn {after.covered.oldest}",
                subject=at.name,
                hint=f"`rollview consumers --drop {quote(at.name)} {quote(at.view)}`, then begin again",
            )
        csn = after.covered.oldest
        difference = after.rows_at(csn).plus(before.rows_at(at.csn).negate()).net_effect()
        reasons = {span.record.generation: span.reason for span in self.points.catalog.views.spans(at.view)}
        rows = difference.frame.withColumn(CSN, f.lit(csn).cast("bigint"))
        return self._changes(after, rows, at.csn, csn, reasons.get(at.generation, ""))

    def _changes(
        self, stored: StoredView, rows: DataFrame, after: int, upto: int, reason: str = ""
    ) -> Changes:
        names = [name for name, _ in stored.layout.columns]
        ordered = rows.select(*map(named, (*names, COUNT, CSN))).orderBy(CSN)
        return Changes(stored.view.name, after, upto, ordered, reason, stored.record.generation)

    def _of_generation(self, view: str, generation: int) -> StoredView | None:
        """The view as it is stored, or as it was in an earlier span; None if that is gone."""
        if self.stored.views.record(view).generation == generation:
            return self.stored.open(view)
        spans = self.points.catalog.views.spans(view)
        return next((self.stored.of_span(s) for s in spans if s.record.generation == generation), None)

    def _following(self, view: str, generation: int) -> ViewRecord | None:
        """The generation of a view that follows another one."""
        records = [span.record for span in self.points.catalog.views.spans(view)]
        later = [r for r in (*records, self.stored.views.record(view)) if r.generation > generation]
        return min(later, key=lambda record: record.generation, default=None)

    def _lost(self, at: Consumer) -> ConsumerLost:
        oldest = show(self.points.catalog, self.stored.covered(at.view).oldest)
        return ConsumerLost(
            f"changes of view {at.view} after csn {at.csn} that the consumer had not read were pruned",
            subject=at.name,
            hint=f"`rollview consumers --drop {quote(at.name)} {quote(at.view)}`, then begin at {oldest}",
        )


class Subscription:
    """A consumer in a program: an iterator over what it has not acknowledged. Use it as a context manager.

    No other process can be the same consumer meanwhile.
    """

    def __init__(self, driver: ConsumerDriver, view: str, name: str, start: str | int | None) -> None:
        self._driver, self._view, self._name = driver, view, name
        self._held = ExitStack()
        catalog = driver.points.catalog
        self._held.enter_context(catalog.lease(f"consume:{view}:{name}", 1.0))
        try:
            driver.begin(view, name, start)
        except BaseException:
            self._held.close()
            raise

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def __iter__(self) -> Iterator[Changes]:
        """All changes so far, piece by piece; each is acknowledged when the next one is asked for."""
        return self._driver.read(self._view, self._name)

    @property
    def position(self) -> int:
        """The csn up to which everything has been acknowledged."""
        at = self._driver.points.catalog.consumers.named(self._view, self._name)
        return 0 if at is None else at.csn

    def next(self) -> Changes | None:
        """The next changes, as a DataFrame with their csn; None if there are none yet."""
        return self._driver.next(self._view, self._name)

    def acknowledge(self, changes: Changes) -> None:
        """Acknowledges these changes, so that they are not delivered again."""
        self._driver.acknowledge(changes, self._name)
