"""A fresh catalog for every test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rollview.catalog import Catalog


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Where the test's catalog is."""
    return f"sqlite:///{tmp_path}/catalog.db"


@pytest.fixture
def catalog(url: str) -> Iterator[Catalog]:
    """An empty catalog."""
    opened = Catalog.open(url)
    yield opened
    opened.close()
