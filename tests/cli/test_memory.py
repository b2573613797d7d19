"""Memory of long commands: Arrow must use an allocator that gives back what nobody uses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ALLOCATOR = """
import sys
from click.testing import CliRunner
from rollview.cli import main
assert CliRunner().invoke(main, sys.argv[1:]).exit_code == 2
import pyarrow
print(pyarrow.default_memory_pool().backend_name)
"""


@pytest.mark.parametrize("command", ["run", "ui", "capture", "deltas shown"])
def test_arrow_uses_the_allocator_of_the_system(tmp_path: Path, command: str) -> None:
    words = [*command.split(), "--project", str(tmp_path)]
    script = [sys.executable, "-c", ALLOCATOR, *words]
    done = subprocess.run(script, check=False, capture_output=True, text=True)
    assert done.stdout.split() == ["system"], done.stderr
