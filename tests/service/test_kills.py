"""Four real `kill -9` of processes that load, run, refresh, condense and tidy up.

The campaign is a program of its own, which `make soak` runs with many more kills. The seed is in its output.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.campaign, pytest.mark.long]

CAMPAIGN = Path(__file__).parents[2] / "benchmarks" / "kills.py"


def test_oracle_four_kills() -> None:
    seed = random.randrange(1_000_000)
    result = subprocess.run(
        [sys.executable, str(CAMPAIGN), "--kills", "4", "--seed", str(seed)],
        capture_output=True,
        text=True,
        timeout=1800,
        env=os.environ | {"PYTHONWARNINGS": "ignore"},
        check=False,
    )
    printed = result.stdout + result.stderr[-3000:]
    assert result.returncode == 0, printed
    assert "kill   4 of 4" in printed, printed
