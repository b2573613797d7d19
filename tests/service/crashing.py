"""Crashes at durable steps: the process "dies" right after the n-th durable operation, or right before it.

Durable are the transactions of the catalog, the commits of lake tables, what is deleted there, and what a
source is asked to forget. Between two of them only data files of a lake commit are written: so a death
after each operation, and one before each lake commit, are all there are. A dying process does nothing
more: whatever it tries afterwards fails as well, until `revive`.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any

import pytest

from rollview.catalog import Catalog
from rollview.catalog.captured import Captured
from rollview.catalog.global_transactions import GlobalTransactions
from rollview.catalog.history import History
from rollview.catalog.steps import Steps
from rollview.catalog.works import Works
from rollview.lake import LakeTable
from rollview.lake.object_store import ObjectStore, ObjectTable
from rollview.sources.sqlite import SQLiteSource
from rollview.storage.lake_tables import LakeTables

OPERATIONS: tuple[tuple[type, str], ...] = (
    (Captured, "register"),
    (Captured, "unregister"),
    (History, "restart"),
    (Catalog, "announce_epoch"),
    (Catalog, "begin_epoch"),
    (Steps, "begin"),
    (Steps, "finish"),
    (Steps, "abandon"),
    (Steps, "abandon_pending"),
    (History, "prune"),
    (GlobalTransactions, "wait_for"),
    (Works, "choose"),
    (Works, "note_measured"),
    (Works, "note_failure"),
    (LakeTable, "create_if_missing"),
    (LakeTable, "_commit"),
    (LakeTable, "describe"),
    (LakeTable, "restore"),
    (LakeTable, "vacuum"),
    (LakeTables, "drop"),
    (ObjectStore, "put_if_absent"),
    (ObjectTable, "publish"),
    (SQLiteSource, "setup"),
    (SQLiteSource, "current_position"),
    (SQLiteSource, "acknowledge"),
)
BOTH_SIDES = ("_commit", "put_if_absent")


class Died(BaseException):
    """The process is gone."""


class Executioner:
    """Counts the moments at which a process may die, and kills at a chosen one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.target: int | str | None = None
        self.dead = False
        self.place = ""
        # Tables are written by several threads; a moment that nobody counts could not be chosen.
        self._lock = Lock()
        for owner, name in OPERATIONS:
            monkeypatch.setattr(owner, name, self._watched(owner, name))

    def kill_at(self, target: int | str | None) -> None:
        """Lets the process live until this moment, or one whose place holds these words; None: for ever."""
        self.count, self.target, self.dead, self.place = 0, target, False, ""

    def revive(self) -> None:
        """A new process: nothing is killed any more."""
        self.kill_at(None)

    def _watched(self, owner: type, name: str) -> Callable[..., Any]:
        original = getattr(owner, name)

        def watched(instance: Any, *arguments: Any, **options: Any) -> Any:
            self._refuse_the_dead()
            if name in BOTH_SIDES:
                self._moment(f"before {owner.__name__}.{name}")
            result = original(instance, *arguments, **options)
            self._moment(f"after {owner.__name__}.{name} of {_subject(instance, arguments)}")
            return result

        return watched

    def _moment(self, place: str) -> None:
        self._refuse_the_dead()
        with self._lock:
            if self.target in place if isinstance(self.target, str) else self.count == self.target:
                self.dead, self.place = True, place
                raise Died(place)
            self.count += 1

    def _refuse_the_dead(self) -> None:
        if self.dead:
            raise Died(self.place)


def _subject(instance: Any, arguments: tuple[Any, ...]) -> str:
    """What the operation was about, for the reader of a failure."""
    if isinstance(instance, LakeTable):
        return f"{instance.folder.parent.name}/{instance.folder.name}"
    kinds = [each.kind for each in arguments if hasattr(each, "kind")]
    return " ".join([*kinds, *(each for each in arguments if isinstance(each, str))])
