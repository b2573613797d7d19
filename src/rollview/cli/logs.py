"""`--log-file`, `--log-level` and `--log-format`: where the log of a command goes, and what it looks like.

Without any of them nothing is logged: results, lines of `run` and errors say what matters. The loggers of
Spark's Python side are silenced while a command runs, because they repeat on stderr what an exception says.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from rollview.cli.terminal import own_stream
from rollview.errors import OptionError

# What a line of the log looks like, for people or as JSON; neither shows a secret.

Hide = Callable[[str], str]
"""Takes secrets out of a text."""


class HumanLines(logging.Formatter):
    """Time, level, logger, message; a traceback below. Times are ISO, UTC, milliseconds."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def __init__(self, hide: Hide, hide_foreign: Hide) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self._hide, self._hide_foreign = hide, hide_foreign

    def format(self, record: logging.LogRecord) -> str:
        """The whole text, without secrets."""
        return _fitting(record, self._hide, self._hide_foreign)(super().format(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the name is that of logging
        """A traceback, which may quote foreign texts."""
        return self._hide_foreign(super().formatException(ei))


class JsonLines(logging.Formatter):
    """One object per line: time, level and logger, then the fields of an event, or a message."""

    def __init__(self, hide: Hide, hide_foreign: Hide) -> None:
        super().__init__()
        self._hide, self._hide_foreign = hide, hide_foreign

    def format(self, record: logging.LogRecord) -> str:
        """The object on one line, without secrets."""
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {
            "time": when.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            **self._fields(record),
        }
        # Before it is JSON: quoting would tear a secret apart.
        hide = _fitting(record, self._hide, self._hide_foreign)
        return json.dumps(_hidden(line, hide), ensure_ascii=False, default=str)

    def _fields(self, record: logging.LogRecord) -> dict[str, Any]:
        event = getattr(record, "event", None)
        if isinstance(event, dict):
            return {name: value for name, value in event.items() if name != "time"}
        fields = {"message": record.getMessage()}
        if record.exc_info:
            fields["traceback"] = self._hide_foreign(self.formatException(record.exc_info))
        return fields


def _fitting(record: logging.LogRecord, hide: Hide, hide_foreign: Hide) -> Hide:
    """The hiding function for a record: messages of libraries are foreign texts."""
    return hide if record.name.partition(".")[0] == "rollview" else hide_foreign


def _hidden(value: Any, hide: Hide) -> Any:
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, dict):
        return {name: _hidden(each, hide) for name, each in value.items()}
    return [_hidden(each, hide) for each in value] if isinstance(value, list | tuple) else value


F = TypeVar("F", bound=Callable[..., Any])
LEVELS = ("debug", "info", "warning", "error")
SPARK_LOGGERS = ("py4j", "pyspark")
SILENT = logging.CRITICAL + 1
FORMATS = {"human": HumanLines, "json": JsonLines}
_FILE, _LEVEL, _FORMAT = "rollview.log_file", "rollview.log_level", "rollview.log_format"


def log_options(function: F) -> F:
    """Adds `--log-file FILE`, `--log-level LEVEL` and `--log-format FORMAT`."""
    file = click.option(
        "--log-file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        expose_value=False,
        callback=_remember(_FILE),
        help="Append a log to this file.",
    )
    level = click.option(
        "--log-level",
        type=click.Choice(LEVELS, case_sensitive=False),
        expose_value=False,
        callback=_remember(_LEVEL),
        help="How much to log; without --log-file, to stderr.  [default: info]",
    )
    lines = click.option(
        "--log-format",
        type=click.Choice(tuple(FORMATS), case_sensitive=False),
        expose_value=False,
        callback=_remember(_FORMAT),
        help="Lines for people, or JSON; without --log-file, to stderr.  [default: human]",
    )
    return file(level(lines(function)))


def _remember(key: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def callback(context: click.Context, _: click.Parameter, value: Any) -> None:
        context.find_root().meta[key] = value

    return callback


Silence = Callable[[Iterable[logging.Logger]], None]
"""Silences loggers that repeat exceptions, unless `--debug` asks for everything."""


def logs_somewhere(context: click.Context) -> bool:
    """Whether a log was asked for."""
    return any(context.find_root().meta.get(name) is not None for name in (_FILE, _LEVEL, _FORMAT))


def logs_to_stderr(context: click.Context) -> bool:
    """Whether a log was asked for, and no file named for it."""
    meta = context.find_root().meta
    return meta.get(_FILE) is None and (meta.get(_LEVEL) is not None or meta.get(_FORMAT) is not None)


@contextmanager
def logging_as_asked(context: click.Context) -> Iterator[Silence]:
    """Logs as the options of the command say; restores logging afterwards.

    Yields a function that silences the loggers that PySpark makes when it is loaded.
    """
    meta = context.find_root().meta
    file, level, debug = meta.get(_FILE), meta.get(_LEVEL), bool(meta.get("rollview.debug"))
    with ExitStack() as stack:
        handler: logging.Handler = logging.NullHandler()
        own = logging.getLogger("rollview")
        stack.enter_context(_kept(own))
        if file is not None or logs_to_stderr(context):
            handler = stack.enter_context(_handler(file))
            handler.setFormatter(
                FORMATS[meta.get(_FORMAT) or "human"](_hiding(meta, "hide"), _hiding(meta, "hide_foreign"))
            )
            own.setLevel((level or "info").upper())
        elif not debug:
            # A library may set up Python's logging in the midst of a command: all would be on the terminal.
            own.propagate = False
        own.addHandler(handler)
        if not debug:
            for logger in map(logging.getLogger, SPARK_LOGGERS):
                stack.enter_context(_kept(logger))
                logger.addHandler(handler)
                logger.setLevel(logging.WARNING)
                logger.propagate = False

        def silence(query_loggers: Iterable[logging.Logger]) -> None:
            for logger in () if debug else query_loggers:
                stack.enter_context(_kept(logger))
                logger.setLevel(SILENT)

        yield silence


def _hiding(meta: Mapping[str, Any], how: str) -> Callable[[str], str]:
    """Takes out the secrets of the project, which is opened only later."""

    def hide(text: str) -> str:
        known: Callable[[str], str] | None = meta.get(f"rollview.{how}")
        return text if known is None else known(text)

    return hide


@contextmanager
def _handler(file: Path | None) -> Iterator[logging.Handler]:
    with ExitStack() as stack:
        if file is None:
            handler: logging.Handler = logging.StreamHandler(stack.enter_context(own_stream(sys.stderr)))
        else:
            try:
                handler = logging.FileHandler(file, encoding="utf-8")
            except OSError as error:
                message = f"cannot write the log to {file}: {error.strerror}"
                raise OptionError(message, subject=str(file)) from error
        stack.callback(handler.close)
        yield handler


@contextmanager
def _kept(logger: logging.Logger) -> Iterator[None]:
    """Puts a logger's level, handlers and propagation back as they were."""
    level, handlers, propagate = logger.level, list(logger.handlers), logger.propagate
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.handlers[:] = handlers
        logger.propagate = propagate
