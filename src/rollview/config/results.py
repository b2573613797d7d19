"""Results of the drivers: the csn that they reached, with its commit time.

Commit times are ISO text in UTC, empty before the first transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass
class SetupReport:
    """The report of setup. `from_stored` are those of the loaded views for which no source was read.

    `stopped` gives the reason for each view that could not be set up; such views are as they were before.
    """

    sources: dict[str, list[str]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    loaded: dict[str, str] = field(default_factory=dict)
    from_stored: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    stopped: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RecoverReport:
    """The report of recover: the reason, where the old tables are, and the setup that followed."""

    reason: str
    set_aside: str
    setup: SetupReport


@dataclass(frozen=True)
class MoveReport:
    """Where the lake is now, how many bytes its data files have, and what the project file has to say."""

    place: str
    bytes: int
    settings: Mapping[str, str]


@dataclass(frozen=True)
class CaptureResult:
    """How many transactions were captured, and the last csn now."""

    transactions: int
    csn: int
    commit_time: str


@dataclass(frozen=True)
class PropagateResult:
    """The high-water mark of a view, and what it was before."""

    view: str
    from_csn: int
    high_water: int
    commit_time: str


@dataclass(frozen=True)
class ApplyResult:
    """The csn that a stored view shows now, and the one that it showed before."""

    view: str
    from_csn: int
    csn: int
    commit_time: str


@dataclass(frozen=True)
class RefreshResult:
    """The csn that all refreshed views show now."""

    views: tuple[str, ...]
    csn: int
    commit_time: str


@dataclass(frozen=True)
class CondenseResult:
    """The rows of a range of a view delta, and the bytes of the delta, before and after."""

    view: str
    rows_before: int
    rows_after: int
    bytes_before: int
    bytes_after: int

    @property
    def saved(self) -> int:
        """How many rows were removed."""
        return self.rows_before - self.rows_after


@dataclass(frozen=True)
class StoredRows:
    """The rows of a view as they are stored, in this process, and the csn they are as of."""

    view: str
    csn: int
    commit_time: str
    rows: pa.Table


@dataclass(frozen=True)
class ViewRows:
    """The rows of a view where they are, in this process or on Spark, and the csn they are as of."""

    view: str
    csn: int
    commit_time: str
    rows: pa.Table | DataFrame


@dataclass(frozen=True)
class ViewAsOf:
    """The rows of a view, and the csn they are as of."""

    view: str
    csn: int
    commit_time: str
    rows: DataFrame
