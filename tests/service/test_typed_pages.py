"""Pages with commands that need no server: every `sh` block is typed into one shell."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pages.shell import typed

pytestmark = [pytest.mark.slow, pytest.mark.campaign]


def test_sqlite(tmp_path: Path, spark: SparkSession) -> None:
    printed = typed("how-to/sqlite.md", tmp_path, spark)
    assert re.search(r"CA\s+1\s+19.90", printed) and re.search(r"NV\s+3\s+300.25", printed), printed
    assert "[('customer',), ('sales',)]" in printed.rsplit("\n", 2)[-2]


def test_delta_tables(tmp_path: Path, spark: SparkSession) -> None:
    printed = typed("how-to/delta.md", tmp_path, spark)
    assert re.search(r"ink\s+10\b", printed) and re.search(r"pen\s+7\b", printed), printed


def test_files(tmp_path: Path, spark: SparkSession) -> None:
    printed = typed("how-to/files.md", tmp_path, spark)
    assert re.search(r"CA\s+2\b", printed) and re.search(r"WA\s+1\b", printed), printed


def test_why(tmp_path: Path, spark: SparkSession) -> None:
    printed = typed("how-to/why.md", tmp_path, spark)
    assert re.search(r"\n2 .* crm +\d+ +→ +NV +1 → 3 +250.00 →", printed), printed
    assert printed.count("recomputed from these rows, the view shows the same") == 2
    assert '"where": "state = \'CA\' AND total > 5"' in printed and '"adds_up": true' in printed


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
