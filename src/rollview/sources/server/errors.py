"""What can go wrong at a database server."""

from __future__ import annotations

from rollview.errors import InputError, RollviewError


class CaptureRefused(InputError):
    """A table cannot be captured exactly, so it is not captured at all."""


class NotSetUp(InputError):
    """The server, or a table of it, has not been prepared for capture."""


class SourceUnavailable(RollviewError):
    """The server cannot be reached, or the connection broke: trying again may help."""


class LogLost(RollviewError):
    """The server no longer has what was committed since the last capture, or never wrote it down."""


class SourceChanged(RollviewError):
    """A captured table is no longer what it was when it was registered: going on could be wrong."""


class SourceFailed(RollviewError):
    """The server reported an error that is none of the others."""


class UnrepresentableValue(RollviewError):
    """A value that has no equal in Spark, such as the date infinity."""
