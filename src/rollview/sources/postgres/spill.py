"""Files for transactions that are too large for memory, kept until the warehouse has taken their rows."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Iterable
from pathlib import Path

from rollview.rows import FileScan
from rollview.sources.postgres.position import log_position_of
from rollview.sources.source import CapturedTransaction


class SpillFiles:
    """A temporary folder, there from the first file on until `close`."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._held: list[tuple[int, Path]] = []

    def new(self) -> Path:
        """The path of a new file."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="rollview-spill-"))
        return self._folder / f"{uuid.uuid4().hex}.parquet"

    def hold(self, captured: Iterable[CapturedTransaction]) -> None:
        """Notes which files hold rows of these transactions."""
        for transaction in captured:
            for rows in transaction.rows.values():
                if isinstance(rows, FileScan):
                    end = log_position_of(transaction.log_position).position
                    self._held += [(end, Path(file.path)) for file in rows.files]

    def drop(self, upto: int) -> None:
        """Removes the files of transactions that end at a position or before it."""
        for position, path in self._held:
            if position <= upto:
                path.unlink(missing_ok=True)
        self._held = [(position, path) for position, path in self._held if position > upto]

    def close(self) -> None:
        """Removes all files."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder, self._held = None, []
