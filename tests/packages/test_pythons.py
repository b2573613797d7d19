"""Every Python that rollview promises and that this machine has: the wheel is installed and works there."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from installed import PROGRAM, Built, Installed, build_both

pytestmark = [pytest.mark.slow, pytest.mark.soak]

PROMISED = ("3.11", "3.12", "3.13")


def _candidates(version: str) -> Iterator[str]:
    """Where a Python may be: on the path, or among those that pyenv keeps."""
    yield f"python{version}"
    home = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from map(str, sorted((home / "versions").glob(f"{version}.*/bin/python")))


@cache
def interpreter(version: str) -> str | None:
    """An interpreter of this version that can make an environment."""
    asks = "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2])"
    for each in _candidates(version):
        try:
            answer = subprocess.run([each, "-c", asks], capture_output=True, text=True, check=False)
        except OSError:
            continue
        if answer.stdout.strip() == version:
            return each
    return None


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build_both(tmp_path_factory.mktemp("built") / "dist")


@pytest.mark.parametrize("version", PROMISED)
def test_the_wheel_works_on_every_promised_python(built: Built, version: str, tmp_path: Path) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"there is no Python {version} with venv on this machine")
    installed = Installed(tmp_path / "user", built.wheel, python)
    try:
        installed.install("postgres", "mariadb", "demo", "connect", "ui")
        installed.run(str(installed.bin / "python"), str(PROGRAM), "import").check_returncode()
        result = installed.run(str(installed.bin / "python"), str(PROGRAM), str(tmp_path / "project"))
        assert result.returncode == 0, result.stderr
        answer = json.loads(result.stdout)
        assert answer["right"] == [True] and len(answer["second"]) == 3
        assert f"python{version}/" in answer["place"]
    finally:
        installed.remove()
