"""Commands as a user types them, in this process; one Spark session for those that need one."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner
from command_runs import Command

from rollview.cli import main


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever starts Spark fails: bad input must be found without it."""
    monkeypatch.setenv("JAVA_HOME", "/no/such/java")


@pytest.fixture(scope="session")
def spark() -> Any:
    """The session that commands are given in the context's `obj`."""
    from servers.spark import shared_session

    return shared_session({"spark.sql.shuffle.partitions": "1"})


@pytest.fixture
def rollview() -> Command:
    """Runs a command without a Spark session to use."""
    return lambda *arguments: CliRunner().invoke(main, [str(each) for each in arguments])
