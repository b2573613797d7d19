"""Commands as a user types them, in this process; one Spark session for each module that needs one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from command_runs import Command

from rollview.cli import main


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever starts Spark fails: bad input must be found without it."""
    monkeypatch.setenv("JAVA_HOME", "/no/such/java")


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """The session that commands are given in the context's `obj`."""
    from rollview.spark.session import open_session

    session = open_session("tests", {"master": "local[2]", "spark.sql.shuffle.partitions": "1"})
    yield session
    session.stop()


@pytest.fixture
def rollview() -> Command:
    """Runs a command without a Spark session to use."""
    return lambda *arguments: CliRunner().invoke(main, [str(each) for each in arguments])
