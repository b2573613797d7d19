"""Damage: what has happened to a captured table so that its changes are not all known."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rollview.sources.reload_hint import setup_hint
from rollview.sources.source import Loss


@dataclass(frozen=True)
class Damage:
    """What has happened, in words. With `columns` it concerns only these; the other columns go on.

    Rows came or went, and nothing else, where it `is_truncate`; `leaves_empty` says that none are left.
    """

    reason: str
    columns: tuple[str, ...] = ()
    is_truncate: bool = False
    hint: str = ""
    leaves_empty: bool = False

    def loss_of(self, place: str) -> Loss:
        """The loss of a table, `source.table`, that has it."""
        hint = self.hint or setup_hint(place)
        message = f"table {place}: {self.reason}"
        return Loss(message, hint, self.columns, self.is_truncate, self.leaves_empty)

    def concerns(self, columns: Iterable[str]) -> bool:
        """Whether it matters to somebody who reads these columns."""
        return not self.columns or not set(self.columns).isdisjoint(columns)


def combined(damages: Iterable[Damage | None]) -> Damage | None:
    """All damages of a table as one: that of the whole table, or those of its columns."""
    found = [damage for damage in damages if damage is not None]
    if not found or any(not damage.columns for damage in found):
        return next((damage for damage in found if not damage.columns), None)
    columns = dict.fromkeys(column for damage in found for column in damage.columns)
    return Damage("; ".join(dict.fromkeys(damage.reason for damage in found)), tuple(columns))
