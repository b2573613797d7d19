"""Effects of immediate propagate, deferred apply: what beyer2000's processes want from one database.

Update transactions and apply processes share a database, so these effects are its operations: the clock, the
IPDA lock, insertions into delta tables, reads with and without read locks. A process is suspended at each.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rollview.algebra.bag import Bag

B = TypeVar("B", bound=Bag)

XID = "_xid"
"""The column of a delta table that names the transaction."""

TIMESTAMP = "_timestamp"
"""The column of a delta table or of commit records that holds a time."""

COMMIT_TABLE = "commit table"
"""The table of commit records that all views share (§4.5)."""


@dataclass(frozen=True, slots=True)
class ReadClock:
    """Reads the clock. Result: the time."""


@dataclass(frozen=True, slots=True)
class AcquireWrite:
    """Takes the IPDA lock of these tables as a writer; never waits. The lock remembers the time it was taken.

    The transaction's end releases what it still holds, also when it ends by an error (§4.2).
    """

    tables: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReleaseWrite:
    """Releases a writer's IPDA locks."""

    tables: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Insert(Generic[B]):
    """Inserts records into a view's delta table, with the transaction's xid and this timestamp."""

    view: str
    rows: B
    timestamp: int | None


@dataclass(frozen=True, slots=True)
class InsertCommitRecord:
    """Inserts the transaction's commit record into a delta table or the commit table."""

    table: str
    timestamp: int


@dataclass(frozen=True, slots=True)
class RefreshTime:
    """Reads up to which time a view has been rolled. Result: that time."""

    view: str


@dataclass(frozen=True, slots=True)
class AwaitClock:
    """Waits until the clock has passed a time."""

    time: int


@dataclass(frozen=True, slots=True)
class PassLock:
    """Waits until the IPDA lock of a table lets a reader of times up to `upto` pass; holds nothing after."""

    table: str
    upto: int


@dataclass(frozen=True, slots=True)
class ReadDelta:
    """Reads a delta table for after < timestamp ≤ upto. Result: a bag with `_xid` and `_timestamp`.

    With read locks it waits for the writers of what it finds, and sees committed records only. Without
    them it sees what is there. No `upto` is no upper bound.
    """

    view: str
    after: int
    upto: int | None
    read_locks: bool


@dataclass(frozen=True, slots=True)
class ReadCommitRecords:
    """Reads commit records with after < timestamp ≤ upto, with read locks. Result: a bag of `_xid`."""

    table: str
    after: int
    upto: int


@dataclass(frozen=True, slots=True)
class RecordsOf(Generic[B]):
    """Reads the records of these transactions, a bag of `_xid`, without locks. Result: as `ReadDelta`."""

    view: str
    xids: B


@dataclass(frozen=True, slots=True)
class Apply(Generic[B]):
    """Applies pieces of a net effect in order and moves the refresh time, in one transaction.

    `records` are the records of the delta table that the pieces stand for.
    """

    view: str
    pieces: tuple[B, ...]
    records: B
    upto: int


WriterEffect = ReadClock | AcquireWrite | ReleaseWrite | Insert[Any] | InsertCommitRecord
ApplyEffect = (
    RefreshTime | AwaitClock | PassLock | ReadDelta | ReadCommitRecords | RecordsOf[Any] | Apply[Any]
)
Writer = Generator[WriterEffect, Any, None]
ApplyProcess = Generator[ApplyEffect, Any, None]
