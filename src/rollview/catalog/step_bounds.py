"""The kinds of steps: what each records before it begins, and which effects it may have.

The bounds of a pending step outlive the process, and the release, that wrote them. So each kind has a version
of its own, which grows whenever its fields change; `step_encoding` reads older versions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from rollview.catalog.effects import (
    Condensed,
    Materialized,
    Moved,
    Refreshed,
    Retained,
    Sequenced,
    SpanEnded,
    StepEffect,
    ViewAdded,
    ViewDropped,
    Worked,
)

E = TypeVar("E", bound=StepEffect)


class StepBounds(Generic[E]):
    """What a step is going to do, exactly. A step of this kind has no other effects than E."""

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
        """The name of the kind."""
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
    """What is taken from a site: the transactions behind one log position up to another."""

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
    `executed` is the csn at which the queries of rolling propagation see their relations.
    """

    kind = "propagate"
    version = 4
    intervals: tuple[QueryInterval, ...]
    skipped: tuple[QuerySkip, ...]
    emptied: int = 0
    recomputed: int = 0
    reason: str = ""
    executed: int = 0


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
