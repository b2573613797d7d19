"""What `run` does from time to time besides: look at columns, keep the lake small, condense what is old."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from rollview.algebra.net_effect import condensed_around
from rollview.errors import InputError, RollviewError
from rollview.events import Events, Maintained
from rollview.service.condense import CondenseDriver
from rollview.service.definitions import is_full
from rollview.service.faults import concerns_all
from rollview.service.maintenance import MaintainDriver
from rollview.service.new_columns import ColumnWatch
from rollview.service.schedules import Condensing, condensing_of


@dataclass(frozen=True)
class Upkeep:
    """Maintenance, in the order in which it is least work."""

    maintain: MaintainDriver
    columns: ColumnWatch
    condense: CondenseDriver
    events: Events

    def run(self) -> dict[str, int]:
        """Does what is due; returns what was done, by table."""
        self.columns.look()
        done, failed = self._condense_old()
        done |= self.maintain.run()
        if failed:
            raise failed[0]
        return done

    def _condense_old(self) -> tuple[dict[str, int], list[RollviewError]]:
        """Condenses what views say is old: the rows saved, by table, and what failed.

        What fails for one view keeps nothing else from being looked after.
        """
        done: dict[str, int] = {}
        failed: list[RollviewError] = []
        for name, view in self.condense.views.all().items():
            condensing = None if is_full(view) else condensing_of(view)
            try:
                saved = 0 if condensing is None else self._condense(name, condensing)
            except RollviewError as error:
                if concerns_all(error):
                    raise
                failed.append(error)
                continue
            if saved:
                done[f"deltas/{name}: rows condensed"] = saved
                self.events.emit(Maintained(f"deltas/{name}", "rows condensed", saved))
        return done, failed

    def _condense(self, name: str, condensing: Condensing) -> int:
        catalog = self.condense.catalog
        covered, known = self.condense.stored.covered(name), catalog.condensed(name)
        began = catalog.commit_time(covered.oldest + 1)
        if began is None:
            return 0
        times = condensing.ends(began, catalog.watched_time())
        ends = sorted({max(catalog.csn_at(each), covered.oldest) for each in times})
        saved = 0
        for after, upto in pairwise(ends):
            if upto - after < 2 or upto > covered.newest or condensed_around(known, after + 1) is not None:
                continue
            # A reader, a consumer or the stored view that stands inside: another time.
            try:
                saved += self.condense.run(name, after, upto).saved
            except InputError:
                continue
        return saved
