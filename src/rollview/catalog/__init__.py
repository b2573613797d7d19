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
from rollview.catalog.records import Part, Refresh, Site, Step, Unit, ViewRecord, Waiting

__all__ = [
    "Catalog",
    "Condensed",
    "Lease",
    "Materialized",
    "Moved",
    "Part",
    "Refresh",
    "Refreshed",
    "Retained",
    "Sequenced",
    "Site",
    "SiteTxids",
    "Step",
    "StepEffect",
    "Unit",
    "ViewAdded",
    "ViewDropped",
    "ViewRecord",
    "Waiting",
]
