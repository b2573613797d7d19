"""What a line of the log looks like, for people or as JSON; neither shows a secret."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

Hide = Callable[[str], str]
"""Takes secrets out of a text."""


class HumanLines(logging.Formatter):
    """Time, level, logger, message; a traceback stands below. Times are ISO, UTC, milliseconds."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def __init__(self, hide: Hide) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self._hide = hide

    def format(self, record: logging.LogRecord) -> str:
        """The whole text, without secrets."""
        return self._hide(super().format(record))


class JsonLines(logging.Formatter):
    """One object per line: time, level and logger, then the fields of an event, or a message."""

    def __init__(self, hide: Hide) -> None:
        super().__init__()
        self._hide = hide

    def format(self, record: logging.LogRecord) -> str:
        """The object on one line, without secrets."""
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {
            "time": when.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            **self._told(record),
        }
        # Before it is JSON: quoting would tear a secret apart.
        return json.dumps(_hidden(line, self._hide), ensure_ascii=False, default=str)

    def _told(self, record: logging.LogRecord) -> dict[str, Any]:
        event = getattr(record, "event", None)
        if isinstance(event, dict):
            return {name: value for name, value in event.items() if name != "time"}
        told = {"message": record.getMessage()}
        if record.exc_info:
            told["traceback"] = self.formatException(record.exc_info)
        return told


def _hidden(value: Any, hide: Hide) -> Any:
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, dict):
        return {name: _hidden(each, hide) for name, each in value.items()}
    return [_hidden(each, hide) for each in value] if isinstance(value, list | tuple) else value
