"""Events: everything that happens while rollview works, as data.

A driver emits an event; subscribers receive it. The terminal, `rollview run --json` and the log are
subscribers, so all of them know the same. Fields hold facts, not sentences; only messages of
errors are text for people.

`Events` is the one place through which all events go. It stamps the time and hands each event to every
subscriber, one event at a time and in the order of their times, whichever thread emitted it. The driver waits
meanwhile, so a subscriber should be quick. A subscriber that raises does not stop the work: the exception is
logged with its traceback and the subscriber gets no further events, because it would fail at each of them.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from threading import RLock
from typing import Any

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Event:
    """Something that happened; `time` is in unix seconds, set when the event is emitted."""

    time: float = field(default=0.0, kw_only=True)

    @property
    def name(self) -> str:
        """The name in JSON and in the log: `StepBegun` is `step_begun`."""
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(self).__name__).lower()

    def fields(self) -> dict[str, Any]:
        """The event's fields, ready for JSON, without the time."""
        return {each.name: _plain(getattr(self, each.name)) for each in fields(self) if each.name != "time"}

    def record(self) -> dict[str, Any]:
        """The whole event as one JSON object."""
        return {"time": round(self.time, 3), "event": self.name, **self.fields()}


@dataclass(frozen=True)
class Started(Event):
    """`run` has begun to maintain these views."""

    views: tuple[str, ...]


@dataclass(frozen=True)
class StandingBy(Event):
    """`run --standby` is ready to take over from another `run`; `reason` says which one works."""

    reason: str


@dataclass(frozen=True)
class Stopped(Event):
    """`run` has ended as it should; `csn` is the last one captured."""

    csn: int


@dataclass(frozen=True)
class SparkStarting(Event):
    """A Spark session is being started, which takes seconds."""


@dataclass(frozen=True)
class SparkStarted(Event):
    """The Spark session is there."""

    seconds: float


@dataclass(frozen=True)
class SparkLost(Event):
    """Spark's process ended unexpectedly, with this exit code; another one is started when needed.

    A negative code is the signal that ended it: -9 is often a machine without memory.
    """

    exit_code: int


@dataclass(frozen=True)
class StepBegun(Event):
    """A piece of work has begun: setup of a source, capture, load, propagate, apply, verify.

    `subject` is the source or the views; `step` is the id in the catalog, 0 for work that has none. A step
    that fails has no `StepFinished`; it is begun again.
    """

    kind: str
    subject: str
    step: int = 0


@dataclass(frozen=True)
class StepFinished(Event):
    """A piece of work is done and visible to everybody.

    `phases` gives seconds per phase. Phases of parts that run side by side add up, so their sum may exceed
    `seconds`. `rows` counts changed rows, and is None where they were not counted. `lookups` are the
    sub-queries that were sent to sites, `rows_found` the rows that came back.
    """

    kind: str
    subject: str
    step: int
    seconds: float
    phases: Mapping[str, float] = field(default_factory=dict)
    rows: int | None = None
    lookups: int = 0
    rows_found: int = 0


@dataclass(frozen=True)
class Progress(Event):
    """How far a piece of work has come that takes longer than a second; at most one event a second.

    `kind` and `subject` are those of the step. `done` and `total` count `unit`s: rows that were read, or
    transactions; `total` may be an estimate, and is None where unknown. `left_seconds` is how long the
    rest will take at this pace, None if that is not known.
    """

    kind: str
    subject: str
    done: int
    total: int | None
    unit: str
    seconds: float
    left_seconds: float | None


@dataclass(frozen=True)
class Captured(Event):
    """Transactions became part of the history, up to `csn`; `merged` of them may stand for several.

    A source that nobody watched for a while may be unable to separate its transactions.
    """

    transactions: int
    csn: int
    merged: int = 0


@dataclass(frozen=True)
class Waiting(Event):
    """Parts of a global transaction arrived from some sites, which wait until the missing sites report."""

    global_id: str
    present: tuple[str, ...]
    missing: tuple[str, ...]


@dataclass(frozen=True)
class GivenUp(Event):
    """Parts of a global transaction did not arrive in time; those that arrived become separate transactions.

    The wait lasted `seconds`.
    """

    global_id: str
    present: tuple[str, ...]
    missing: tuple[str, ...]
    seconds: float


@dataclass(frozen=True)
class SourceNoted(Event):
    """A notice about a source that stops nothing; each note is emitted once."""

    source: str
    note: str


@dataclass(frozen=True)
class Propagated(Event):
    """The high-water mark of a view has moved."""

    view: str
    from_csn: int
    to_csn: int


@dataclass(frozen=True)
class Applied(Event):
    """Stored views show a new csn, all of them from the same moment on."""

    views: tuple[str, ...]
    csn: int


@dataclass(frozen=True)
class Refreshed(Event):
    """The stored content of one view was renewed: `kind` is `full` for a load, `incremental` for a roll.

    It is `recomputed` for a step of the view delta that was computed as a whole. `rows` counts the rows of a
    full refresh, and the changed rows of the other kinds.
    """

    view: str
    kind: str
    csn: int
    rows: int | None
    seconds: float
    reason: str


@dataclass(frozen=True)
class Verified(Event):
    """`run` has recomputed a view in the background; `different` rows were not as they should be.

    `differences` has the first of them, as text. `part` says which rows were compared, if not all were.
    `suspects` are the other views that read a table of a view that differs; they are verified next.
    """

    view: str
    csn: int
    rows: int
    different: int
    differences: tuple[str, ...] = ()
    part: str = ""
    suspects: tuple[str, ...] = ()


@dataclass(frozen=True)
class Maintained(Event):
    """A log of the lake got smaller: `what` is `rows pruned` or `files compacted`, `number` how many."""

    table: str
    what: str
    number: int


@dataclass(frozen=True)
class FileNoted(Event):
    """The file of a view differs from what is set up: it has changed, is gone, or cannot be used.

    The view continues as it was set up. `note` is empty once they agree again.
    """

    view: str
    note: str


@dataclass(frozen=True)
class ClockJumped(Event):
    """The clock of this machine was set by so many seconds, forward if positive; or the machine slept."""

    seconds: float


@dataclass(frozen=True)
class Retry(Event):
    """Work failed and is tried again after a pause; `attempt` counts the failures in a row.

    `kind` is the class of the error. `trace` is the traceback of a programming error, else empty.
    """

    what: str
    attempt: int
    pause_seconds: float
    message: str
    kind: str
    subject: str = ""
    hint: str = ""
    trace: str = ""


@dataclass(frozen=True)
class Halted(Event):
    """A site, a table or a view (`scope`) cannot continue, nor can the views that need it; all others can.

    A table has lost changes from `csn` on; a view is not available at `csn`. 0 if that is not known. The
    other fields are those of `Retry`.
    """

    scope: str
    subject: str
    message: str
    kind: str
    hint: str = ""
    csn: int = 0
    trace: str = ""


@dataclass(frozen=True)
class Resumed(Event):
    """A halted site, table or view has resumed."""

    scope: str
    subject: str


@dataclass(frozen=True)
class Failed(Event):
    """Work failed and ends; the call raises the error. The fields are those of `Retry`."""

    what: str
    message: str
    kind: str
    subject: str = ""
    hint: str = ""
    trace: str = ""


Subscriber = Callable[[Event], None]


_TEXTS = ("message", "hint")
"""Fields with text for people, in which a driver may have put anything."""


class Events:
    """Takes events from any thread and gives them to all subscribers."""

    def __init__(
        self,
        clock: Callable[[], float] = time.time,
        hide: Callable[[str], str] = lambda text: text,
        hide_foreign: Callable[[str], str] | None = None,
    ) -> None:
        """`hide` removes secrets from our own texts, `hide_foreign` from those of drivers and servers."""
        self._clock = clock
        self._hide = hide
        self._hide_foreign = hide_foreign or hide
        # A subscriber may emit or subscribe while it is called.
        self._lock = RLock()
        self._subscribers: list[Subscriber] = []

    def hide(self, text: str) -> str:
        """The text without secrets."""
        return self._hide(text)

    def hide_foreign(self, text: str) -> str:
        """A text from elsewhere, such as a driver's message or a traceback, without secrets."""
        return self._hide_foreign(text)

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Gives all further events to the subscriber; returns a function that ends this."""
        with self._lock:
            self._subscribers.append(subscriber)
        return lambda: self._drop(subscriber)

    def emit(self, event: Event) -> None:
        """Stamps the event and hands it to every subscriber."""
        with self._lock:
            texts = {name: self._hide(text) for name in _TEXTS if (text := getattr(event, name, ""))}
            if trace := getattr(event, "trace", ""):
                texts["trace"] = self._hide_foreign(trace)
            stamped = replace(event, time=self._clock(), **texts)
            for subscriber in tuple(self._subscribers):
                try:
                    subscriber(stamped)
                except Exception:
                    _log.exception("a subscriber failed at %s and gets no further events", stamped.name)
                    self._drop(subscriber)

    def _drop(self, subscriber: Subscriber) -> None:
        with self._lock:
            if subscriber in self._subscribers:
                self._subscribers.remove(subscriber)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    return round(value, 6) if isinstance(value, float) else value
