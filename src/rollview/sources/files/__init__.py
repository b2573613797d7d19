"""Folders of dumps as a source, and what reading tables from files needs."""

from rollview.sources.files.source import FileSource

__all__ = ["FileSource"]
