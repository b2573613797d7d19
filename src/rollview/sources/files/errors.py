"""What can go wrong with data that lies in files: it changed its shape, or what is needed is gone."""

from __future__ import annotations

from rollview.errors import InputError, RollviewError


class SourceChangedError(RollviewError):
    """A table is no longer the one that was set up: other columns, or a new table under the old name."""


class HistoryGoneError(RollviewError):
    """Commits or files that capture still needs have been cleaned up at the source."""


class UnreadableTableError(InputError):
    """A table that cannot be captured as it is, with the reason and what its owner can do."""


class DumpError(RollviewError):
    """A dump that says what cannot be: a key twice, a value of the wrong type."""
