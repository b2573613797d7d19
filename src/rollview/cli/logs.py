"""`--log-file`, `--log-level` and `--log-format`: where the log of a command goes, and what it looks like.

Without any of them nothing is logged; what matters arrives as a result, a line of `run` or an error. Only
the loggers of Spark's Python side are turned down, and only while a command runs: they say on stderr what an
exception says anyway.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from rollview.cli.log_lines import HumanLines, JsonLines
from rollview.cli.terminal import own_stream
from rollview.errors import OptionError

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
    """Logs as the options of the command say; afterwards logging is as it was.

    Loggers that PySpark makes when it is loaded are silenced then, by what this gives.
    """
    meta = context.find_root().meta
    file, level, debug = meta.get(_FILE), meta.get(_LEVEL), bool(meta.get("rollview.debug"))
    with ExitStack() as stack:
        handler: logging.Handler = logging.NullHandler()
        if file is not None or logs_to_stderr(context):
            handler = stack.enter_context(_handler(file))
            handler.setFormatter(FORMATS[meta.get(_FORMAT) or "human"](_hiding(meta)))
            own = logging.getLogger("rollview")
            stack.enter_context(_kept(own))
            own.addHandler(handler)
            own.setLevel((level or "info").upper())
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


def _hiding(meta: Mapping[str, Any]) -> Callable[[str], str]:
    """Takes out the secrets of the project, which is opened only later."""

    def hide(text: str) -> str:
        known: Callable[[str], str] | None = meta.get("rollview.hide")
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
