"""What a command loads before it works: the most of the time of a short one."""

from __future__ import annotations

import gc
import subprocess
import sys

import click
import pytest

from rollview.cli import main
from rollview.cli.main import QUICK

HEAVY = ("deltalake", "numpy", "pandas", "pyarrow", "pyspark", "rich", "sqlalchemy", "sqlglot", "yaml")


def _output(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", sorted(QUICK))
def test_help_loads_nothing_heavy(name: str) -> None:
    loaded = _output(
        f"""
import sys
from rollview.cli import main
main([{name!r}, "--help"], standalone_mode=False)
print("loaded", [each for each in {HEAVY} if each in sys.modules])
"""
    )
    assert loaded.splitlines()[-1] == "loaded []"


def test_arrow_does_without_pandas_until_it_is_asked_for_a_frame() -> None:
    """With pandas installed, the first array would load it."""
    said = _output(
        """
import sys
from rollview.imports import keep_pandas_out
keep_pandas_out()
import pyarrow as pa, pyarrow.dataset
table = pa.table({"a": pa.array([1, 2])})
print("pandas" in sys.modules, len(sys.meta_path) == len(set(map(str, sys.meta_path))))
print(table.to_pandas()["a"].sum(), pa.Table.from_pandas(table.to_pandas()).equals(table))
print(not any(type(each).__name__ == "_NoPandas" for each in sys.meta_path))
"""
    )
    assert said.split() == ["False", "True", "3", "True", "True"]


def test_garbage_is_looked_for_seldom_while_a_quick_command_lasts() -> None:
    # Another test of this process may have left a command unfinished.
    found = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    try:
        before = gc.get_threshold()
        with click.Context(main) as context:
            main.resolve_command(context, ["setup"])
            assert gc.get_threshold() == before
            main.resolve_command(context, ["status"])
            assert gc.get_threshold()[0] > 100 * before[0]
        assert gc.get_threshold() == before
    finally:
        gc.set_threshold(*found)
