"""Files and folders that only their owner can read: rows of other people's databases lie in them.

What exists keeps its mode, so that an owner can open it to others.
"""

from __future__ import annotations

from pathlib import Path


def make_private_folder(folder: Path) -> None:
    """Makes a folder, and those above it, unless they are there."""
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)


def make_private_file(file: Path) -> None:
    """Makes an empty file unless it is there; what SQLite puts beside it gets the same mode."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o600)
