"""The tests of Delta tables run on a folder and on the same folder as a bucket."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from delta_tables import Opened, in_bucket

from rollview.sources.delta import DeltaSource


@pytest.fixture(params=["folder", "bucket"])
def place(request: pytest.FixtureRequest) -> str:
    """Where the tables are."""
    return str(request.param)


@pytest.fixture
def opened(place: str, tmp_path_factory: pytest.TempPathFactory) -> Opened:
    """Opens source `d`, as a new process would; options may be given."""
    copies = tmp_path_factory.mktemp("copies")

    def made(folder: Path, options: Mapping[str, Any] | None = None) -> DeltaSource:
        return DeltaSource("d", in_bucket(folder, copies) if place == "bucket" else folder, options)

    return made
