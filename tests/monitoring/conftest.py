"""A watched project for every test, and one Spark session for those that need one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from watched_project import add_views, catalog_of, view_text, write_project

from rollview.project.project import Project


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Project]:
    """Two views that are set up, one of them by schedule; nothing was captured yet."""
    with Project.open(write_project(tmp_path / "watched")) as project:
        daily = view_text("daily", "'rollview.schedule' = 'every 1d'")
        add_views(catalog_of(project), {"sold": view_text("sold"), "daily": daily})
        yield project


@pytest.fixture(scope="session")
def spark() -> Any:
    """Two threads; the product's own settings otherwise."""
    from servers.spark import shared_session

    return shared_session()
