"""run: capture, propagate and apply, by the policy of each view, until stopped or until nothing is left."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from rollview.errors import InputError, LeaseHeld
from rollview.service.apply import apply
from rollview.service.capture import capture
from rollview.service.definitions import is_full
from rollview.service.maintenance import maintain
from rollview.service.points_in_time import newest_uncondensed
from rollview.service.propagate import propagate_all
from rollview.service.warehouse import Warehouse

Progress = Callable[[str], None]
POLL_SECONDS = 0.5
MAINTAIN_SECONDS = 60.0
_TROUBLE_SECONDS = (0.5, 1, 2, 5, 10, 30)


class Stop:
    """A wish to stop, from a signal or another thread; a step that runs is finished first."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def now(self) -> None:
        """Asks to stop."""
        self._event.set()

    def asked(self) -> bool:
        """Whether somebody asked."""
        return self._event.is_set()

    def wait(self, seconds: float) -> None:
        """Sleeps, or less."""
        self._event.wait(seconds)


@contextmanager
def stopping_on_signals() -> Iterator[Stop]:
    """A stop that SIGINT and SIGTERM ask for."""
    stop = Stop()
    before = {sign: signal.signal(sign, lambda *_: stop.now()) for sign in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for sign, handler in before.items():
            signal.signal(sign, handler)


def run(
    warehouse: Warehouse, once: bool = False, stop: Stop | None = None, progress: Progress = lambda _: None
) -> None:
    """Does all by policy; `once` until nothing is left to do."""
    stop = stop or Stop()
    if not warehouse.views:
        raise InputError("no view is set up", hint="run `rollview setup` first")
    with warehouse.catalog.lease("run"):
        maintained = time.monotonic()
        keep_trying(stop, once, lambda: _round(warehouse, progress), progress)
        # From here on there is no bad input: it worked once, so that a file that is gone may come back.
        while not once and not stop.asked():
            if time.monotonic() - maintained > MAINTAIN_SECONDS:
                keep_trying(stop, once, lambda: bool(maintain(warehouse)), progress, ())
                maintained = time.monotonic()
            if not keep_trying(stop, once, lambda: _round(warehouse, progress), progress, ()):
                stop.wait(POLL_SECONDS)
        if once:
            maintain(warehouse)


def keep_trying(
    stop: Stop,
    once: bool,
    action: Callable[[], bool],
    progress: Progress,
    hopeless: type[Exception] | tuple[()] = InputError,
) -> bool:
    """Repeats an action that meets trouble, with pauses; `once` lets the trouble out, as what is hopeless."""
    for pause in (*_TROUBLE_SECONDS, *[_TROUBLE_SECONDS[-1]] * 1_000_000):
        try:
            return action()
        except hopeless:
            raise
        except Exception as trouble:
            if once or stop.asked():
                raise
            progress(f"trouble, trying again in {pause} s: {str(trouble).splitlines()[0]}")
            stop.wait(pause)
            if stop.asked():
                return False
    return False


def _round(warehouse: Warehouse, progress: Progress) -> bool:
    """One round through everything; whether anything was done."""
    busy = False
    try:
        captured = capture(warehouse)
    except LeaseHeld:
        captured = 0
    if captured:
        busy = True
        progress(f"captured {captured} transactions, csn {warehouse.catalog.last_csn()}")
    # Not further, or a view could be propagated for as long as writers write, while the others wait.
    upto = warehouse.catalog.last_csn()
    names = [name for name in warehouse.views if not is_full(warehouse.view(name))]
    with suppress(LeaseHeld):  # Somebody else propagates one of them; the next round sees what came of it.
        for name, steps in propagate_all(warehouse, names, upto, 0.0).items():
            if steps:
                busy = True
                progress(f"propagated {name} to csn {warehouse.catalog.high_water(name)}")
    return _apply_all(warehouse, progress) or busy


def _apply_all(warehouse: Warehouse, progress: Progress) -> bool:
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
    progress(f"applied {', '.join(names)} to csn {csn}")
    return True
