"""What can go wrong with the catalog: each error names the thing, the reason and the way out."""

# These are named for what has happened, as their readers say it.

from __future__ import annotations

from rollview.errors import InputError, RollviewError


class CatalogError(RollviewError):
    """The catalog was asked for something that would contradict what it knows; nothing was changed."""


class CatalogUrlError(CatalogError, InputError):
    """The catalog's address is not one that can be opened."""


class CatalogUnavailable(CatalogError):
    """The database below the catalog failed: busy, full, unreachable.

    The transaction did not happen. Only if it failed while it was being committed can it have: whether a
    step is still pending tells.
    """


class SchemaChanged(CatalogError):
    """A captured table has other columns or types at its source than when it was registered."""


class HistoryPruned(CatalogError):
    """A question about units of work that have been forgotten."""


class UnitSplit(CatalogError):
    """An answer saw only a part of what a site contributed to one unit of work, so that it has no csn."""


class NotWaiting(CatalogError, InputError):
    """There is no such global transaction to end the wait for."""


class LeaseHeld(CatalogError):
    """Someone else is at work on the same thing."""


class LeaseLost(CatalogError):
    """A lease has passed to someone else, so its former holder must not write any more."""
