"""A password in an address, and errors that repeat it: no line of any log has it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from click.testing import CliRunner
from watched_project import add_views, catalog_of, view_text, write_project

from rollview.cli import main
from rollview.errors import SourceMissing, SourceUnavailable
from rollview.maintain.retry import Stop
from rollview.project.project import Project
from rollview.sources.postgres import PostgresSource

PASSWORD = 'hunter2 "of" the\\shop'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project whose crm is a PostgreSQL where nobody listens, which repeats the whole address in errors."""
    monkeypatch.setenv("CRM_PASSWORD", PASSWORD)
    made = write_project(tmp_path / "watched")
    text = (made / "rollview.yml").read_text()
    dsn = "postgresql://u:${CRM_PASSWORD}@127.0.0.1:1/crm"
    old = "crm: {type: sqlite, path: ./crm.db}"
    assert old in text
    (made / "rollview.yml").write_text(
        text.replace(old, f'crm: {{type: postgres, dsn: "{dsn}", timeout: 2}}')
    )

    def capture(source: PostgresSource, *_: object) -> None:
        raise SourceUnavailable(f"no answer to {PASSWORD}", subject="crm") from OSError(
            source._address.conninfo
        )

    monkeypatch.setattr(PostgresSource, "capture", capture)
    with Project.open(made) as project:
        add_views(catalog_of(project), {"sold": view_text("sold")})
        catalog_of(project).set_home(str(made / "rollview.yml"))
    yield made


@pytest.mark.parametrize("lines", ["human", "json"])
def test_no_password_in_a_log(folder: Path, lines: str, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []

    def wait(stop: Stop, seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 2:
            stop.now()

    monkeypatch.setattr(Stop, "wait", wait)
    log = folder / "rollview.log"
    options = ["--log-file", str(log), "--log-format", lines, "--log-level", "debug"]
    result = CliRunner().invoke(main, ["capture", "--follow", "--project", str(folder), *options])
    text = log.read_text("utf-8")
    assert waited, result.output
    assert "Traceback (most recent call last)" in text, "the traceback is there at debug"
    for each in (PASSWORD, json.dumps(PASSWORD)[1:-1], "hunter2"):
        assert each not in text + result.output
    assert "no answer to ***" in text
    if lines == "json":
        reported = [json.loads(line) for line in text.splitlines()]
        (first, *_) = [each for each in reported if each.get("event") == "retry"]
        assert (first["level"], first["attempt"], first["kind"]) == ("warning", 1, "SourceUnavailable")


@pytest.mark.parametrize("password", [PASSWORD, "change me"])
def test_no_password_in_a_file_of_the_lake(
    folder: Path, password: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Faults are written to the catalog, with what the source said; they are there, without the password."""
    monkeypatch.setenv("CRM_PASSWORD", password)

    def capture(source: PostgresSource, *_: object) -> None:
        raise SourceMissing(
            f'no "{source._address.conninfo}"', subject="crm", hint=f"{quote(password)} is wrong"
        )

    monkeypatch.setattr(PostgresSource, "capture", capture)
    result = CliRunner().invoke(main, ["run", "--once", "--project", str(folder)])
    assert result.exit_code != 0
    with Project.open(folder) as project:
        assert "***" in json.dumps(catalog_of(project).faults.of("site")["crm"].message)
    kept = [each.read_bytes() for each in (folder / "lake").rglob("*") if each.is_file()]
    assert kept
    for written in (password, quote(password), json.dumps(password)[1:-1], f"password='{password}"):
        assert not [each for each in kept if written.encode() in each], written
