"""What the drivers give back: how far they came, with the commit time of that csn.

Each result is also a number, the one that a caller wants most: `project.refresh()` is the csn that all views
show. Commit times are ISO text in UTC, empty before the first transaction.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass
class SetupReport:
    """What setup did, for people. For views `from_stored`, which are among the loaded, no source was read."""

    sources: dict[str, list[str]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    loaded: dict[str, str] = field(default_factory=dict)
    from_stored: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class RecoverReport:
    """What recover did: why, where the old tables are, and the set-up that followed."""

    reason: str
    set_aside: str
    setup: SetupReport


class _Number(int):
    """A number with fields; it is shown and sent as a number is."""

    __str__ = int.__repr__

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(getattr(self, each.name) for each in fields(self))  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class CaptureResult(_Number):
    """How many transactions were captured, and the last csn now."""

    transactions: int
    csn: int
    commit_time: str

    def __new__(cls, transactions: int, csn: int, commit_time: str) -> CaptureResult:  # noqa: ARG004
        """The number itself; the fields are set afterwards."""
        return super().__new__(cls, transactions)


@dataclass(frozen=True, eq=False)
class PropagateResult(_Number):
    """The high-water mark of a view, and what it was before."""

    view: str
    from_csn: int
    high_water: int
    commit_time: str

    def __new__(cls, view: str, from_csn: int, high_water: int, commit_time: str) -> PropagateResult:  # noqa: ARG004
        """The number itself; the fields are set afterwards."""
        return super().__new__(cls, high_water)


@dataclass(frozen=True, eq=False)
class ApplyResult(_Number):
    """The csn that a stored view shows now, and the one that it showed before."""

    view: str
    from_csn: int
    csn: int
    commit_time: str

    def __new__(cls, view: str, from_csn: int, csn: int, commit_time: str) -> ApplyResult:  # noqa: ARG004
        """The number itself; the fields are set afterwards."""
        return super().__new__(cls, csn)


@dataclass(frozen=True, eq=False)
class RefreshResult(_Number):
    """The csn that all refreshed views show now."""

    views: tuple[str, ...]
    csn: int
    commit_time: str

    def __new__(cls, views: tuple[str, ...], csn: int, commit_time: str) -> RefreshResult:  # noqa: ARG004
        """The number itself; the fields are set afterwards."""
        return super().__new__(cls, csn)


@dataclass(frozen=True, eq=False)
class CondenseResult(_Number):
    """How many rows a range of a view delta had and has, and how many bytes the delta; rows saved."""

    view: str
    rows_before: int
    rows_after: int
    bytes_before: int
    bytes_after: int

    def __new__(cls, view: str, rows_before: int, rows_after: int, *_: int) -> CondenseResult:  # noqa: ARG004
        """The number itself; the fields are set afterwards."""
        return super().__new__(cls, rows_before - rows_after)

    @property
    def saved(self) -> int:
        """How many rows there are less."""
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
