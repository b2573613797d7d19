"""Reading from a live site: an answer counts only once capture can say, in csn, what it saw."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from rollview.algebra.history import Seen
from rollview.algebra.relation import Table
from rollview.catalog import Catalog
from rollview.errors import CaptureStalled, HistoryPruned, LeaseHeld, ReadPointLost, UnitSplit
from rollview.service.capture import CaptureDriver
from rollview.service.faults import Faults
from rollview.service.side_by_side import side_by_side
from rollview.service.sites import Sites
from rollview.service.truncations import check_answer
from rollview.sources.source import ReadResult, Source

_LOOKS = 20
PATIENCE_SECONDS = 60.0
"""How long to wait until everything that an answer saw is captured, before it is an error."""

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class SiteReader:
    """Reads sites, and captures where that is needed to know what was seen."""

    catalog: Catalog
    sites: Sites
    capture: CaptureDriver
    faults: Faults

    def side_by_side(self, action: Callable[[T], R], items: Iterable[T]) -> tuple[R, ...]:
        """What an action that reads from a site returns for each item; several run at once."""
        return tuple(side_by_side(self.sites.lookup_pool, action, items))

    def read_and_resolve(
        self,
        site: str,
        tables: Sequence[Table],
        action: Callable[[Source], ReadResult],
        since: int | None = None,
    ) -> tuple[ReadResult, Seen]:
        """Reads tables of a site until capture can tell what was seen; that, in csn.

        `since` is the first csn at which the tables are needed, if that is known.
        """
        for _ in range(_LOOKS):
            found = action(self.sites.source_at(site))
            with suppress(ReadPointLost):
                seen = self._wait_for_read_point(site, found.read_point)
                # Not before: capture may only now have noticed that changes are missing.
                self.faults.check_complete(tables)
                if since is not None:
                    check_answer(self.catalog, tables, seen, since)
                return found, seen
        message = f"{site}: what was read could not be matched to a csn, {_LOOKS} times in a row"
        raise CaptureStalled(message, subject=site, hint="is the source captured by two warehouses?")

    def _wait_for_read_point(self, site: str, read_point: str) -> Seen:
        """What a reading saw, in csn; captures, or waits for the process that does."""
        catalog, source = self.catalog, self.sites.source_at(site)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (seen := source.seen(site, read_point, catalog.source_txids(site))) is None:
            hint = "is the source captured by another process?"
            try:
                if self.capture.run(needed=(site,)):
                    continue
            except LeaseHeld as held:
                hint = str(held)
            if waiting := [each for each in catalog.global_transactions.waiting() if site in each.present]:
                hint = f"global transaction {waiting[0].global_id} waits there for {waiting[0].missing[0]}"
            if time.monotonic() > deadline:
                message = f"an answer of {site} saw more than has been captured in {PATIENCE_SECONDS:.0f} s"
                raise CaptureStalled(message, subject=site, hint=hint)
            time.sleep(0.02)
        try:
            return _in_csn(catalog, site, seen)
        except (UnitSplit, HistoryPruned) as lost:
            raise ReadPointLost(lost.message, subject=site, hint=lost.hint) from None


def _in_csn(catalog: Catalog, site: str, seen: Seen) -> Seen:
    """What was seen, in csn, reaching as far as the site has nothing new: there it saw all there is.

    A site that has been idle for long would otherwise be placed at a csn that is forgotten by now.
    """
    newest = catalog.last_csn()
    if catalog.sites()[site].version > seen.upto:
        newest = catalog.csn_of(site, seen.upto + 1) - 1
    return Seen(newest, catalog.in_csn(site, seen).holes)
