"""The catalog: control tables that say what is captured, what has been done, and who may do more."""

from rollview.catalog.catalog import Catalog
from rollview.catalog.effects import (
    Condensed,
    Materialized,
    Moved,
    Refreshed,
    Retained,
    Sequenced,
    StepEffect,
    ViewAdded,
    ViewDropped,
)
from rollview.catalog.history import SiteTxids
from rollview.catalog.leases import Lease
from rollview.catalog.records import Fault, Part, Refresh, Site, TableHistory, Unit, ViewRecord, Waiting
from rollview.catalog.step_bounds import (
    ApplyStep,
    CaptureStep,
    CondenseStep,
    CsnRange,
    DropStep,
    LoadStep,
    MaintainStep,
    PlannedUnit,
    PropagateStep,
    QueryInterval,
    QuerySkip,
    SiteBatch,
    Step,
    StepBounds,
    UnitPart,
)
from rollview.catalog.steps import UnreadableStep

__all__ = [
    "ApplyStep",
    "CaptureStep",
    "Catalog",
    "CondenseStep",
    "Condensed",
    "CsnRange",
    "DropStep",
    "Fault",
    "Lease",
    "LoadStep",
    "MaintainStep",
    "Materialized",
    "Moved",
    "Part",
    "PlannedUnit",
    "PropagateStep",
    "QueryInterval",
    "QuerySkip",
    "Refresh",
    "Refreshed",
    "Retained",
    "Sequenced",
    "Site",
    "SiteBatch",
    "SiteTxids",
    "Step",
    "StepBounds",
    "StepEffect",
    "TableHistory",
    "Unit",
    "UnitPart",
    "UnreadableStep",
    "ViewAdded",
    "ViewDropped",
    "ViewRecord",
    "Waiting",
]
