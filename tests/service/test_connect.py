"""The main path through Spark Connect, in a process of its own: none can have both kinds of session."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def test_the_main_path_runs_through_a_connect_session(tmp_path: Path) -> None:
    script = Path(__file__).with_name("main_path.py")
    environment = os.environ | {"PYTHONWARNINGS": "ignore"}
    result = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "shop"), "local[2]"],
        capture_output=True,
        text=True,
        timeout=400,
        env=environment,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    record = json.loads(result.stdout.strip().splitlines()[-1])
    assert record["session"].startswith("pyspark.sql.connect"), record
    assert record["right"], record
    assert record["verified"], record
    assert record["last"] >= 5
