"""Every test gets a database of its own on the server that all tests of the process share."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest
from postgres_history import Database

from servers.postgres import shared_server

_numbers = itertools.count(1)


@pytest.fixture
def database() -> Iterator[Database]:
    """An empty database with a writer and a source; neither is set up."""
    server = shared_server()
    opened = Database(server, f"test_{os.getpid()}_{next(_numbers)}")
    yield opened
    opened.close()
    server.drop_database(opened.name)
