"""Events in the log, by the standard `logging`, under the name `rollview.run`.

DEBUG is for diagnosis: steps, their progress, tracebacks. WARNING may pass without action: retries, waiting.
ERROR needs action: failures, whatever had to stop, a view that is wrong. Everything else is INFO. A line is
the event's name and its fields as `name=value`; a handler that writes JSON finds the whole event in the
record's attribute `event`.
"""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Callable

from rollview.events import (
    ClockJumped,
    Event,
    Failed,
    FileNoted,
    GivenUp,
    Halted,
    Progress,
    Retry,
    SourceNoted,
    SparkLost,
    StepBegun,
    StepFinished,
    Verified,
    Waiting,
)

_log = logging.getLogger("rollview.run")
_LEVELS: dict[type[Event], int] = {
    StepBegun: logging.DEBUG,
    StepFinished: logging.DEBUG,
    Progress: logging.DEBUG,
    Retry: logging.WARNING,
    ClockJumped: logging.WARNING,
    FileNoted: logging.WARNING,
    GivenUp: logging.WARNING,
    SourceNoted: logging.WARNING,
    SparkLost: logging.WARNING,
    Waiting: logging.WARNING,
    Halted: logging.ERROR,
    Failed: logging.ERROR,
}


def log_event(event: Event) -> None:
    """Writes an event to the log; the traceback of a programming error is below its line."""
    level = _LEVELS.get(type(event), logging.INFO)
    if isinstance(event, Verified) and event.different:
        level = logging.ERROR
    if isinstance(event, FileNoted) and not event.note:
        level = logging.INFO
    if not _log.isEnabledFor(level):
        return
    known = {name: value for name, value in event.fields().items() if value not in ("", None)}
    trace = known.pop("trace", "")
    line = " ".join([event.name, *(f"{name}={_shown(value)}" for name, value in known.items())])
    _log.log(level, "%s", f"{line}\n{trace.rstrip()}" if trace else line, extra={"event": event.record()})


def log_traceback(what: str, error: Exception, hide: Callable[[str], str]) -> None:
    """Logs the traceback of an error at DEBUG; its event has the message."""
    if _log.isEnabledFor(logging.DEBUG):
        text = hide("".join(traceback.format_exception(error)).rstrip())
        _log.debug("%s", f"traceback of the error in {what}:\n{text}")


def _shown(value: object) -> str:
    """Plain words as they are, the rest as JSON, so that a line can be taken apart again."""
    if isinstance(value, str) and value and not any(each.isspace() or each in '"=' for each in value):
        return value
    return json.dumps(value, ensure_ascii=False)
