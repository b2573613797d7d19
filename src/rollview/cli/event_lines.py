"""Events for people: a sentence for each that `run` prints, and the text beside the spinner."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from shlex import quote

from rollview.algebra.view import is_stage
from rollview.cli.failures import plain_text
from rollview.cli.terminal import plural
from rollview.events import (
    Applied,
    Captured,
    ClockJumped,
    Event,
    Failed,
    FileNoted,
    GivenUp,
    Halted,
    Maintained,
    Progress,
    Propagated,
    Refreshed,
    Resumed,
    Retry,
    SourceNoted,
    SparkLost,
    SparkStarted,
    SparkStarting,
    StandingBy,
    StepBegun,
    StepFinished,
    Verified,
    Waiting,
)

_SPARK = "starting Spark"
_WORDS = {"site": "source", "table": "table", "view": "view"}


def stamped_line(event: Event) -> str:
    """The line with the time of day in front; empty if the event is not worth one."""
    line = sentence(event)
    return f"{datetime.fromtimestamp(event.time, UTC).astimezone():%H:%M:%S}  {line}" if line else ""


def sentence(event: Event) -> str:
    """The line for an event; empty if it is not worth one, as those of stages are not."""
    return _work(event) or _matter(event)


def _work(event: Event) -> str:
    """Events of finished work."""
    match event:
        case Captured(transactions=number, csn=csn, merged=merged):
            several = f" ({merged:,} may stand for several)" if merged else ""
            return f"captured {plural(number, 'transaction')}{several}, csn {csn}"
        case Propagated(view=view, to_csn=csn) if not is_stage(view):
            return f"propagated {view} to csn {csn}"
        case Applied(views=views, csn=csn) if named := [view for view in views if not is_stage(view)]:
            return f"applied {', '.join(named)} to csn {csn}"
        case Refreshed(kind="recomputed", view=view, csn=csn, reason=reason) if not is_stage(view):
            return f"recomputed {view} at csn {csn} ({reason})"
        case Refreshed(kind="full", view=view, csn=csn, reason=reason) if not is_stage(view):
            return f"loaded {view} at csn {csn} ({reason})"
        case Verified(view=view, csn=csn, rows=rows, different=0, part=part):
            where = f" ({part})" if part else ""
            return f"verified {view}{where} at csn {csn}: {plural(rows, 'row')} identical when recomputed"
        case Verified(view=view, csn=csn, different=different, differences=differences, suspects=suspects):
            first = f", such as {differences[0]}" if differences else ""
            others = f"; {', '.join(suspects)} read the same tables and are verified next" if suspects else ""
            return (
                f"WRONG: {view} at csn {csn} differs from its sources in {plural(different, 'row')}{first}; "
                f"`rollview setup --reload {quote(view)}` reloads it{others}"
            )
        case Maintained(table=table, what=what, number=number):
            return f"maintained {table}: {number:,} {what}"
    return ""


def _matter(event: Event) -> str:
    """Events that may need somebody's attention."""
    match event:
        case FileNoted(view=view, note=note):
            return f"{view}: {note}" if note else f"{view}: its file and what is set up agree again"
        case StandingBy(reason=reason):
            return f"standing by: {reason}"
        case SparkLost(exit_code=code):
            return f"Spark's process has ended (exit code {code}); another one is started"
        case ClockJumped(seconds=seconds):
            way = "forward" if seconds > 0 else "back"
            jump = f"{way} by {duration_words(abs(seconds))}"
            return f"the clock was set {jump}; CSNs are unaffected, lags are not"
        case Waiting(global_id=name, present=present, missing=missing):
            return (
                f"waiting for {', '.join(missing)}: global transaction {name} holds up {', '.join(present)}; "
                f"`rollview release {quote(name)}` ends the wait"
            )
        case GivenUp(global_id=name, present=present, missing=missing, seconds=seconds):
            return (
                f"gave up waiting for {', '.join(missing)} after {duration_words(seconds)}: the changes"
                f" of {', '.join(present)} in global transaction {name} are a transaction of their own"
            )
        case SourceNoted(note=note):
            return note
        case Halted(scope=scope, subject=subject, message=message, hint=hint, csn=csn):
            place = f" from csn {csn} on" if csn else ""
            way_out = f"; {hint}" if hint else ""
            return f"stopped: {_WORDS[scope]} {subject}{place}: {plain_text(message, '')}{way_out}"
        case Resumed(scope=scope, subject=subject):
            return f"{_WORDS[scope]} {subject} continues"
        case Retry(pause_seconds=pause, attempt=attempt, message=message, kind=kind, trace=trace):
            line = plain_text(message, kind if trace else "")
            return f"error, retrying in {pause:g} s (attempt {attempt}): {line}"
    return ""


def progress_words(event: Progress) -> str:
    """How far it is: 1,200,000 of about 4,000,000 rows (30 %), 45 s left."""
    if event.total is None:
        return f"{event.done:,} {event.unit}"
    about = "about " if event.unit == "rows" else ""
    share = f" ({100 * event.done // event.total} %)" if event.total else ""
    left = f", {duration_words(event.left_seconds)} left" if event.left_seconds is not None else ""
    return f"{event.done:,} of {about}{event.total:,} {event.unit}{share}{left}"


def duration_words(seconds: float) -> str:
    """A duration as people say it: 0.4 s, 45 s, 3 min, 2 h 5 min."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


class Activity:
    """Keeps the text beside the spinner current."""

    def __init__(self, show: Callable[[str], None], idle: str) -> None:
        self._show = show
        self._idle = idle
        self._running: dict[tuple[str, str], str] = {}

    def __call__(self, event: Event) -> None:
        """Updates the text after an event."""
        match event:
            case StepBegun(kind=kind, subject=subject):
                self._running[kind, subject] = f"{'set up' if kind == 'setup' else kind} {subject}"
            case Progress(kind=kind, subject=subject):
                self._running[kind, subject] = f"{kind} {subject}: {progress_words(event)}"
            case SparkStarting():
                self._running[_SPARK, ""] = _SPARK
            case StepFinished(kind=kind, subject=subject):
                self._running.pop((kind, subject), None)
            case SparkStarted():
                self._running.pop((_SPARK, ""), None)
            case Retry() | Failed():
                self._running.clear()
            case _:
                return
        self._show(next(reversed(self._running.values()), self._idle))
