"""Groups of events that are being read, and those of XA transactions that wait to be decided."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field

from rollview.sources.mariadb.damage import Damage
from rollview.sources.mariadb.events import Event, Gtid
from rollview.sources.mariadb.position import Position
from rollview.sources.mariadb.row_image import Values
from rollview.sources.server.changed_rows import ChangedRows

_KEPT_BYTES = 1 << 20


class Prepared:
    """An XA transaction in doubt: where its group began, and its events, on disk if they are many."""

    def __init__(self, start: Position, has_nontransactional_writes: bool) -> None:
        self.start = start
        self.has_nontransactional_writes = has_nontransactional_writes
        # It lives from the PREPARE to the decision.
        self._kept = tempfile.SpooledTemporaryFile(_KEPT_BYTES)  # noqa: SIM115

    def keep(self, event: Event) -> None:
        """Adds an event of the group."""
        pickle.dump(tuple(event), self._kept)

    def events(self) -> Iterator[Event]:
        """The kept events in order."""
        self._kept.seek(0)
        while True:
            try:
                yield Event(*pickle.load(self._kept))
            except EOFError:
                return

    def close(self) -> None:
        """Forgets the events."""
        self._kept.close()


@dataclass
class Group:
    """The transaction that is being read; `skipped` if it was taken before.

    `damaged` are the tables that it changed in a way that is not known, `released` those that are no longer
    captured. With `has_nontransactional_writes` it
    also wrote tables without transactions. Only then does the log tell of returns to a savepoint, so only
    then is it remembered what was `written`, and where the `savepoints` were.
    """

    gtid: Gtid
    start: Position
    skipped: bool
    has_nontransactional_writes: bool
    prepared: Prepared | None = None
    touched: dict[str, ChangedRows] = field(default_factory=dict)
    damaged: dict[str, Damage] = field(default_factory=dict)
    released: frozenset[str] = frozenset()
    global_id: str = ""
    participants: tuple[str, ...] = ()
    written: list[tuple[ChangedRows, Values, int]] = field(default_factory=list)
    savepoints: dict[str, int] = field(default_factory=dict)

    def add(self, changed: ChangedRows, images: list[Values], counts: tuple[int, int]) -> None:
        """Rows of a table: `counts` are those of the first, third … and of the second, fourth … image."""
        add, count, other = changed.add, *counts
        for values in images:
            add(values, count)
            count, other = other, count
        if self.has_nontransactional_writes:
            self.written += [(changed, values, counts[i % 2]) for i, values in enumerate(images)]

    def is_lost(self, table: str) -> bool:
        """Whether nothing is known of what it did to a table; of some columns, it may be."""
        return table in self.damaged and not self.damaged[table].columns

    def undo(self, savepoint: str) -> None:
        """Takes back what was written since a savepoint, by adding its opposite."""
        start = self.savepoints.get(savepoint, 0)
        for changed, values, count in reversed(self.written[start:]):
            changed.add(values, -count)
        del self.written[start:]

    def mark_global(self, global_id: str, participants: str) -> None:
        """Makes the transaction a part of a global one; participants are separated by commas."""
        self.global_id = global_id
        self.participants = tuple(sorted(name.strip() for name in participants.split(",") if name.strip()))
