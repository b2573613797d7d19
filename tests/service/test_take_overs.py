"""A standby on another host takes over: nothing is lost or doubled, and who was overtaken stands by."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from two_hosts import NAMESPACE, Bank, kill, pause, take_over, two_hosts

from rollview.catalog import Catalog
from rollview.project.project import Project
from servers.postgres import shared_server

_OWN_PROCESSES = subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(not _OWN_PROCESSES, reason="a host is a namespace of processes: root, or user namespaces")
def test_a_standby_takes_over_from_one_that_is_killed_and_one_that_is_paused(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = shared_server()
    bank = Bank(tmp_path / "bank", server, "take_overs")
    monkeypatch.setenv("CATALOG", bank.catalog_url)
    with Project.open(bank.folder, spark) as project:
        project.setup()
    catalog = Catalog.open(bank.catalog_url)
    with two_hosts(bank, server) as (one, other), bank.busy(2):
        seconds = [take_over(one, other, pause, catalog), take_over(other, one, kill, catalog, is_last=True)]
    catalog.close()
    with Project.open(bank.folder, spark) as project:
        bank.judge(project)
    # Fifteen seconds, as the drill says; a machine that runs other tests needs longer.
    assert max(seconds) < 60, seconds
