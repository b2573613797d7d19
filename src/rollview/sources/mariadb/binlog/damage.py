"""Damage: what has happened to a captured table so that its changes are not all known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rollview.sources.source import Loss, setup_hint


@dataclass(frozen=True)
class Damage:
    """The damage as a sentence. With `columns` it concerns only these; the other columns continue.

    Rows came or went, and nothing else, where it `is_truncate`; `leaves_empty` says that none are left.
    A value of a row cannot be represented where it `is_misfit`.
    """

    reason: str
    columns: tuple[str, ...] = ()
    is_truncate: bool = False
    hint: str = ""
    leaves_empty: bool = False
    is_misfit: bool = False

    def loss_of(self, place: str) -> Loss:
        """The loss of a table, `source.table`, that has it."""
        hint = self.hint or setup_hint(place)
        message = f"table {place}: {self.reason}"
        return Loss(message, hint, self.columns, self.is_truncate, self.leaves_empty, self.is_misfit)

    def concerns(self, columns: Iterable[str]) -> bool:
        return not self.columns or not set(self.columns).isdisjoint(columns)


def combined(damages: Iterable[Damage | None]) -> Damage | None:
    """All damages of a table as one: that of the whole table, or those of its columns."""
    found = [damage for damage in damages if damage is not None]
    if not found or any(not damage.columns for damage in found):
        return next((damage for damage in found if not damage.columns), None)
    columns = dict.fromkeys(column for damage in found for column in damage.columns)
    return Damage("; ".join(dict.fromkeys(damage.reason for damage in found)), tuple(columns))


def both_damages(some: Mapping[str, Damage], others: Mapping[str, Damage]) -> dict[str, Damage]:
    """The damages by table of two readings of one statement."""
    found = dict(some)
    for table, damage in others.items():
        found[table] = combined((found.get(table), damage)) or damage
    return found
