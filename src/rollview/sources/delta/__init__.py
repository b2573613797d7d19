"""Delta tables as a source: versions are transactions, time travel gives exact reads."""

from rollview.sources.delta.source import DeltaSource

__all__ = ["DeltaSource"]
