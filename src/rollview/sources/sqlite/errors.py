"""What can go wrong at a SQLite source."""

from __future__ import annotations

from rollview.errors import InputError, RollviewError


class CaptureRefused(InputError):
    """A table cannot be captured exactly, so it is not captured at all."""


class NotSetUp(InputError):
    """The database, or a table of it, has not been prepared for capture."""


class SourceChanged(RollviewError):
    """The database is no longer what capture was set up for: going on could miss changes."""


class SourceBusy(RollviewError):
    """The database stayed locked by others for longer than the timeout."""


class SourceFailed(RollviewError):
    """SQLite reported an error that is none of the others, such as a damaged file or a full disk."""


class UnrepresentableValue(RollviewError):
    """A column holds a value that its declared type does not allow. SQLite lets anything in."""
