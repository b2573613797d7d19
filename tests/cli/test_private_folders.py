"""`rollview init` where other users cannot go, and where they can, for root and for an ordinary user.

With the environment that the tests run in. `make test-fresh` does the same with a fresh clone of its own.
"""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollview.sources.postgres import EmbeddedPostgres
from servers.ordinary_user import SITE_PACKAGES, SOURCES, USER, give, interpreter, needs_root, run_as

pytestmark = pytest.mark.slow
MAIN = "from rollview.cli import main; main()"
SELF = pwd.getpwuid(os.getuid()).pw_name
ROWS = """
import sys
import psycopg
from rollview.sources.postgres import EmbeddedPostgres
with psycopg.connect(EmbeddedPostgres(sys.argv[1]).start()) as crm:
    print(crm.execute("SELECT count(*) FROM customers").fetchone())
"""


@pytest.fixture(params=[0o700, 0o755], ids=["closed", "open"])
def home(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A folder that only its owner can enter, or everybody."""
    folder = Path(tempfile.mkdtemp(prefix="rollview-home-"))
    folder.chmod(request.param)
    yield folder
    EmbeddedPostgres(folder / "shop" / "crm").remove()
    shutil.rmtree(folder)


@needs_root
@pytest.mark.parametrize("user", [SELF, USER])
def test_init(home: Path, user: str) -> None:
    if user == USER:
        give(home)
    environment = {"PYTHONPATH": os.pathsep.join([str(SOURCES), str(SITE_PACKAGES)])}
    done = run_as(user, [interpreter(), "-c", MAIN, "init", "shop"], environment, home)
    assert (done.returncode, done.stderr) == (0, "")
    done = run_as(user, [interpreter(), "-c", ROWS, "shop/crm"], environment, home)
    assert (done.returncode, done.stdout) == (0, "(5,)\n"), done.stderr
