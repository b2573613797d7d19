"""What the drivers give back: how far they came, with the commit time of that csn.

Commit times are ISO text in UTC, empty before the first transaction.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql import DataFrame


@dataclass
class SetupReport:
    """What setup did, for people."""

    sources: dict[str, list[str]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    loaded: dict[str, str] = field(default_factory=dict)
    unchanged: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class CaptureResult:
    """How many transactions were captured, and the last csn now."""

    transactions: int
    csn: int
    commit_time: str


@dataclass(frozen=True)
class PropagateResult:
    """The high-water mark of a view before and after."""

    view: str
    from_csn: int
    high_water: int
    commit_time: str


@dataclass(frozen=True)
class ApplyResult:
    """The csn that a stored view showed before, and the one that it shows now."""

    view: str
    from_csn: int
    csn: int
    commit_time: str


@dataclass(frozen=True)
class RefreshResult:
    """The views that were refreshed, and the csn that all of them show now."""

    views: tuple[str, ...]
    csn: int
    commit_time: str


@dataclass(frozen=True)
class ViewAsOf:
    """The rows of a view, and the csn they are as of."""

    view: str
    csn: int
    commit_time: str
    rows: DataFrame
