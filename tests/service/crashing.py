"""Crashes at durable steps: the process "dies" just before or just after the n-th durable operation.

Durable are the transactions of the catalog that begin or end a step, the commits of lake tables, the files
they are made of, and what a source is told to forget. A dying process does nothing more: whatever it tries
afterwards fails as well, until `revive`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rollview.catalog import Catalog
from rollview.lake import LakeTable
from rollview.sources.sqlite import SQLiteSource

OPERATIONS: tuple[tuple[type, str], ...] = (
    (Catalog, "register"),
    (Catalog, "begin"),
    (Catalog, "finish"),
    (Catalog, "abandon"),
    (LakeTable, "create"),
    (LakeTable, "_commit"),
    (LakeTable, "vacuum"),
    (SQLiteSource, "setup"),
    (SQLiteSource, "forget"),
)


class Died(BaseException):
    """The process is gone."""


class Executioner:
    """Counts durable operations and kills at a chosen one: even numbers before it, odd ones after it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.target: int | None = None
        self.dead = False
        self.place = ""
        for owner, name in OPERATIONS:
            monkeypatch.setattr(owner, name, self._watched(owner, name))

    def kill_at(self, target: int | None) -> None:
        """Lets the process live until this point; None: for ever."""
        self.count, self.target, self.dead, self.place = 0, target, False, ""

    def revive(self) -> None:
        """A new process: nothing is killed any more."""
        self.kill_at(None)

    def _watched(self, owner: type, name: str) -> Callable[..., Any]:
        original = getattr(owner, name)

        def watched(instance: Any, *arguments: Any, **options: Any) -> Any:
            self._point(f"before {owner.__name__}.{name}")
            result = original(instance, *arguments, **options)
            self._point(f"after {owner.__name__}.{name}")
            return result

        return watched

    def _point(self, place: str) -> None:
        if self.dead:
            raise Died(self.place)
        if self.target is not None and self.count == self.target:
            self.dead, self.place = True, place
            raise Died(place)
        self.count += 1
