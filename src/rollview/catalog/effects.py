"""What a step has done, recorded in the catalog when it is finished: all of it takes effect at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rollview.algorithms.effects import ForwardQuery
from rollview.catalog.records import Fault, Refresh, Truncation, Unit, ViewRecord, Work


@dataclass(frozen=True)
class Sequenced:
    """Units of work got their csn, and sites were captured up to these log positions.

    `lake_versions` has, for change logs that were written, the version that holds it all. `losses` are tables
    of which changes are missing from one of these units on, `truncations` those that one of them emptied.
    """

    units: tuple[Unit, ...]
    log_positions: Mapping[str, str]
    lake_versions: Mapping[str, int] = field(default_factory=dict)
    losses: tuple[Fault, ...] = ()
    truncations: tuple[Truncation, ...] = ()


@dataclass(frozen=True)
class ViewAdded:
    """A view was loaded; its forward queries begin at these positions."""

    record: ViewRecord
    positions: Mapping[ForwardQuery, int]


@dataclass(frozen=True)
class ViewDropped:
    """A view is no longer kept; all that is known of it is forgotten."""

    name: str


@dataclass(frozen=True)
class SpanEnded:
    """A view begins anew, for this reason; what it was up to now can still be read."""

    view: str
    reason: str


@dataclass(frozen=True)
class Moved:
    """Forward queries of a view have come so far. They never go back.

    `delta_version` is the version of the delta table that holds it all; 0 if it was not written. `control` is
    what else the algorithm must know to go on; empty if nothing.
    """

    view: str
    moves: tuple[tuple[ForwardQuery, int], ...]
    delta_version: int = 0
    control: str = ""


@dataclass(frozen=True)
class Materialized:
    """The stored state of a view now shows this csn, which never goes back."""

    view: str
    csn: int
    lake_version: int
    state_version: int


@dataclass(frozen=True)
class Refreshed:
    """A refresh, for the view's record of refreshes."""

    refresh: Refresh


@dataclass(frozen=True)
class Worked:
    """What a step of a view's propagation cost."""

    view: str
    work: Work


@dataclass(frozen=True)
class Retained:
    """The view's delta was pruned: the oldest csn that can still be read. It never goes back."""

    view: str
    oldest_csn: int


@dataclass(frozen=True)
class Condensed:
    """The view's delta after one csn up to another was replaced by its net effect, at the latter."""

    view: str
    after: int
    upto: int


StepEffect = (
    Sequenced
    | ViewAdded
    | ViewDropped
    | SpanEnded
    | Moved
    | Materialized
    | Refreshed
    | Worked
    | Retained
    | Condensed
)
