"""The packages as a user gets them: built, and installed into an empty environment of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("bare_project.py")
_NO_NETWORK = ("NewConnectionError", "Temporary failure in name resolution", "Network is unreachable")


@dataclass(frozen=True)
class Built:
    """A wheel and an sdist; the wheel was built from the sdist."""

    wheel: Path
    sdist: Path


def build(target: Path, source: Path = ROOT, *options: str) -> Path:
    """Builds as `make build` does, with the build backend of this environment, and downloads nothing."""
    command = [
        sys.executable,
        "-m",
        "build",
        "--no-isolation",
        "--outdir",
        str(target),
        *options,
        str(source),
    ]
    result = subprocess.run(
        command, cwd=target.parent, env=plain_environment(), capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return target


def build_both(target: Path) -> Built:
    """An sdist of the repository, and a wheel of the sdist."""
    target.mkdir(exist_ok=True)
    build(target)
    (wheel,), (sdist,) = target.glob("*.whl"), target.glob("*.tar.gz")
    return Built(wheel, sdist)


def contents(wheel: Path) -> dict[str, bytes]:
    """The files of a wheel."""
    with zipfile.ZipFile(wheel) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def plain_environment() -> dict[str, str]:
    """The environment without what leads Python to the repository or has it compile modules every time."""
    hidden = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYTHONWARNINGS", "PYTHONDONTWRITEBYTECODE"}
    kept = {name: value for name, value in os.environ.items() if name not in hidden}
    return kept | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"}


class Installed:
    """An environment with nothing but the wheel and what it asks for."""

    def __init__(self, folder: Path, wheel: Path, python: str = sys.executable) -> None:
        self.folder = folder
        self.wheel = wheel
        self.bin = folder / "environment" / "bin"
        folder.mkdir(parents=True)
        self._check([python, "-m", "venv", str(self.bin.parent)])
        self.install()

    def install(self, *extras: str) -> None:
        """Adds the wheel, with extras. Pinned as the tests are, so that pip finds what it has downloaded."""
        wanted = f"rollview[{','.join(extras)}] @ {self.wheel.as_uri()}"
        command = [self.bin / "python", "-m", "pip", "install", "--quiet", "--no-compile", "--prefer-binary"]
        result = self.run(*map(str, command), "--constraint", str(ROOT / "constraints.txt"), wanted)
        if result.returncode and any(each in result.stderr for each in _NO_NETWORK):
            pytest.skip("the package index cannot be reached")
        assert result.returncode == 0, result.stdout + result.stderr

    def packages(self) -> set[str]:
        """What is installed, by name."""
        listed = self._check([str(self.bin / "python"), "-m", "pip", "list", "--format", "freeze"])
        return {line.partition("==")[0].lower() for line in listed.splitlines()}

    def rollview(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command, as a user types it."""
        return self.run(str(self.bin / "rollview"), *arguments)

    def python(self, *arguments: str) -> str:
        """What a program prints that must end well; every warning is an error."""
        return self._check([str(self.bin / "python"), "-W", "error", *arguments])

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """A process of this environment, in its folder."""
        environment = plain_environment()
        environment["PATH"] = f"{self.bin}{os.pathsep}{environment['PATH']}"
        return subprocess.run(
            command,
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )

    def _check(self, command: list[str]) -> str:
        result = self.run(*command)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    def remove(self) -> None:
        """Deletes all of it, which is half a gigabyte."""
        shutil.rmtree(self.folder, ignore_errors=True)
