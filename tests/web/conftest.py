"""Projects without Spark for the pages, and one browser for all tests of this folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import which
from typing import Any

import pytest
from page_requests import Page, served
from paper_project import Size, fill, project_file

from rollview.project.project import Project

sys.path[:0] = [str(Path(__file__).parents[1] / each) for each in ("service", "monitoring")]


@pytest.fixture(scope="session")
def spark() -> Any:
    """The session that a project at work is given."""
    from servers.spark import shared_session

    return shared_session({"spark.sql.shuffle.partitions": "1"})


@pytest.fixture(scope="module")
def paper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A small project that exists in its catalog alone."""
    path = project_file(tmp_path_factory.mktemp("paper"))
    fill(path, Size())
    with Project.open(path) as project:
        yield project


@pytest.fixture(scope="module")
def page(paper: Project) -> Iterator[Page]:
    """Its page."""
    with served(paper) as found:
        yield found


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Debian's chromium, driven by Playwright."""
    from playwright.sync_api import sync_playwright

    program = which("chromium")
    assert program is not None, "scripts/servers installs it"
    with sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield found
        found.close()
