"""run: capture, propagate and apply, by the policy of each view, until stopped or until nothing is left."""

from __future__ import annotations

import time
from contextlib import suppress

from rollview.errors import InputError, LeaseHeld
from rollview.events import Started, Stopped
from rollview.service.apply import apply
from rollview.service.capture import capture
from rollview.service.definitions import is_full
from rollview.service.maintenance import maintain
from rollview.service.points_in_time import newest_uncondensed
from rollview.service.propagate import propagate_all
from rollview.service.retry import Stop, follow, telling_failure
from rollview.service.warehouse import Warehouse

MAINTAIN_SECONDS = 60.0


def run(warehouse: Warehouse, once: bool = False, stop: Stop | None = None) -> None:
    """Does all by policy; `once` until nothing is left to do, and without retries."""
    events = warehouse.events
    if not warehouse.views:
        raise InputError("no view is set up", hint="run `rollview setup` first")
    with warehouse.catalog.lease("run"):
        events.emit(Started(tuple(warehouse.views)))
        if once:
            with telling_failure("run", events):
                _round(warehouse)
                maintain(warehouse)
        else:
            follow(stop or Stop(), "run", _Rounds(warehouse), events)
        events.emit(Stopped(warehouse.catalog.last_csn()))


class _Rounds:
    """Round after round, with maintenance of the lake from time to time."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse
        self._maintained = time.monotonic()

    def __call__(self) -> bool:
        if time.monotonic() - self._maintained > MAINTAIN_SECONDS:
            # Also if it fails, it is not due again at once: the views go first.
            self._maintained = time.monotonic()
            maintain(self._warehouse)
        return _round(self._warehouse)


def _round(warehouse: Warehouse) -> bool:
    """One round through everything; whether anything was done."""
    try:
        busy = capture(warehouse) > 0
    except LeaseHeld:
        busy = False
    # Not further, or a view could be propagated for as long as writers write, while the others wait.
    upto = warehouse.catalog.last_csn()
    names = [name for name in warehouse.views if not is_full(warehouse.view(name))]
    with suppress(LeaseHeld):  # Somebody else propagates one of them; the next round sees what came of it.
        busy = any(propagate_all(warehouse, names, upto, 0.0).values()) or busy
    return _apply_all(warehouse) or busy


def _apply_all(warehouse: Warehouse) -> bool:
    """Rolls all views to one csn: the least of their high-water marks that all of them can show."""
    catalog = warehouse.catalog
    names = [name for name in warehouse.views if not is_full(warehouse.view(name))]
    if not names:
        return False
    csn = min(catalog.high_water(name) for name in names)
    csn = newest_uncondensed(catalog, names, csn)
    if all(catalog.views()[name].materialized_csn >= csn for name in names):
        return False
    try:
        apply(warehouse, dict.fromkeys(names, csn), "run", 1.0)
    except LeaseHeld:
        return False
    return True
