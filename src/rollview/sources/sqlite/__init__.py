"""The SQLite source: triggers write a change log, the write-ahead log tells where transactions ended."""

from rollview.sources.sqlite.errors import (
    CaptureRefused,
    NotSetUp,
    SourceBusy,
    SourceChanged,
    SourceFailed,
    UnrepresentableValue,
)
from rollview.sources.sqlite.source import SQLiteSource

__all__ = [
    "CaptureRefused",
    "NotSetUp",
    "SQLiteSource",
    "SourceBusy",
    "SourceChanged",
    "SourceFailed",
    "UnrepresentableValue",
]
