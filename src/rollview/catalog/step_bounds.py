"""The kinds of steps: what each records before it begins, and which effects it may have.

The bounds of a pending step outlive the process, and the release, that wrote them. So each kind has a version
of its own, which grows whenever its fields change; `step_encoding` reads older versions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from rollview.algorithms.effects import ForwardQuery
from rollview.catalog.records import Fault, Lookups, Refresh, Truncation, Unit, ViewRecord, Work

# The effects of a step, recorded in the catalog when it is finished: all of them become visible at once.


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
    """A view begins again, for this reason; its content up to now can still be read."""

    view: str
    reason: str


@dataclass(frozen=True)
class Moved:
    """Forward queries of a view have come so far. They never go back.

    `delta_version` is the version of the delta table that holds it all; 0 if it was not written. `control` is
    what else the algorithm must know to continue; empty if nothing.
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
    """The cost of a step of a view's propagation, and for how many transactions.

    `algorithm` is empty where none was at work; `lookups` are its sub-queries by the tables asked for.
    """

    view: str
    work: Work
    algorithm: str = ""
    transactions: int = 0
    seconds: float = 0.0
    lookups: tuple[Lookups, ...] = ()


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


E = TypeVar("E", bound=StepEffect)


class StepBounds(Generic[E]):
    """The exact bounds of a step. A step of this kind has no other effects than E."""

    kind: ClassVar[str]
    version: ClassVar[int]


B = TypeVar("B", bound=StepBounds[Any])
B_co = TypeVar("B_co", bound=StepBounds[Any], covariant=True)


@dataclass(frozen=True)
class Step(Generic[B_co]):
    """A piece of work with its exact bounds, which never change however often it is restarted.

    Ids grow for as long as the catalog lives. The subject is a view, or several joined by commas; it is empty
    or in parentheses if the step concerns what all views share.
    """

    id: int
    subject: str
    bounds: B_co
    started: float

    @property
    def kind(self) -> str:
        return self.bounds.kind


# Rows of bounds are named tuples, because there can be very many: JSON has them as lists.


class UnitPart(NamedTuple):
    """A version of a site that is a part of a unit of work."""

    site: str
    version: int


class PlannedUnit(NamedTuple):
    """A unit of work as the sequencer has put it together."""

    csn: int
    commit_time: float
    parts: tuple[UnitPart, ...]


@dataclass(frozen=True)
class SiteBatch:
    """The transactions to capture from a site: those after one log position up to another."""

    after: str
    upto: str
    source_txids: tuple[int, ...]


@dataclass(frozen=True)
class CaptureStep(StepBounds[Sequenced]):
    """A batch of every site, by name, becomes these units; `versions` are those the sites had before."""

    kind = "capture"
    version = 1
    sites: Mapping[str, SiteBatch]
    units: tuple[PlannedUnit, ...]
    versions: Mapping[str, int]


class QueryInterval(NamedTuple):
    """The interval of one forward query of the step's view."""

    block: int
    relation: int | None
    after: int
    upto: int


class QuerySkip(NamedTuple):
    """A forward query of the step's view that goes to a csn without asking anything."""

    block: int
    relation: int | None
    upto: int


@dataclass(frozen=True)
class PropagateStep(StepBounds[Moved | Refreshed | Worked | Condensed]):
    """Forward queries of a view run through their intervals; others have nothing to do.

    With `emptied`, all of them go to that csn, and all that the view held just before is taken away there.
    With `recomputed`, they go to that csn, for which the view is computed as a whole; `reason` says why.
    `executed` is the csn at which the queries of rolling propagation see their relations. With `algorithm`,
    the intervals are those of another algorithm than the one that the view's positions are for; then all
    positions are at the beginning of these intervals, and go to their end.
    """

    kind = "propagate"
    version = 5
    intervals: tuple[QueryInterval, ...]
    skipped: tuple[QuerySkip, ...]
    emptied: int = 0
    recomputed: int = 0
    reason: str = ""
    executed: int = 0
    algorithm: str = ""


class CsnRange(NamedTuple):
    """after < csn ≤ upto."""

    after: int
    upto: int


@dataclass(frozen=True)
class ApplyStep(StepBounds[Materialized | Refreshed]):
    """Views, by name, are rolled along their deltas, for this reason."""

    kind = "apply"
    version = 1
    views: Mapping[str, CsnRange]
    reason: str


@dataclass(frozen=True)
class LoadStep(StepBounds[ViewDropped | SpanEnded | ViewAdded | Refreshed]):
    """A view is loaded from scratch. It has no bounds: a load that was interrupted is simply redone."""

    kind = "load"
    version = 1


@dataclass(frozen=True)
class DropStep(StepBounds[ViewDropped]):
    """Views are dropped."""

    kind = "drop"
    version = 1


@dataclass(frozen=True)
class CondenseStep(StepBounds[Condensed]):
    """The view delta for after < csn ≤ upto is replaced by its net effect."""

    kind = "condense"
    version = 1
    after: int
    upto: int


@dataclass(frozen=True)
class MaintainStep(StepBounds[Retained]):
    """Logs are compacted, and pruned up to a csn."""

    kind = "maintain"
    version = 1
    upto: int


KINDS: Mapping[str, type[StepBounds[Any]]] = {
    each.kind: each
    for each in (CaptureStep, PropagateStep, ApplyStep, LoadStep, DropStep, CondenseStep, MaintainStep)
}
