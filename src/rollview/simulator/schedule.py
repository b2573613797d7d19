"""Schedules: who decides what happens next.

At every step the simulation lists what could happen; a schedule picks one by its position. The list is
ordered from calm to hostile, so that always taking the first is the calmest run there is. A run is
determined by its world and its choices: recorded choices replay it, shorter choices shrink it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Protocol

Action = tuple[str, str, int]
"""What could happen: the kind, where (a source or a process), and which (a message, a size)."""


class Schedule(Protocol):
    """Picks the next action, and remembers what it picked."""

    choices: list[int]

    def choose(self, actions: Sequence[Action]) -> int:
        """The position of the action to take; there is at least one."""


class Seeded:
    """Random choices. Each run weighs the kinds of actions anew, so runs differ in character.

    Some runs are all commits first, some deliver at once, some crash often (swarm testing).
    """

    def __init__(self, generator: random.Random) -> None:
        self._random = generator.random
        self._weights: dict[str, float] = {}
        self.choices: list[int] = []

    def choose(self, actions: Sequence[Action]) -> int:
        width = len(actions)
        position = 0
        while width > 1:
            position = int(self._random() * width)
            kind = actions[position][0]
            weight = self._weights.get(kind)
            if weight is None:
                weight = self._weights[kind] = self._new_weight(kind)
            if self._random() < weight:
                break
        self.choices.append(position)
        return position

    def _new_weight(self, kind: str) -> float:
        weight = 0.12 + 0.88 * self._random() ** 2
        return weight / 8 if kind == "fault" else weight


class Recorded:
    """Given choices; the calmest action once they run out, or where a choice does not fit any more."""

    def __init__(self, choices: Sequence[int]) -> None:
        self._given = choices
        self.choices: list[int] = []

    def choose(self, actions: Sequence[Action]) -> int:
        step = len(self.choices)
        given = self._given[step] if step < len(self._given) else 0
        position = min(given, len(actions) - 1)
        self.choices.append(position)
        return position


class Scripted:
    """Named actions, such as `commit x` or `deliver y`, one after the other; then the calmest ones."""

    def __init__(self, script: Sequence[str]) -> None:
        self._script = list(script)
        self.choices: list[int] = []

    def choose(self, actions: Sequence[Action]) -> int:
        position = 0
        if self._script:
            label = self._script.pop(0)
            labels = [label_of(action) for action in actions]
            if label not in labels:
                raise ValueError(f"`{label}` cannot happen here; these can: {', '.join(labels)}")
            position = labels.index(label)
        self.choices.append(position)
        return position


def label_of(action: Action) -> str:
    """An action by its name: the kind and where it happens."""
    return f"{action[0]} {action[1]}".strip()


class _Exploring:
    """Follows a prefix of choices, then the first action, and notes how many there were."""

    def __init__(self, prefix: list[int]) -> None:
        self.choices = prefix
        self.widths: list[int] = []

    def choose(self, actions: Sequence[Action]) -> int:
        step = len(self.widths)
        self.widths.append(len(actions))
        if step == len(self.choices):
            self.choices.append(0)
        return self.choices[step]


def every_schedule() -> Iterator[Schedule]:
    """All schedules of a world, in lexical order; each must be run before the next is taken."""
    choices: list[int] = []
    while True:
        schedule = _Exploring(choices)
        yield schedule
        while schedule.widths and schedule.choices[-1] + 1 == schedule.widths[-1]:
            schedule.choices.pop()
            schedule.widths.pop()
        if not schedule.choices:
            return
        choices = schedule.choices
        choices[-1] += 1
