"""Benchmarks are run seldom, so what they call is compared with what there is, without running them."""

from __future__ import annotations

from pathlib import Path

import pytest
from mypy import api

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


def test_functions_are_called_with_the_arguments_that_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("MYPYPATH", "src:benchmarks:tests:tests/service")
    files = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "benchmarks").glob("*.py"))]
    printed, failed, _ = api.run(
        ["--explicit-package-bases", "--cache-dir", ".mypy_cache/benchmarks", *files]
    )
    assert not failed and "benchmarks/" in printed
    assert [line for line in printed.splitlines() if line.endswith("[call-arg]")] == []
