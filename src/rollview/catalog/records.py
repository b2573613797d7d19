"""The content of the catalog, as plain records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import sqrt
from statistics import median
from typing import Literal

from rollview.algebra.relation import Table


@dataclass(frozen=True)
class CatalogState:
    """The catalog that `Catalog.open` would find."""

    exists: bool
    is_current: bool


@dataclass(frozen=True)
class Site:
    """A unit that commits in one order, and how far it has been captured.

    `version` is the last version with a csn, `log_position` the source's own word for the place after it;
    `captured_at` is None before the first capture. `merged` counts versions that may stand for several
    transactions of the source, which cannot report the states in between. All that it had committed at
    `looked_at` is captured.
    """

    name: str
    source: str
    version: int
    log_position: str
    captured_at: float | None
    merged: int = 0
    looked_at: float = 0.0


@dataclass(frozen=True)
class TableHistory:
    """When the history of a captured table began: after a csn. `id` is a word that no other one has."""

    id: str
    origin_csn: int


@dataclass(frozen=True)
class Part:
    """One site's part of a unit of work; `source_txid` is the site's own number for the transaction.

    `is_merged`: it may stand for several transactions. `place` grows along the site's log; 0 if not known.
    """

    site: str
    version: int
    source_txid: int
    transaction_id: str = ""
    global_id: str = ""
    is_merged: bool = False
    place: int = 0


@dataclass(frozen=True)
class Unit:
    """A unit of work; `rows` gives the number of changed rows for each table that it touched."""

    csn: int
    commit_time: float
    parts: tuple[Part, ...]
    rows: Mapping[str, int]


@dataclass(frozen=True)
class Waiting:
    """A global transaction of which some parts have come and others, of the missing sites, have not."""

    global_id: str
    present: tuple[str, ...]
    missing: tuple[str, ...]
    since: float = 0.0


@dataclass(frozen=True)
class Fault:
    """The reason why a site, a table or a view (`scope`) has stopped; `kind` is the class of the error.

    Of a table, changes are missing from `csn` on, those of some `columns` or all. A view is not available at
    `csn`; 0 if that is not known.
    """

    scope: Literal["site", "table", "view"]
    name: str
    kind: str
    message: str
    hint: str = ""
    csn: int = 0
    since: float = field(default=0.0, compare=False)
    columns: tuple[str, ...] = ()

    def concerns(self, table: Table) -> bool:
        """Whether a view that uses these columns of the table is concerned."""
        return not self.columns or not set(self.columns).isdisjoint(table.columns)


GIVEN_UP = "given up"
"""In the place of a history: a step was given up that may have changed the view, which cannot continue."""


@dataclass(frozen=True)
class Truncation:
    """A transaction that left a table without rows, and no log names those that it had before."""

    table: str
    csn: int


@dataclass(frozen=True)
class ViewRecord:
    """A view that has been loaded. `columns` is what a reader sees, `stored` what its state consists of.

    Both come with Spark SQL types. The view was loaded at `loaded_csn`; every csn from `oldest_csn` on can
    be read. The stored rows are those of `materialized_csn`: version `lake_version` of the table of its rows,
    and `state_version` of that of its state; 0 where it has no such table. Each load makes a new `generation`
    of the tables for state and delta; the latter is complete from `delta_version` on. `tables` are the base
    tables as they were then, `histories` says for each table and each view that it reads which history that
    was: a word for a table, the generation of a view. `types` has for each part of the view the types of
    expressions that its definition depends on.
    """

    name: str
    sql: str
    digest: str
    columns: tuple[tuple[str, str], ...]
    stored: tuple[tuple[str, str], ...]
    loaded_csn: int
    oldest_csn: int
    materialized_csn: int
    lake_version: int
    state_version: int
    policy: str
    generation: int = 1
    delta_version: int = 0
    tables: tuple[Table, ...] = ()
    histories: Mapping[str, str] = field(default_factory=dict)
    types: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Work:
    """The cost of the propagation of a view: its steps, their sub-queries, the rows that came back.

    `spared` changes were not looked up, because by a foreign key they join nothing, because they came
    and went inside a step that counts as one transaction, or because the view itself answered. The delta of
    `in_doubt` transactions was not taken as their writers had made it.
    """

    steps: int = 0
    lookups: int = 0
    rows_found: int = 0
    spared: int = 0
    in_doubt: int = 0


@dataclass(frozen=True)
class Lookups:
    """The sub-queries of a view that asked for exactly these tables, which are of one site.

    `seconds` is how long the source took; `rows_sent` are the keys that it was sent.
    """

    tables: tuple[str, ...]
    number: int = 0
    rows_sent: int = 0
    rows_found: int = 0
    bytes_found: int = 0
    seconds: float = 0.0

    def plus(self, other: Lookups) -> Lookups:
        return Lookups(
            self.tables,
            self.number + other.number,
            self.rows_sent + other.rows_sent,
            self.rows_found + other.rows_found,
            self.bytes_found + other.bytes_found,
            self.seconds + other.seconds,
        )


_MEMORY = 0.95
"""How much of a sample is left when the next one comes: the last twenty count for most."""


@dataclass(frozen=True)
class CostLine:
    """The seconds that a kind of work took for so many rows, as sums of samples in which older ones fade.

    The line through them (least squares) has a fixed part and a part per row, neither below zero.
    """

    samples: float = 0.0
    rows: float = 0.0
    seconds: float = 0.0
    rows_squared: float = 0.0
    rows_seconds: float = 0.0
    seconds_squared: float = 0.0

    def with_sample(self, rows: float, seconds: float) -> CostLine:
        return CostLine(
            _MEMORY * self.samples + 1.0,
            _MEMORY * self.rows + rows,
            _MEMORY * self.seconds + seconds,
            _MEMORY * self.rows_squared + rows * rows,
            _MEMORY * self.rows_seconds + rows * seconds,
            _MEMORY * self.seconds_squared + seconds * seconds,
        )

    @property
    def mean_rows(self) -> float:
        return self.rows / self.samples if self.samples else 0.0

    @property
    def mean_seconds(self) -> float:
        return self.seconds / self.samples if self.samples else 0.0

    @property
    def is_line(self) -> bool:
        """Whether samples differ in their number of rows, so that there is a line through them."""
        return self._variances()[0] > 1e-9 * max(1.0, self.mean_rows**2)

    @property
    def row_seconds(self) -> float:
        """What a row costs; nothing as long as all samples have the same number of rows."""
        spread, both, _ = self._variances()
        if not self.is_line:
            return 0.0
        return min(max(0.0, both / spread), self.mean_seconds / self.mean_rows)

    @property
    def fixed_seconds(self) -> float:
        """What the work costs whatever the number of rows."""
        return self.mean_seconds - self.row_seconds * self.mean_rows

    @property
    def deviation_seconds(self) -> float:
        """How far samples are from the line (standard deviation)."""
        spread, both, height = self._variances()
        slope = self.row_seconds
        return sqrt(max(0.0, height - 2 * slope * both + slope * slope * spread))

    def of(self, rows: float) -> float:
        """The seconds that so many rows would take."""
        return self.fixed_seconds + self.row_seconds * rows

    def _variances(self) -> tuple[float, float, float]:
        """The variance of rows, the covariance of both, the variance of seconds."""
        if not self.samples:
            return 0.0, 0.0, 0.0
        rows, seconds = self.mean_rows, self.mean_seconds
        return (
            self.rows_squared / self.samples - rows * rows,
            self.rows_seconds / self.samples - rows * seconds,
            self.seconds_squared / self.samples - seconds * seconds,
        )


@dataclass(frozen=True)
class Measured:
    """A step of an algorithm that took so many transactions through a view, and what it cost."""

    transactions: int
    lookups: int
    rows_found: int
    seconds: float


@dataclass(frozen=True)
class AlgorithmCost:
    """The cost of a view under one algorithm since the view was loaded.

    `recent` are its last steps that are compared with those of other algorithms, the newest last.
    `failures` counts steps in which it raised an error, `failure` is the last one.
    """

    algorithm: str
    steps: int = 0
    transactions: int = 0
    lookups: int = 0
    rows_found: int = 0
    seconds: float = 0.0
    failures: int = 0
    failure: str = ""
    recent: tuple[Measured, ...] = ()

    @property
    def compared(self) -> tuple[float, ...]:
        """Seconds per transaction of each step that is compared with those of others."""
        return tuple(each.seconds / each.transactions for each in self.recent)

    @property
    def compared_seconds(self) -> float:
        """Their median."""
        return median(self.compared)


@dataclass(frozen=True)
class AlgorithmChoice:
    """The algorithm that was chosen for a view by measured costs, after so many steps, and why.

    While algorithms are being measured, `transactions` is the number that each step has which counts; else 0.
    """

    algorithm: str
    transactions: int
    steps: int
    reason: str


@dataclass(frozen=True)
class Span:
    """A view as it was before it was reloaded, for `reason`; readable from its oldest csn to `upto_csn`."""

    record: ViewRecord
    upto_csn: int
    reason: str
    ended_at: float


@dataclass(frozen=True)
class Consumer:
    """Somebody outside who reads the delta of a view, and has acknowledged all of it up to a csn.

    `generation` is that of the view whose delta it was reading.
    """

    view: str
    name: str
    generation: int
    csn: int
    acknowledged_at: float


@dataclass(frozen=True)
class Refresh:
    """One refresh of a view: what it did, how long it took, and why it was done this way."""

    view: str
    kind: str
    from_csn: int
    to_csn: int
    rows: int
    seconds: float
    reason: str
    finished_at: float


@dataclass(frozen=True)
class PropagatedInterval:
    """A forward query took the changes with after < csn ≤ upto; `relation` is −1 for a whole block."""

    view: str
    block: int
    relation: int
    after: int
    upto: int
    finished_at: float


@dataclass(frozen=True)
class VerifyRecord:
    """The result of one verification of a view: so many rows compared at a csn, so many of them different.

    `part` says which rows were compared, if not all were; `differences` has the first of them as text.
    """

    view: str
    finished_at: float
    csn: int
    compared: int
    different: int
    part: str
    differences: tuple[str, ...]
    seconds: float
