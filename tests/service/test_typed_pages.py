"""Pages with commands that need no server: every `sh` block is typed into one shell."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pages.shell import typed

pytestmark = [pytest.mark.slow, pytest.mark.campaign]


def test_sqlite(tmp_path: Path, spark: SparkSession) -> None:
    told = typed("how-to/sqlite.md", tmp_path, spark)
    assert re.search(r"CA\s+1\s+19.90", told) and re.search(r"NV\s+3\s+300.25", told), told
    assert "[('customer',), ('sales',)]" in told.rsplit("\n", 2)[-2]


def test_delta_tables(tmp_path: Path, spark: SparkSession) -> None:
    told = typed("how-to/delta.md", tmp_path, spark)
    assert re.search(r"ink\s+10\b", told) and re.search(r"pen\s+7\b", told), told


def test_files(tmp_path: Path, spark: SparkSession) -> None:
    told = typed("how-to/files.md", tmp_path, spark)
    assert re.search(r"CA\s+2\b", told) and re.search(r"WA\s+1\b", told), told


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("operate/deploy.md", "running"),
        ("operate/monitor.md", "sales_by_state running 0 s behind"),
        ("operate/backup.md", "was set up as"),
    ],
)
def test_operating(page: str, words: str, tmp_path: Path, spark: SparkSession) -> None:
    assert words in typed(page, tmp_path, spark)
