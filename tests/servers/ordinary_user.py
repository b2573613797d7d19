"""Programs run as an ordinary user, for tests that run as root."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

USER = "nobody"
SOURCES = Path(__file__).parents[2] / "src"
SITE_PACKAGES = Path(sysconfig.get_paths()["purelib"])

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")


def is_open_to_all(path: Path) -> bool:
    """Whether every folder on the way to a file may be entered by everybody."""
    resolved = path.resolve()
    return all(each.stat().st_mode & 0o001 for each in (resolved, *resolved.parents))


def interpreter() -> str:
    """A Python that an ordinary user can run and that loads the packages installed here."""
    if is_open_to_all(Path(sys.executable)):
        return sys.executable
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    found = shutil.which(f"python{version}", path="/usr/bin:/usr/local/bin")
    if found is None or not is_open_to_all(Path(found)):
        pytest.skip(f"no Python {version} on this machine that an ordinary user may run")
    return found


def give(folder: Path, user: str = USER) -> None:
    """Gives a folder, with all that is in it, to the ordinary user."""
    subprocess.run(["chown", "-R", user, str(folder)], check=True)


def run_as(
    user: str, command: list[str], environment: Mapping[str, str], folder: Path, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Runs a program as a user, with the environment of this process and a home of its own."""
    account = pwd.getpwnam(user)
    become = ["setpriv", f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups"]
    return subprocess.run(
        [*become, *command],
        env={**os.environ, "HOME": str(folder), **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        **options,
    )
