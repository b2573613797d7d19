"""A fresh catalog for every test, on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from catalog_world import Template, postgres_database

from rollview.catalog import Catalog

ON_BOTH = ["sqlite", pytest.param("postgres", marks=pytest.mark.slow)]


@pytest.fixture(params=ON_BOTH)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Where the test's catalog is: on SQLite, and on a PostgreSQL that sorts text as people do."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/catalog.db"
    else:
        with postgres_database() as address:
            yield address


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """Where the catalog of a test is that is about SQLite's file, or not about the database at all."""
    return f"sqlite:///{tmp_path}/catalog.db"


@pytest.fixture
def catalog(url: str) -> Iterator[Catalog]:
    """An empty catalog."""
    opened = Catalog.open(url)
    yield opened
    opened.close()


@pytest.fixture(scope="module", params=ON_BOTH)
def template(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Template]:
    """A catalog to copy for each of many examples."""
    if request.param == "sqlite":
        yield Template(f"sqlite:///{tmp_path_factory.mktemp('template')}/template.db")
    else:
        with postgres_database() as address:
            yield Template(address)
