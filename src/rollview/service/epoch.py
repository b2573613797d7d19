"""Whose turn it is to write to a lake: catalog and lake know the same epoch, a random word.

A process that begins to write begins an epoch: it is announced in the catalog, written to the lake, and made
known in the catalog. A copy of the catalog, or a catalog or a lake that was put back, knows another epoch
than its counterpart as soon as somebody has written, and is refused before it writes.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import replace
from pathlib import Path

from rollview.catalog import Catalog
from rollview.errors import LakeMisfit
from rollview.lake.identity import FILE, read_identity, write_identity

LEASE = "epoch"
_PATIENCE_SECONDS = 30.0
_LOOKS = 10
_PAUSE_SECONDS = 0.05
HINT = "`rollview recover` sets the old tables aside and loads the views anew"


def claim(catalog: Catalog, lake: Path) -> None:
    """Begins an epoch."""
    with catalog.lease(LEASE, _PATIENCE_SECONDS):
        check_epoch(catalog, lake)
        identity = read_identity(lake)
        assert identity is not None, "the lake was given to the catalog when both were opened"
        epoch = uuid.uuid4().hex
        catalog.announce_epoch(epoch)
        write_identity(lake, replace(identity, epoch=epoch))
        catalog.begin_epoch(epoch)


def check_epoch(catalog: Catalog, lake: Path) -> None:
    """Refuses a lake that has passed to another catalog, or to another copy of this one."""
    identity = None
    for _ in range(_LOOKS):
        identity = read_identity(lake)
        if identity is not None and identity.epoch in catalog.epochs():
            return
        # Another process of this catalog may begin an epoch right now.
        time.sleep(_PAUSE_SECONDS)
    if identity is None:
        raise LakeMisfit(
            f"{lake}: its file {FILE} is gone", subject=str(lake), hint=f"put it back; or {HINT}"
        )
    raise LakeMisfit(
        f"{lake}: another copy of the catalog has written to the lake",
        subject=str(lake),
        hint=f"use that one; or {HINT}",
    )
