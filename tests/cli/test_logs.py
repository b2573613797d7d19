"""`--log-file`, `--log-level`, `--log-format`: what is logged where; afterwards logging is as it was."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
import pytest
from click.testing import CliRunner, Result

from rollview.cli import main
from rollview.cli.event_lines import Activity, sentence
from rollview.cli.logs import SPARK_LOGGERS, log_options, logging_as_asked
from rollview.cli.terminal import Working
from rollview.events import (
    Applied,
    Captured,
    Event,
    GivenUp,
    Propagated,
    Retry,
    SourceNoted,
    SparkStarted,
    SparkStarting,
    Started,
    StepBegun,
    StepFinished,
    Waiting,
)
from rollview.runtime.event_log import log_event
from rollview.secrets import Secrets

QUERY = logging.getLogger("a query logger")


@click.command()
@click.pass_context
@log_options
@click.option("--debug", is_flag=True)
@click.option("--secret", default="")
def _command(context: click.Context, debug: bool, secret: str) -> None:
    """Says one thing by each logger."""
    context.meta["rollview.debug"] = debug
    with logging_as_asked(context) as silence:
        silence([QUERY])
        if secret:
            _say_a_secret(context, secret)
            return
        for level in (logging.DEBUG, logging.INFO, logging.WARNING):
            logging.getLogger("rollview.run").log(level, "from rollview")
        logging.getLogger("py4j.clientserver").error("from py4j")
        logging.getLogger("py4j.clientserver").info("much from py4j")
        logging.getLogger("another.library").error("from another library")
        QUERY.error("from a query")


def _say_a_secret(context: click.Context, secret: str) -> None:
    """In a message, in a traceback, and in an event that nobody has cleaned."""
    context.meta["rollview.hide"] = Secrets([secret]).hide
    context.meta["rollview.hide_foreign"] = Secrets([secret]).hide_foreign
    log = logging.getLogger("rollview.run")
    log.info("the password is %s", secret)
    try:
        raise ValueError(f"wrong password: {secret}")
    except ValueError:
        log.exception("it failed")
    log_event(Retry("run", 2, 1.0, f"no: {secret}", "SourceUnavailable", subject=secret, time=1.5))


def _run(*options: Any, code: int = 0) -> Result:
    before = _settings()
    result = CliRunner().invoke(_command, [str(option) for option in options], standalone_mode=False)
    assert (result.exception is None) == (code == 0), result.exception
    assert _settings() == before
    return result


def _settings() -> list[Any]:
    names = ("rollview", *SPARK_LOGGERS, QUERY.name)
    return [
        logging.root.manager.disable,
        *((each.level, list(each.handlers), each.propagate) for each in map(logging.getLogger, names)),
    ]


def test_by_default_only_other_libraries_are_heard(caplog: pytest.LogCaptureFixture) -> None:
    assert _run().output == ""
    assert [record.getMessage() for record in caplog.records if record.name == "another.library"] == [
        "from another library"
    ]
    assert not [
        record for record in caplog.records if record.name.startswith("py4j") or record.name == QUERY.name
    ]


def test_a_library_that_sets_up_logging_puts_nothing_on_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one does by `logging.warning(…)` in the midst of a command: then the root has a handler."""
    monkeypatch.setattr(logging.root, "handlers", [])
    logging.basicConfig(force=True)
    _run()
    assert "from rollview" not in capsys.readouterr().err
    _run("--debug")
    assert "from rollview" in capsys.readouterr().err


def test_a_log_file_is_appended_to(tmp_path: Path) -> None:
    file = tmp_path / "rollview.log"
    for _ in range(2):
        assert _run("--log-file", file).output == ""
    lines = file.read_text(encoding="utf-8").splitlines()
    time = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
    wanted = [
        "INFO rollview.run: from rollview",
        "WARNING rollview.run: from rollview",
        "ERROR py4j.clientserver: from py4j",
    ] * 2
    assert len(lines) == len(wanted)
    assert all(
        re.fullmatch(f"{time} {re.escape(end)}", line) for line, end in zip(lines, wanted, strict=True)
    )


def test_lines_of_json(tmp_path: Path) -> None:
    file = tmp_path / "rollview.log"
    _run("--log-file", file, "--log-format", "json")
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("time")) for line in lines)
    assert lines == [
        {"level": "info", "logger": "rollview.run", "message": "from rollview"},
        {"level": "warning", "logger": "rollview.run", "message": "from rollview"},
        {"level": "error", "logger": "py4j.clientserver", "message": "from py4j"},
    ]
    assert json.loads(_run("--log-format", "JSON").stderr.splitlines()[0])["message"] == "from rollview"
    assert _run("--log-format", "yaml", code=2).exception is not None


@pytest.mark.parametrize("secret", ["hunter2", 'with "quotes" and \\ in it', "ünïcode\tand tabs"])
@pytest.mark.parametrize("lines", ["human", "json"])
def test_no_line_has_a_secret(secret: str, lines: str) -> None:
    text = _run("--log-format", lines, "--secret", secret).stderr
    assert text.count("***") == 4
    for written in (secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]):
        assert written not in text
    if lines == "json":
        message, failed, retry = map(json.loads, text.splitlines())
        assert message["message"] == "the password is ***"
        assert failed["traceback"].endswith("ValueError: wrong password: ***")
        known = {
            "event": "retry",
            "what": "run",
            "attempt": 2,
            "pause_seconds": 1.0,
            "kind": "SourceUnavailable",
        }
        assert retry["level"] == "warning"
        assert {name: retry[name] for name in known} == known
        assert (retry["message"], retry["subject"]) == ("no: ***", "***")


@pytest.mark.parametrize(("level", "lines"), [("debug", 3), ("info", 2), ("WARNING", 1), ("error", 0)])
def test_levels(level: str, lines: int, tmp_path: Path) -> None:
    file = tmp_path / "rollview.log"
    _run("--log-file", file, "--log-level", level)
    assert file.read_text(encoding="utf-8").count("from rollview") == lines
    assert _run("--log-level", level).stderr.count("from rollview") == lines


def test_debug_leaves_the_loggers_of_spark_alone(caplog: pytest.LogCaptureFixture) -> None:
    _run("--debug")
    assert {"from py4j", "from a query"} <= {record.getMessage() for record in caplog.records}


def test_a_log_that_cannot_be_written(tmp_path: Path) -> None:
    result = _run("--log-file", tmp_path / "no" / "such.log", code=2)
    assert "cannot write the log to" in str(result.exception)
    assert _run("--log-level", "loud", code=2).exception is not None


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (Captured(1, 5), "captured 1 transaction, csn 5"),
        (Captured(1200, 1205), "captured 1,200 transactions, csn 1205"),
        (
            Retry("run", 3, 5, "crm is away\nmore", "SourceUnavailable"),
            "error, retrying in 5 s (attempt 3): crm is away",
        ),
        (
            Retry("run", 1, 0.5, "'k'", "KeyError", trace="Traceback …"),
            "error, retrying in 0.5 s (attempt 1): KeyError: 'k'",
        ),
        (
            Retry("run", 2, 1, "An error\n: x.Outer\n\tat y\nCaused by: x.Inner: gone", "Py4JJavaError"),
            "error, retrying in 1 s (attempt 2): x.Inner: gone",
        ),
        (
            Waiting("t-1", ("crm",), ("shop",)),
            "waiting for shop: global transaction t-1 holds up crm; `rollview release t-1` ends the wait",
        ),
        (
            GivenUp("t-1", ("crm",), ("shop",), 300.0),
            "gave up waiting for shop after 5 min: the changes of crm in global transaction t-1 are a"
            " transaction of their own",
        ),
        (SourceNoted("crm", "source crm: such and such"), "source crm: such and such"),
        (Propagated("v", 1, 2), "propagated v to csn 2"),
        (Propagated("v$0a7430b646", 1, 2), ""),
        (Applied(("v$0a7430b646", "v", "w"), 2), "applied v, w to csn 2"),
        (Applied(("v$0a7430b646",), 2), ""),
        (Started(("v",)), ""),
        (StepBegun("apply", "v", 1), ""),
    ],
)
def test_sentences(event: Event, line: str) -> None:
    assert sentence(event) == line


def test_the_spinner_says_what_is_being_done() -> None:
    activities: list[str] = []

    class _Activities(Working):
        def __call__(self, what: str) -> None:
            activities.append(what)

    activity = Activity(_Activities(), "waiting")
    for event in (
        StepBegun("setup", "crm"),
        StepFinished("setup", "crm", 0, 0.1),
        StepBegun("propagate", "v", 1),
        SparkStarting(),
        SparkStarted(1.0),
        Captured(1, 1),
        Retry("run", 1, 0.5, "away", "SourceUnavailable"),
    ):
        activity(event)
    assert activities == ["set up crm", "waiting", "propagate v", "starting Spark", "propagate v", "waiting"]


@pytest.mark.parametrize(
    "password", ["change me", "a", "reached", "source", "3", "p@ss/w:rd", 'it\'s "%40"', "plan"]
)
@pytest.mark.parametrize("options", [(), ("--json",), ("--debug",), ("--log-level", "debug")], ids=" ".join)
def test_a_password_tears_no_sentence_and_is_in_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, password: str, options: tuple[str, ...]
) -> None:
    """A server that is away: what the driver says is shown, and what we say of it stays whole."""
    (tmp_path / "views").mkdir()
    (tmp_path / "views" / "v.sql").write_text("CREATE MATERIALIZED VIEW v AS SELECT id FROM crm.t")
    monkeypatch.setenv("CRM_PASSWORD", password)
    monkeypatch.setenv("JAVA_HOME", "/no/such/java")
    entry = "{type: postgres, dsn: 'postgresql://u:${CRM_PASSWORD}@127.0.0.1:1/d', timeout: 2}"
    (tmp_path / "rollview.yml").write_text(f"name: x\nsources:\n  crm: {entry}\n")
    done = CliRunner().invoke(main, ["setup", *options, "--project", str(tmp_path)])
    assert done.exit_code == 1
    assert "source crm cannot be reached: " in done.output
    for written in (f":{quote(password, safe='')}@", f"'{password}'", f'"{password}"', f"={password} "):
        assert written not in done.output, written
    if len(password) > 6 and password != "reached":
        assert password not in done.output
