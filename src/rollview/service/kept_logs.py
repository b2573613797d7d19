"""The logs that sources keep for us: room at databases of others that rollview is the reason for."""

from __future__ import annotations

from rollview.errors import RollviewError
from rollview.service.sites import Sites
from rollview.sources.source import KeepsLog


def kept_log_bytes(sites: Sites) -> dict[str, int]:
    """By source; those that cannot be asked now are left out."""
    found: dict[str, int] = {}
    for name, source in sites.sources.items():
        if not isinstance(source, KeepsLog):
            continue
        try:
            size = source.kept_log_bytes()
        except RollviewError:
            continue
        if size is not None:
            found[name] = size
    return found
