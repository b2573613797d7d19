"""Real servers under load: eight writers on both while `rollview run` works, then a judgement.

The campaign is a program of its own (`benchmarks/stress.py`); the seed is in its output. Its budget here is
fixed: half a minute of writing, with the disturbances in it, and 12 states of every view. `make
soak` runs it for minutes, undisturbed, too.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.campaign]

CAMPAIGN = Path(__file__).parents[2] / "benchmarks" / "stress.py"


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(["--kills", "2", "--restarts", "1"], id="kills", marks=pytest.mark.soak),
        pytest.param(["--bank", "--kills", "1"], id="bank", marks=pytest.mark.soak),
    ],
)
def test_oracle_views_over_servers_under_load(options: list[str]) -> None:
    seed = str(random.randrange(1_000_000))
    budget = ["--seconds", "30", "--states", "12"]
    result = subprocess.run(
        [sys.executable, str(CAMPAIGN), *budget, "--seed", seed, *options],
        capture_output=True,
        text=True,
        timeout=1200,
        env=os.environ | {"PYTHONWARNINGS": "ignore"},
        check=False,
    )
    printed = result.stdout + result.stderr[-3000:]
    assert result.returncode == 0, printed
    assert "12 states compared" in printed, printed
