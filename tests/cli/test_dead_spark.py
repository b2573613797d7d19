"""Spark's own process is killed while `run` works: another one is started, and nothing is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "service"))

from shop import VIEWS, Shop, shown, transact  # noqa: E402

from rollview.project.project import Project  # noqa: E402
from servers.processes import java_of  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.long]

ROLLVIEW = [sys.executable, "-c", "from rollview.cli import main; main()"]


def _until(what: Callable[[], bool], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.2)


def test_run_starts_another_spark(tmp_path: Path, spark: SparkSession) -> None:
    # Computed by Spark, so that there is one to kill.
    spelled = "SELECT regexp_replace(state, '^.', '') AS state, count(*) AS n FROM crm.customer GROUP BY 1"
    shop = Shop(tmp_path / "shop", {**VIEWS, "spelled": spelled})
    transact(shop, 10)
    with Project.open(shop.folder, spark) as project:
        project.setup()
    out = tmp_path / "out"
    with out.open("w") as stream:
        run = subprocess.Popen([*ROLLVIEW, "run", "--json"], cwd=shop.folder, stdout=stream, stderr=stream)
    try:

        def events(name: str) -> list[dict[str, Any]]:
            lines = [json.loads(line) for line in out.read_text().splitlines() if line.startswith("{")]
            return [each for each in lines if each["event"] == name]

        transact(shop, 3)
        _until(lambda: bool(events("applied")) and bool(events("spark_started")))
        os.kill(java_of(run.pid), signal.SIGKILL)
        applied = len(events("applied"))
        transact(shop, 3)
        _until(lambda: len(events("applied")) > applied and len(events("spark_started")) == 2)
        run.send_signal(signal.SIGTERM)
        assert run.wait(60) == 0, out.read_text()[-2000:]
    finally:
        if run.poll() is None:
            run.kill()
            run.wait()
    with Project.open(shop.folder, spark) as project:
        project.run(once=True)
        assert all(verdict.is_right for verdict in project.verify())
        assert {name: shown(project, name) for name in shop.views} == {
            name: shop.expected_now(name) for name in shop.views
        }
    shop.close()
