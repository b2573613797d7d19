"""A database of its own for every test, on one server."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest
from mariadb_database import Database

from servers.mariadb import shared_server

_numbers = itertools.count(1)


@pytest.fixture
def database() -> Iterator[Database]:
    """An empty database with a source beside it."""
    made = Database(shared_server(), f"test_{os.getpid()}_{next(_numbers)}")
    try:
        yield made
    finally:
        made.close()
