"""What was read of a catalog may be used again until somebody commits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from rollview.catalog import Catalog

_ELSEWHERE = """
import sys
from rollview.catalog import Catalog
catalog = Catalog.open(sys.argv[1])
catalog.set_home("elsewhere")
catalog.close()
"""


def test_the_number_changes_with_every_commit_and_with_nothing_else(sqlite_url: str) -> None:
    """Those of this catalog, of another one in this process, and of another process."""
    catalog, beside = Catalog.open(sqlite_url), Catalog.open(sqlite_url)
    known = {catalog.commits()}
    assert None not in known

    def is_new() -> bool:
        number = catalog.commits()
        assert number == catalog.commits()
        found = number not in known
        known.add(number)
        return found

    assert catalog.home() == ""
    assert not is_new()
    catalog.set_home("here")
    assert is_new()
    beside.set_home("beside")
    assert is_new()
    subprocess.run([sys.executable, "-c", _ELSEWHERE, sqlite_url], check=True)
    assert is_new()
    assert catalog.home() == "elsewhere"
    assert not is_new()
    catalog.close()
    beside.close()


def test_a_catalog_that_cannot_be_read_has_no_number(sqlite_url: str) -> None:
    """Nothing is made in its place; a query says what is wrong."""
    catalog = Catalog.open(sqlite_url)
    catalog.close()
    path = Path(sqlite_url.removeprefix("sqlite:///"))
    path.rename(path.with_suffix(".away"))
    assert catalog.commits() is None
    assert not path.exists()
    catalog.close()
