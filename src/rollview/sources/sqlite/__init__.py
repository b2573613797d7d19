"""The SQLite source: triggers write a change log, the write-ahead log shows where transactions ended."""

from rollview.sources.sqlite.source import SQLiteSource

__all__ = ["SQLiteSource"]
