"""`rollview run` in a terminal: a table of sources and views that is always up to date, and the last events.

What stands in the table is read from the catalog once a second, by a project of its own beside the one that
works; what a step did is known from the events.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from rollview.cli.event_lines import Activity, duration_words, progress_words, stamped_line
from rollview.events import Event, Failed, Halted, Progress, Resumed, Retry, StepBegun, StepFinished
from rollview.service.overview import Overview, SourceLine, ViewLine
from rollview.service.project import Project

LINES = 6
EVERY_SECONDS = 1.0
_OTHER_LINES = 10
"""Lines of a screen that are taken by heads, feet and what stands between the tables."""


class LiveRun:
    """Takes events, and draws what is known."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._overview: Overview | None = None
        self._lines: deque[str] = deque(maxlen=LINES)
        self._last: dict[str, StepFinished] = {}
        self._doing: dict[str, str] = {}
        self._activity = "starting"
        self._spinner = Spinner("dots")
        self._is_over = False
        self._notice = Activity(self._tell, "waiting for changes")

    def __call__(self, event: Event) -> None:
        """Takes notice of an event."""
        with self._lock:
            self._notice(event)
            if line := stamped_line(event):
                self._lines.append(line)
            match event:
                case StepBegun(kind=kind, subject=subject):
                    self._doing |= dict.fromkeys(_views_of(subject), _WORDS.get(kind, kind))
                case Progress(kind=kind, subject=subject):
                    self._doing[subject] = f"{_WORDS.get(kind, kind)} {progress_words(event)}"
                case StepFinished(subject=subject):
                    for view in _views_of(subject):
                        self._doing.pop(view, None)
                        self._last[view] = event
                case Retry() | Failed() | Halted() | Resumed():
                    self._doing.clear()

    def _tell(self, what: str) -> None:
        self._activity = what

    def show(self, found: Overview, is_last: bool = False) -> None:
        """Takes a new look at the catalog; the last one when the work is over."""
        with self._lock:
            self._overview, self._is_over = found, is_last

    def drawn(self, height: int) -> RenderableType:
        """All of it, in so many lines at most."""
        with self._lock:
            self._spinner.update(text=Text(f"{self._activity}; Ctrl-C stops", style="dim"))
            foot = Text() if self._is_over else self._spinner
            if self._overview is None:
                return Group(*map(Text, self._lines), foot)
            room = height - _OTHER_LINES - len(self._overview.sources) - len(self._lines)
            head = Text.assemble((self._name, "bold"), f" at csn {self._overview.last_csn}\n")
            views = self._views(self._overview.views, max(3, room))
            return Group(head, self._sources(self._overview.sources), Text(), *views, *self._events(), foot)

    def _events(self) -> list[Text]:
        return [Text(), *(Text(line, no_wrap=True, overflow="ellipsis") for line in self._lines)]

    def _sources(self, sources: tuple[SourceLine, ...]) -> Table:
        table = _table("source", "transactions", "captured until", "")
        table.columns[1].justify = "right"
        for each in sources:
            table.add_row(
                Text(each.site, style="bold"),
                f"{each.version:,}",
                _ago(each.looked_at),
                Text("" if each.halted is None else each.halted.reason, style="red"),
            )
        return table

    def _views(self, views: tuple[ViewLine, ...], room: int) -> list[RenderableType]:
        table = _table("view", "state", "shows csn", "high-water mark", "lag", "last step")
        for number in (2, 3, 4):
            table.columns[number].justify = "right"
        # Those first that somebody may have to look at.
        urgent = sorted(views, key=lambda each: (each.halted is None, each.name not in self._doing))
        shown = list(views) if len(views) <= room else urgent[:room]
        for each in shown:
            last = self._last.get(each.name)
            table.add_row(
                Text(each.name, style="bold"),
                self._state(each),
                f"{each.materialized}",
                f"{each.high_water}",
                _lag(each.lag_seconds),
                "" if last is None else _step(last),
            )
        more = len(views) - len(shown)
        return [table, *([Text(f"… and {more:,} more", style="dim")] if more else [])]

    def _state(self, view: ViewLine) -> Text:
        if view.halted is not None:
            return Text(f"stopped: {view.halted.reason}", style="red")
        if view.name in self._doing:
            return Text(self._doing[view.name], style="cyan")
        return Text(view.state, style="green" if view.state == "running" else "yellow")


_WORDS = {
    "load": "loading",
    "propagate": "propagating",
    "apply": "applying",
    "verify": "verifying",
    "capture": "capturing",
}


def _views_of(subject: str) -> list[str]:
    """The views of a step; an apply may be of several."""
    return subject.split(", ")


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column, overflow="ellipsis", no_wrap=True)
    return table


def _step(event: StepFinished) -> str:
    rows = "" if event.rows is None else f"{event.rows:,} row{'' if event.rows == 1 else 's'}, "
    return f"{event.kind}: {rows}{event.seconds:.1f} s"


def _lag(seconds: float | None) -> Text:
    if seconds is None:
        return Text("unknown")
    return Text(duration_words(seconds)) if seconds else Text("0 s", style="green")


def _ago(moment: float) -> str:
    if not moment:
        return "nothing yet"
    return f"{duration_words(max(0.0, time.time() - moment))} ago"


@contextmanager
def live_table(project: Project, stream: IO[str]) -> Iterator[None]:
    """Shows the table on a terminal while the project works inside."""
    state, done = LiveRun(project.name), threading.Event()
    console = Console(file=stream, highlight=False)
    state.show(project.observe.overview())
    unsubscribe = project.subscribe(state)

    def look() -> None:
        with project.beside() as beside:
            while not done.wait(EVERY_SECONDS):
                # What cannot be read now is read in a second.
                with suppress(Exception):
                    state.show(beside.observe.overview())

    watcher = threading.Thread(target=look, name="rollview-live", daemon=True)
    live = Live(
        console=console,
        get_renderable=lambda: state.drawn(console.height),
        refresh_per_second=4,
        vertical_overflow="crop",
        redirect_stdout=False,
        redirect_stderr=False,
    )
    watcher.start()
    try:
        with live:
            yield
            # The last look is what stays on the screen.
            with suppress(Exception):
                state.show(project.observe.overview(), is_last=True)
    finally:
        done.set()
        watcher.join(5.0)
        unsubscribe()
