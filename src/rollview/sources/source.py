"""What every source can do. One suite in `tests/conformance` holds for all of them, the simulated one too.

A *site* is what commits in one order and answers as one: for most databases the whole source, for Delta
tables and folders of dumps each table (`Table.site`). A source numbers its transactions as it likes, by a
`source_txid` that grows with every commit or merely tells them apart; the warehouse numbers what it captured
1, 2, 3 … per site. What an answer saw is told in the source's own terms, a *read point*, and `seen`
translates it once enough has been captured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from rollview.algebra.block import Block
from rollview.algebra.expression import columns_of
from rollview.algebra.history import Seen
from rollview.algebra.relation import Table
from rollview.algorithms.effects import Question
from rollview.rows import Rows


@dataclass(frozen=True)
class CapturedTransaction:
    """One transaction of a site. `rows` holds, by `source.table`, the changed rows with `_count`.

    A source whose transactions may be parts of global ones gives each its own `log_position`, from which
    capture goes on right behind it: a part may have to wait for the others.
    """

    source_txid: int
    commit_time: float
    rows: Mapping[str, Rows]
    log_position: str = ""
    transaction_id: str = ""
    global_id: str = ""
    participants: tuple[str, ...] = ()


@dataclass(frozen=True)
class Batch:
    """Transactions in commit order, and where the next batch begins. Both may stand still."""

    transactions: tuple[CapturedTransaction, ...]
    log_position: str


@dataclass(frozen=True)
class ReadResult:
    """Rows that were read, one `Rows` per relation asked for, and what the reading saw, as JSON text."""

    rows: tuple[Rows, ...]
    read_point: str


class SourceTxids(Protocol):
    """What has been captured of one site, for translating a read point."""

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
    """What `setup` did or what an administrator must do, as sentences and statements to show."""

    done: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    needed: tuple[str, ...] = field(default=())


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

    def setup(self, tables: Sequence[Table]) -> SetupResult:
        """Prepares the capture of these tables; again and again without harm. Others are let go."""

    def remove(self) -> SetupResult:
        """Takes back all that `setup` left at the source."""

    def describe(self) -> Mapping[str, str]:
        """For `status`: how capture works here, in a word or two per item; no secrets."""

    def current_position(self, site: str) -> str:
        """The log position of the present: capture from there misses nothing that commits from now on."""

    def capture(self, site: str, after: str, limit: int) -> Batch:
        """What was committed after a log position: about `limit` changed rows, at least one transaction."""

    def replay(self, site: str, after: str, source_txids: Sequence[int], upto: str) -> Batch:
        """The same batch once more: it had these source txids and ended at this log position."""

    def acknowledge(self, site: str, upto: str) -> None:
        """All up to this log position is kept safely elsewhere; the source may drop what it holds of it."""

    def ask(self, question: Question[pa.Table]) -> ReadResult:
        """The rows that a sub-query looks for: `columns_to_read` of each reach's relation and `_count`.

        Columns have the table's own names. More rows than asked for are harmless, fewer are wrong: local
        conditions and keys are tested again by the caller, as Spark understands them. A shipped reach
        looks for its key values (`question.keys`, in the order of the shipped reaches, columns called as
        the parent's in the block); another one looks for the rows of its parent in this same answer. All
        relations are read at one state.
        """

    def read(self, tables: Mapping[Table, Sequence[str]], scratch: Path) -> ReadResult:
        """Whole tables of one site at one state, these columns of each; large ones in files in `scratch`."""

    def seen(self, site: str, read_point: str, source_txids: SourceTxids) -> Seen | None:
        """The versions that a reading saw; None while not all of them have been captured."""

    def close(self) -> None:
        """Lets go of connections and files."""


def columns_to_read(block: Block, position: int) -> tuple[str, ...]:
    """The columns of a relation, by the table's own names, that its local conditions or the block use."""
    relation = block.relations[position]
    used = set(block.needed[position])
    for condition in block.local[position]:
        used.update(columns_of(condition))
    names = zip(relation.table.columns, relation.columns, strict=True)
    return tuple(own for own, inside in names if inside in used)
