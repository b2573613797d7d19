"""What the catalog keeps, as plain records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from rollview.algebra.relation import Table


@dataclass(frozen=True)
class CatalogState:
    """What `Catalog.open` would find."""

    exists: bool
    is_current: bool


@dataclass(frozen=True)
class Site:
    """What commits in one order, and how far it has been captured.

    `version` is the last version with a csn, `log_position` the source's own word for the place after it;
    `captured_at` is None before the first capture. `merged` counts versions that may stand for several
    transactions of the source, of which it cannot tell the states in between. All that it had committed at
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
    """What keeps a site, a table or a view (`scope`) from going on; `kind` is the class of the error.

    Of a table, changes are missing from `csn` on, those of some `columns` or all. A view cannot be had at
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
"""In the place of a history: a step was given up that may have changed the view, which cannot go on."""


@dataclass(frozen=True)
class Truncation:
    """A transaction that left a table without rows, and no log names those that it had before."""

    table: str
    csn: int


@dataclass(frozen=True)
class ViewRecord:
    """A view that has been loaded. `columns` is what a reader sees, `stored` what its state consists of.

    Both come with Spark SQL types. The view was loaded at `loaded_csn`; every csn from `oldest_csn` on can
    be read. What is stored shows `materialized_csn`: version `lake_version` of the table of its rows, and
    `state_version` of that of its state; 0 where it has no such table. Each load makes a new `generation` of
    the tables for state and delta; the latter is complete from `delta_version` on. `tables` are the base
    tables as they were then, `histories` says for each table and each view that it reads which history that
    was: a word for a table, the generation of a view.
    `types` has for each part of the view the types of expressions that its definition depends on.
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
    """What the propagation of a view cost: its steps, their sub-queries, the rows that came back.

    `spared` changes were not looked up, because a foreign key tells that they join nothing, because they came
    and went inside a step that counts as one transaction, or because the view itself answered. The delta of
    `in_doubt` transactions was not taken as their writers had made it.
    """

    steps: int = 0
    lookups: int = 0
    rows_found: int = 0
    spared: int = 0
    in_doubt: int = 0


@dataclass(frozen=True)
class Span:
    """What a view was before it was loaded anew, for `reason`; readable from its oldest csn to `upto_csn`."""

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
    """What one verification of a view found: so many rows compared at a csn, so many of them different.

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
