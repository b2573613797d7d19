"""How failures reach the user: what, why, the way out, the exit code; a traceback only with `--debug`."""

from __future__ import annotations

import errno
import json
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

import click

from rollview.errors import InputError, RollviewError, SeveralMistakes

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130
_LONGEST_LINE = 400


def fail(error: BaseException, context: click.Context) -> None:
    """Reports an error and exits; returns if click handles it itself."""
    if isinstance(error, click.exceptions.Exit | click.Abort | click.ClickException):
        return
    if isinstance(error, OSError) and error.errno == errno.EPIPE:
        return
    if isinstance(error, KeyboardInterrupt):
        raise SystemExit(INTERRUPTED) from error
    meta = context.find_root().meta
    hide, hide_foreign = meta.get("rollview.hide", str), meta.get("rollview.hide_foreign", str)
    if meta.get("rollview.debug"):
        click.echo(hide_foreign("".join(traceback.format_exception(error))), err=True)
        if details := getattr(error, "details", ""):
            click.echo(hide(details), err=True)
    as_json = bool(meta.get("rollview.json"))
    if isinstance(error, RollviewError):
        code = BAD_INPUT if isinstance(error, InputError) else FAILED
        _end(_as_record(error, hide), hide(error.message), code, as_json, error)
    hint = "" if meta.get("rollview.debug") else "--debug shows the full traceback"
    line = hide_foreign(plain_line(error))
    _end({"error": line, "subject": type(error).__name__, "hint": hint}, line, FAILED, as_json, error)


def _as_record(error: RollviewError, hide: Callable[[str], str]) -> dict[str, Any]:
    """An error as data; several mistakes at once come each with its file and line."""
    record: dict[str, Any] = {
        "error": hide(error.message),
        "subject": error.subject,
        "hint": hide(error.hint),
    }
    if isinstance(error, SeveralMistakes):
        record["error"] = record["error"].partition("\n")[0].rstrip(":")
        record["mistakes"] = [
            {"file": getattr(each, "file", ""), "line": getattr(each, "line", 0), **_as_record(each, hide)}
            for each in error.mistakes
        ]
    return record


def _end(record: dict[str, Any], message: str, code: int, as_json: bool, error: BaseException) -> NoReturn:
    if as_json:
        click.echo(json.dumps(record, ensure_ascii=False), err=True)
    else:
        click.secho("error: ", fg="red", bold=True, nl=False, err=True)
        click.echo(message, err=True)
        if record["hint"]:
            click.secho(f"  hint: {record['hint']}", fg="cyan", err=True)
    raise SystemExit(code) from error


def plain_line(error: BaseException) -> str:
    """The one line of an unexpected error that says most: of a Java trace the innermost cause."""
    return plain_text(str(error), type(error).__name__)


def plain_text(message: str, kind: str) -> str:
    """The one line of a message that says most, after the kind of the error unless the line names its own."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    named = [line.removeprefix(": ") for line in lines if line.startswith(": ")]
    line = (causes[-1:] or named[:1] or lines[:1] or [""])[0]
    if not line or not (causes or named):
        line = f"{kind}: {line}".strip(": ")
    return line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE - 1]}…"
