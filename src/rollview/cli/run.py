"""`rollview run`: everything by policy, as a live table in a terminal, else one line per event."""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click
from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from rollview.cli.event_lines import Activity, duration_words, progress_words, stamped_line
from rollview.cli.logs import logs_somewhere, logs_to_stderr
from rollview.cli.project_context import Opened, opened, project_options
from rollview.cli.terminal import own_stream, plural, results
from rollview.cli.ui import access_options, page, parse_address
from rollview.errors import OptionError
from rollview.events import (
    Event,
    Failed,
    Halted,
    Progress,
    Resumed,
    Retry,
    Started,
    StepBegun,
    StepFinished,
    Stopped,
)

if TYPE_CHECKING:
    from rollview.observe.state import ProjectState, SourceState, ViewState
    from rollview.project.project import Project

_log = logging.getLogger("rollview.run")


@click.command()
@click.option("--once", is_flag=True, help="Stop when nothing is left to do.")
@click.option("--standby", is_flag=True, help="Wait while another process runs, then take over.")
@click.option("--ui", "listen", metavar="[HOST:]PORT", help="Serve the web page meanwhile, as `rollview ui`.")
@click.option(
    "--metrics",
    metavar="[HOST:]PORT",
    help="Serve /metrics, /healthz and /readyz there; without HOST, to this machine alone.",
)
@access_options
@project_options
def run(
    once: bool,
    standby: bool,
    listen: str | None,
    metrics: str | None,
    token_file: Path | None,
    allow_actions: bool,
    project_file: Path,
    as_json: bool,
) -> None:
    """Capture, propagate and apply, by policy, until stopped.

    Looks for new transactions twice a second, and keeps the lake's logs small. Errors at a source or in the
    lake are reported and retried; with --once, the first error ends the run. Ctrl-C and SIGTERM let the
    current step finish and end with exit code 0; it is safe to kill the process at any moment.

    In a terminal, sources and views are shown in a table that is always up to date. Elsewhere, with a log and
    with --once, each event is one line; with --json one line of JSON. With --log-format or --log-level and no
    --log-file, as for a service, the log on stderr takes the place of the lines on stdout. With --ui, a web
    page shows the project meanwhile; its address goes to stderr, and `rollview ui --help` says who can open
    it.

    With --standby, on two hosts, one works and the other waits with Spark started. It takes over when the
    first one ends, is killed or cannot be reached; the first one stands by once it is back.

    While it runs, it answers `read`, `deltas` and `query` of the same project, at once.

    \b
    rollview run --once
    rollview run
    rollview run --ui 8642
    rollview run --standby
    rollview run --once --log-file rollview.log
    rollview run --metrics 9464 --log-format json
    """
    address = None if metrics is None else parse_address(metrics, "--metrics")
    # Not at the top: help and wrong arguments should not wait for Spark.
    from rollview.maintain.retry import stopping_on_signals

    if once and standby:
        raise OptionError("--once ends, and --standby waits", hint="leave one of them out")
    is_live = _is_live(once, as_json)
    if listen is None and (token_file is not None or allow_actions):
        raise OptionError("--token-file and --allow-actions are for the page", hint="add --ui PORT")
    with (
        own_stream(sys.stdout) as stream,
        opened(project_file, "waiting for changes", spinning=not is_live) as at,
        stopping_on_signals() as stop,
        ExitStack() as stack,
    ):
        if listen is not None or address is not None:
            # Not at the top, either: most runs need none of it.
            from rollview.monitoring import Monitor, serving

            monitor = stack.enter_context(Monitor(at.project, stop, at.lineage).watching())
            if address is not None:
                _announce(at, f"metrics at {stack.enter_context(serving(monitor, *address))}/metrics")
            if listen is not None:
                url = stack.enter_context(page(monitor, listen, token_file, allow_actions, beside=True))
                _announce(at, f"the page is at {url}", secret=True)
        last, answers = [0], list[Path | None]()
        # The log says the same, and both may end in one place, such as the journal of a service.
        is_logged = logs_to_stderr(click.get_current_context())

        def on_event(event: Event) -> None:
            if isinstance(event, Started) and not once and not answers:
                # Not before: a run that is refused because another one runs must not answer.
                answers.append(stack.enter_context(at.project.answering()))
            if isinstance(event, Stopped):
                last[0] = event.csn
            if is_logged and not as_json:
                return
            try:
                if not is_live:
                    print_event(event, at, stream, as_json)
            except BrokenPipeError:
                # The reader of the pipe is gone; programs that write to a pipe end then.
                stop.now()
                raise

        at.project.subscribe(on_event)
        if is_live:
            stack.enter_context(live_table(at.project, stream))
        at.project.run(once, stop, standby=standby)
    if not as_json:
        results().print("nothing is left to do" if once else "stopped", f"at csn {last[0]}", style="dim")


def _is_live(once: bool, as_json: bool) -> bool:
    """Whether somebody looks at a terminal, and nothing else is written to it."""
    root = click.get_current_context().find_root()
    is_logged = logs_somewhere(root) or bool(root.meta.get("rollview.debug"))
    return sys.stdout.isatty() and not (once or as_json or is_logged)


def _announce(at: Opened, text: str, secret: bool = False) -> None:
    """Prints where something is served; logs it as well unless it contains a token."""
    if not secret:
        _log.info("%s", text)
    if secret or not logs_to_stderr(click.get_current_context()):
        with at.progress.aside():
            click.echo(text, err=True)


def print_event(event: Event, at: Opened, stream: IO[str], as_json: bool) -> None:
    """One line: all of the event as JSON, or a sentence if it is worth one."""
    if as_json:
        line = json.dumps(event.record(), ensure_ascii=False)
    elif not (line := stamped_line(event)):
        return
    with at.progress.aside():
        click.echo(line, file=stream)


# `rollview run` in a terminal: a table of sources and views that is always up to date, and the last events.
#
# The table is read from the catalog once a second, by a second `Project` beside the one that works; what a
# step did is known from the events.

LINES = 6
EVERY_SECONDS = 1.0
_OTHER_LINES = 10
"""Lines of a screen that headers, footers and the space between the tables take."""


class LiveRun:
    """Collects events and draws the table."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._shown: ProjectState | None = None
        self._lines: deque[str] = deque(maxlen=LINES)
        self._last: dict[str, StepFinished] = {}
        self._doing: dict[str, str] = {}
        self._activity = "starting"
        self._spinner = Spinner("dots")
        self._is_over = False
        self._notice = Activity(self._show_activity, "waiting for changes")

    def __call__(self, event: Event) -> None:
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

    def _show_activity(self, what: str) -> None:
        self._activity = what

    def show(self, found: ProjectState, is_last: bool = False) -> None:
        """Takes over a new state from the catalog; the last one when the work is over."""
        with self._lock:
            self._shown, self._is_over = found, is_last

    def drawn(self, height: int) -> RenderableType:
        """The screen, in at most so many lines."""
        with self._lock:
            self._spinner.update(text=Text(f"{self._activity}; Ctrl-C stops", style="dim"))
            foot = Text() if self._is_over else self._spinner
            if self._shown is None:
                return Group(*map(Text, self._lines), foot)
            room = height - _OTHER_LINES - len(self._shown.sources) - len(self._lines)
            head = Text.assemble((self._name, "bold"), f" at csn {self._shown.last_csn}\n")
            views = self._views(self._shown.views, max(3, room))
            return Group(head, self._sources(self._shown.sources), Text(), *views, *self._events(), foot)

    def _events(self) -> list[Text]:
        return [Text(), *(Text(line, no_wrap=True, overflow="ellipsis") for line in self._lines)]

    def _sources(self, sources: tuple[SourceState, ...]) -> Table:
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

    def _views(self, views: tuple[ViewState, ...], room: int) -> list[RenderableType]:
        table = _table("view", "state", "shows csn", "high-water mark", "lag", "last step")
        for number in (2, 3, 4):
            table.columns[number].justify = "right"
        # First those that may need attention.
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

    def _state(self, view: ViewState) -> Text:
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
    rows = "" if event.rows is None else f"{plural(event.rows, 'row')}, "
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
    state.show(project.observe.state())
    unsubscribe = project.subscribe(state)

    def look() -> None:
        with project.clone() as clone:
            while not done.wait(EVERY_SECONDS):
                # An error here may pass: the next reading is in a second.
                with suppress(Exception):
                    state.show(clone.observe.state())

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
            # The last state stays on the screen.
            with suppress(Exception):
                state.show(project.observe.state(), is_last=True)
    finally:
        done.set()
        watcher.join(5.0)
        unsubscribe()
