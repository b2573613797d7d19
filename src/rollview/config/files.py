"""Text files of a project: UTF-8, with or without a byte order mark, and of a sensible size."""

from __future__ import annotations

from pathlib import Path

from rollview.errors import ProjectError

_MOST_BYTES = 10_000_000


def read_text(path: Path) -> str:
    """The text of a file; an error of one line if it cannot be read."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ProjectError(f"{path.name} is too large to be read", subject=str(path))
        return path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        hint = "save the file as UTF-8"
        message = f"{path.name} is not UTF-8 (line {line})"
        raise ProjectError(message, subject=str(path), hint=hint, line=line) from None
    except OSError as error:
        raise ProjectError(f"cannot read {path}: {error.strerror}", subject=str(path)) from None


# Files and folders that only their owner can read: rows of other people's databases lie in them.
#
# Existing ones keep their mode, so that an owner can open them to others.


def make_private_folder(folder: Path) -> None:
    """Makes a folder, and those above it, unless they are there."""
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)


def make_private_file(file: Path) -> None:
    """Makes an empty file unless it is there; files that SQLite puts beside it get the same mode."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o600)
