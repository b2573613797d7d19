"""The contract of a source. One suite in `tests/conformance` holds for all of them, the simulated one too.

A *site* is what commits in one order and answers as one: for most databases the whole source, for Delta
tables and folders of dumps each table (`Table.site`). A source numbers its transactions as it likes, by a
`source_txid` that grows with every commit or merely identifies it; the warehouse numbers what it captured
1, 2, 3 … per site. What an answer saw is stated in the source's own terms, a *read point*, and `seen`
translates it once enough has been captured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from pathlib import Path
from shlex import quote
from typing import Protocol, runtime_checkable

import pyarrow as pa
import pyarrow.compute as pc

from rollview.algebra.bag import COUNT
from rollview.algebra.history import CSN, Seen
from rollview.algebra.relation import ForeignKey, Table
from rollview.errors import PointError
from rollview.rows import FileScan, Rows, ScanFile, arrow_schema, arrow_type, spark_type
from rollview.sources.settings import SourceSettings, Workers

# Look-ups as data: what the service asks of a source, planned before the source hears of it.
#
# A plan is a sequence of `Lookup`s of one site, parents before children, answered at one state. More rows
# than asked for are harmless, because the caller tests keys and conditions once more, as Spark understands
# them; fewer are wrong. So a source may ignore a condition, a key column, or all keys of a look-up.


Constant = bool | int | float | Decimal | str | date
"""A constant of a condition; a `date` may be a `datetime`, with a zone or without."""

COMPARISONS = ("=", "<", "<=", ">", ">=")
"""The operators of a `Comparison` with one value."""

IN = "IN"
"""The operator of a `Comparison` with any number of values."""


@dataclass(frozen=True)
class Comparison:
    """A condition on one column of a table: `column operator value`, or `column IN (values)`."""

    column: str
    operator: str
    values: tuple[Constant, ...]


@dataclass(frozen=True, eq=False)
class Lookup:
    """Rows of one table: those of the given keys, those that match a parent's rows, or all.

    `columns` are the table's own names. `keys` has columns named as the table's own; a row is looked for if
    it has the values of one row of `keys`. The keys are distinct and hold no NULL; there may be none.
    `parent` is the place of an earlier look-up of the same plan, and `on` pairs columns of its rows with
    columns of this table; a row is looked for if it matches one of the rows found there. All `conditions`
    must hold as well.
    """

    table: Table
    columns: tuple[str, ...]
    keys: pa.Table | None = None
    parent: int | None = None
    on: tuple[tuple[str, str], ...] = ()
    conditions: tuple[Comparison, ...] = ()


Find = Callable[[Lookup, pa.Table | None], Rows]
"""Finds the rows of one look-up by keys under the table's own names; None: by its conditions alone."""


def run_plan(plan: Sequence[Lookup], find: Find) -> tuple[Rows, ...]:
    """The rows of every look-up of a plan; a child's keys are taken from the rows of its parent."""
    found: list[Rows] = []
    for lookup in plan:
        keys = lookup.keys
        if lookup.parent is not None:
            parent = found[lookup.parent]
            # A parent that is only a scan is as good as everything: its values are not known here.
            keys = distinct_keys(parent, lookup.on) if isinstance(parent, pa.Table) else None
        found.append(find(lookup, keys))
    return tuple(found)


def distinct_keys(rows: pa.Table, on: Sequence[tuple[str, str]]) -> pa.Table:
    """The values of columns under the names they are paired with, each combination once.

    NULL matches nothing, so there is none. Values that Spark takes for equal are one: zeros of either sign,
    NaN of any bits.
    """
    names = [own for _, own in on]
    table = pa.Table.from_arrays([_as_compared(rows.column(theirs)) for theirs, _ in on], names=names)
    for name in names:
        if table.column(name).null_count:
            table = table.filter(pc.is_valid(table.column(name)))
    if any(pa.types.is_nested(each.type) for each in table.schema):
        # Arrow does not compare these; to look for one twice does no harm.
        return table
    if len(names) == 1:
        return pa.Table.from_arrays([pc.unique(table.column(0))], names=names)
    return table.group_by(names, use_threads=False).aggregate([]).select(names)


def _as_compared(values: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pa.types.is_floating(values.type):
        return values
    zero, nan = pa.scalar(0.0, values.type), pa.scalar(float("nan"), values.type)
    return pc.if_else(pc.is_nan(values), nan, pc.add(values, zero))


__all__ = [
    "COMPARISONS",
    "COUNT",
    "CSN",
    "IN",
    "Batch",
    "CapturedTransaction",
    "Comparison",
    "Constant",
    "FileScan",
    "ForeignKey",
    "GrantsSchemas",
    "KeepsLog",
    "KnowsPositions",
    "Lookup",
    "Loss",
    "NamesDatasets",
    "ReadResult",
    "ReadsByWorkers",
    "Rows",
    "ScanFile",
    "Seen",
    "SetupResult",
    "Source",
    "SourceSettings",
    "SourceTxids",
    "Table",
    "Workers",
    "arrow_schema",
    "arrow_type",
    "distinct_keys",
    "run_plan",
    "spark_type",
]


@dataclass(frozen=True)
class Loss:
    """Why changes of a table are missing, or may be: what happened to it, and the way out.

    If only some `columns` are concerned, the rows continue without them, and so do views that do not use
    them. `is_truncate`: the table, or a part of it, was emptied or filled at once, and is otherwise as it
    was; its views can be loaded again without asking. `leaves_empty`: it was emptied as a whole, and has no
    rows after this transaction; of later ones all changes are there. `is_misfit`: a row has a value that
    Spark cannot represent, and nothing else is wrong. A transaction that corrects or deletes the row is
    reported in the same way, since it has the old row in it.
    """

    message: str
    hint: str = ""
    columns: tuple[str, ...] = ()
    is_truncate: bool = False
    leaves_empty: bool = False
    is_misfit: bool = False


@dataclass(frozen=True)
class CapturedTransaction:
    """One transaction of a site. `rows` holds, by `source.table`, the changed rows with `_count`.

    A source whose transactions may be parts of global ones gives each its own `log_position`, from which
    capture continues right after it: a part may have to wait for the others. `lost` names tables of which
    changed rows of this transaction are not there: from here on a view cannot use them, until `setup`
    captures the table again. The other tables continue. `merged` is how many transactions of the source this
    one stands for; 0 if that is not known, but may be more than one. `place` grows along the log, for a
    source whose users know places in it.
    """

    source_txid: int
    commit_time: float
    rows: Mapping[str, Rows]
    log_position: str = ""
    transaction_id: str = ""
    global_id: str = ""
    participants: tuple[str, ...] = ()
    lost: Mapping[str, Loss] = field(default_factory=dict)
    merged: int = 1
    place: int = 0


@dataclass(frozen=True)
class Batch:
    """Transactions in commit order, and where the next batch begins. Both may stand still.

    `lost` names tables of which changes may be missing anywhere in the batch, before it, or behind it:
    something that capture relies on is not what it was. `notes` are sentences that somebody should read, each
    of which is logged once.
    """

    transactions: tuple[CapturedTransaction, ...]
    log_position: str
    lost: Mapping[str, Loss] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ReadResult:
    """Rows that were read, one `Rows` per relation asked for, and what the reading saw, as JSON text."""

    rows: tuple[Rows, ...]
    read_point: str


class SourceTxids(Protocol):
    """The captured source txids of one site, for translating a read point."""

    @property
    def log_position(self) -> str:
        """How far capture has looked."""

    def latest(self, source_txid: int) -> int:
        """The greatest version (1, 2, 3 …) whose source txid is ≤ this one; 0 if there is none."""

    def versions(self, source_txids: Sequence[int]) -> dict[int, int]:
        """The versions of these source txids, of those that have been captured."""

    def since(self, source_txid: int) -> dict[int, int]:
        """The versions of all captured source txids that are at least this one."""


@dataclass(frozen=True)
class SetupResult:
    """The result of `setup` or its plan, or the statements for an administrator, as sentences and statements
    to show.

    `is_first` is False where the source has been set up before, for this project or for one that captures by
    the same means: a copy of a project must not.
    """

    done: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    needed: tuple[str, ...] = field(default=())
    is_first: bool = True


@runtime_checkable
class GrantsSchemas(Protocol):
    """A source where an administrator can allow the capture of a whole schema, once and for all."""

    def schema_statements(self, schema: str) -> tuple[str, ...]:
        """Statements for an administrator that let every table of the schema be captured, later ones too."""


@runtime_checkable
class EstimatesRows(Protocol):
    """A source that can say quickly about how many rows a table has, so that long work shows what is left."""

    def estimated_rows(self, table: str) -> int:
        """About how many rows a table has; 0 if that is not known."""


@runtime_checkable
class KnowsPositions(Protocol):
    """A source with positions that its own users know, such as an LSN or a GTID."""

    def reach(self, site: str, position: str, captured: str) -> int | Callable[[str], bool]:
        """Which transactions a position includes, as users write it: those up to a place, or those by id.

        Of transactions by id the newest counts that is included. `captured` is how far capture has looked;
        refuses what is no position, and what lies behind that.
        """


@runtime_checkable
class KeepsLog(Protocol):
    """A source that keeps its log until it has been captured, whatever room that takes there."""

    def kept_log_bytes(self) -> int | None:
        """How large the log is that the source keeps for us now; None if it keeps none."""


@runtime_checkable
class ReadsByWorkers(Protocol):
    """A source whose large readings are tasks for `Workers`, which may be on other machines."""

    worker_module: str
    """What a worker must be able to import."""


@runtime_checkable
class NamesDatasets(Protocol):
    """A source whose tables have names that the whole world knows them by."""

    def dataset(self, table: str) -> tuple[str, str]:
        """Where a table is and what it is called there, as OpenLineage names datasets; no secrets."""


class Source(Protocol):
    """An autonomous database. Methods may be called from several threads of one process."""

    @property
    def name(self) -> str:
        """As the project file calls it."""

    @property
    def kind(self) -> str:
        """The `type` in the project file."""

    def tables(self) -> tuple[Table, ...]:
        """Every table that views may use, with columns, types, key and foreign keys, as of now."""

    def check(self, tables: Sequence[Table]) -> SetupResult:
        """The plan of `setup` for these tables; raises the errors that it would raise. Nothing is changed."""

    def setup(self, tables: Sequence[Table]) -> SetupResult:
        """Prepares the capture of these tables; again and again without harm. Others are let go."""

    def remove(self) -> SetupResult:
        """Takes back all that `setup` left at the source."""

    def describe(self) -> Mapping[str, str]:
        """For `status`: how capture works here, in a word or two per item; no secrets."""

    def current_position(self, site: str) -> str:
        """The log position of the present: capture from there misses nothing that commits from now on."""

    def capture(self, site: str, after: str, limit: int) -> Batch:
        """The transactions after a log position: about `limit` changed rows, at least one transaction."""

    def replay(self, site: str, after: str, source_txids: Sequence[int], upto: str) -> Batch:
        """The same batch once more: it had these source txids and ended at this log position."""

    def acknowledge(self, site: str, upto: str) -> None:
        """All up to this log position is kept safely elsewhere; the source may drop what it holds of it."""

    def can_compare(self, key_type: str, column_type: str) -> bool:
        """Whether a key of one Spark SQL type finds, in a column of another, all that is equal in Spark."""

    def can_push(self, comparison: Comparison, column_type: str) -> bool:
        """Whether a condition, evaluated here, keeps every row for which it is true in Spark."""

    def lookup(self, plan: Sequence[Lookup]) -> ReadResult:
        """The rows of every look-up, all at one state: its columns and `_count`, no row twice.

        All tables are of one site. Keys have types, and conditions are such, that `can_compare` and
        `can_push` allow. More rows than looked for are harmless, fewer are wrong.
        """

    def read(self, tables: Mapping[Table, Sequence[str]], scratch: Path) -> ReadResult:
        """Whole tables of one site at one state, these columns of each; large ones in files in `scratch`."""

    def seen(self, site: str, read_point: str, source_txids: SourceTxids) -> Seen | None:
        """The versions that a reading saw; None while not all of them have been captured."""

    def close(self) -> None:
        """Lets go of connections and files."""


# The way out where a source has lost its past: the command that reloads its views, as it can be typed.


def reload_hint(subject: str) -> str:
    """For a source, or for a table or column whose name begins with that of its source."""
    source = subject.partition(".")[0]
    return f"run `rollview setup --reload {quote(source)}`, which reloads the views that read {source}"


def setup_hint(table: str) -> str:
    """For a table that has lost changes, while others of its source continue."""
    return f"run `rollview setup`, which reloads the views that read {table}"


# The refusal of a position that capture has not come to.


def not_captured(site: str, position: str, reached: str) -> PointError:
    """For a position behind what has been captured of a site."""
    return PointError(
        f"{site} has not been captured up to {position} yet, but up to {reached}",
        subject=position,
        hint="run `rollview capture` first",
    )
