"""What the tests of commands share: a command's type, and a folder's content to compare."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from click.testing import Result

Command = Callable[..., Result]


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder with its content, to see that nothing has changed."""
    return {
        str(file.relative_to(folder)): file.read_bytes() if file.is_file() else b""
        for file in sorted(folder.rglob("*"))
    }
