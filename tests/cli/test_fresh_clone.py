"""A fresh machine: a clone, `make demo`, and a project from `rollview init` on, as a user types it.

Every variant makes an environment of its own, which takes minutes: `make test-fresh`.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

from rollview.sources.postgres import EmbeddedPostgres
from servers.ordinary_user import USER, give, interpreter, needs_root, run_as

pytestmark = [pytest.mark.slow, pytest.mark.soak]
ROOT = Path(__file__).parents[2]
SELF = pwd.getpwuid(os.getuid()).pw_name
PATIENCE_SECONDS = 1200.0


@pytest.fixture(params=[0o700, 0o755], ids=["closed", "open"])
def clone(request: pytest.FixtureRequest) -> Iterator[Path]:
    """What is committed, in a folder that only its owner can enter, or everybody."""
    home = Path(tempfile.mkdtemp(prefix="rollview-fresh-"))
    home.chmod(request.param)
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(home / "rollview")], check=True)
    before = set(Path("/var/tmp").glob("rollview-*"))
    yield home / "rollview"
    EmbeddedPostgres(home / "rollview" / "shop" / "crm").remove()
    shutil.rmtree(home)
    for copy in set(Path("/var/tmp").glob("rollview-*")) - before:
        shutil.rmtree(copy, ignore_errors=True)


@needs_root
@pytest.mark.parametrize("user", [SELF, USER])
def test_a_fresh_clone_works(clone: Path, user: str) -> None:
    if user == USER:
        give(clone.parent)
    # Nothing of the environment that the tests run in may help.
    environment = {"PYTHONPATH": "", "VIRTUAL_ENV": "", "TMPDIR": "/tmp"}
    rollview = str(clone / ".venv" / "bin" / "rollview")
    for command, wanted in (
        (["make", f"PYTHON={interpreter()}", "demo"], "identical when recomputed"),
        ([rollview, "--version"], "rollview, version "),
        ([rollview, "init", "shop"], "a PostgreSQL with a few customers"),
        ([rollview, "setup", "--project", "shop"], "sales_by_state"),
        ([rollview, "run", "--once", "--project", "shop"], "nothing is left to do"),
        ([rollview, "verify", "--project", "shop"], "identical when recomputed"),
    ):
        done = run_as(user, command, environment, clone, timeout=PATIENCE_SECONDS)
        assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        assert wanted in done.stdout, command
    typed = clone / ".venv" / "typed"
    wheel = ["python", "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(typed), "."]
    done = run_as(user, [str(clone / ".venv" / "bin" / wheel[0]), *wheel[1:]], environment, clone)
    assert done.returncode == 0, done.stderr
    (file,) = typed.glob("*.whl")
    assert "rollview/py.typed" in ZipFile(file).namelist()
